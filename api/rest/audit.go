package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// AuditQuery narrows a search of the audit log.
type AuditQuery struct {
	op.Page
	ResourceKind string    `query:"resource_kind" maxLength:"100" doc:"Such as node, job, api_token or portal_session"`
	ResourceID   string    `query:"resource_id" maxLength:"200"`
	NodeID       string    `query:"node_id" maxLength:"200" doc:"A node and its jobs"`
	Actor        string    `query:"actor" maxLength:"500" doc:"Who did it, such as token:NAME:tok_... or oidc:SUBJECT"`
	Kind         string    `query:"kind" enum:"transition,action,call,observation"`
	Name         string    `query:"name" maxLength:"200" doc:"Such as retire, revoke or sign_in; with kind=action it is found quickly"`
	Since        time.Time `query:"since" maxLength:"40" doc:"RFC 3339; the default is 31 days before until, and the most 400 days before it"`
	Until        time.Time `query:"until" maxLength:"40" doc:"RFC 3339; the default is now"`
}

const (
	auditWindow    = 31 * 24 * time.Hour
	maxAuditWindow = 400 * 24 * time.Hour // a search that finds nothing reads the whole window
)

func (s *server) registerAudit() {
	op.Add(s.api, huma.Operation{
		OperationID: "search-audit", Method: http.MethodGet, Path: "/admin/audit", Tags: []string{"audit"}, Summary: "Search the audit log, newest first",
		Description: "What operators, jobs, agents and the system did. The filters are combined. Without since and until it searches the last 31 days; one search covers at most 400 days.",
	}, s.searchAudit)
}

func (s *server) searchAudit(ctx context.Context, in *AuditQuery) (*op.Listed[TimelineEntry], error) {
	place, err := in.place()
	if err != nil {
		return nil, err
	}
	f := db.AuditFilter{
		Since: in.Since, Until: in.Until, ResourceKind: in.ResourceKind, ResourceID: in.ResourceID, NodeID: in.NodeID, ActorID: in.Actor,
		Kind: in.Kind, Name: in.Name,
	}
	if f.Until.IsZero() {
		f.Until = time.Now().Add(time.Minute) // the database's clock may be ahead of this one
	}
	if f.Since.IsZero() {
		f.Since = f.Until.Add(-auditWindow)
	}
	if !f.Since.Before(f.Until) {
		return nil, problem.NewInvalid(problem.Field{Location: "query.since", Message: "must be before until"})
	}
	if f.Until.Sub(f.Since) > maxAuditWindow {
		return nil, problem.NewInvalid(problem.Field{Location: "query.since", Message: "must be at most 400 days before until; search a longer time in several steps, each with since and until"})
	}
	var rows []db.AuditRow
	err = s.store.ReadTx(ctx, func(tx *db.Tx) error {
		rows, err = tx.SearchAudit(ctx, f, place, in.Limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, auditPlaceOf, timelineView), nil
}

func auditPlaceOf(r db.AuditRow) string {
	return r.At.UTC().Format(time.RFC3339Nano) + placeSeparator + strconv.FormatInt(r.Pos, 10)
}

// place reads the cursor: time and position of the last row of the page before.
func (q AuditQuery) place() (db.AuditPlace, error) {
	text, err := q.After()
	if err != nil || text == "" {
		return db.AuditPlace{}, err
	}
	at, pos, _ := strings.Cut(text, placeSeparator)
	place := db.AuditPlace{}
	if place.At, err = time.Parse(time.RFC3339Nano, at); err == nil {
		place.Pos, err = strconv.ParseInt(pos, 10, 64)
	}
	if err != nil {
		return place, problem.NewInvalid(problem.Field{Location: "query.cursor", Message: "is not a cursor of this list; begin without one"})
	}
	return place, nil
}
