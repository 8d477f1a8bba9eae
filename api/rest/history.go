package rest

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Transition is one row of a node's history, in the documented shape of node histories
// (docs/pxe.md).
type Transition struct {
	ID          string          `json:"id"`
	FromState   string          `json:"from_state" doc:"Empty for the creation"`
	ToState     string          `json:"to_state"`
	TriggeredBy string          `json:"triggered_by" doc:"admin, system, node_report, workflow (a job) or customer"`
	UserID      *string         `json:"user_id" doc:"The login of the user who did it; null where a job, a sweeper or the node itself did. The timeline names those"`
	Comment     *string         `json:"comment"`
	Metadata    json.RawMessage `json:"metadata"`
	CreatedAt   time.Time       `json:"created_at"`
}

// History is one page of a node's history.
type History struct {
	Data  []Transition `json:"data" nullable:"false"`
	Total int64        `json:"total"`
}

func (s *server) nodeHistory(ctx context.Context, in *struct {
	NodePath
	Limit  int `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Offset int `query:"offset" minimum:"0" maximum:"1000000" default:"0"`
}) (*struct{ Body History }, error) {
	out := &struct{ Body History }{History{Data: []Transition{}}}
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Node(ctx, in.ID); err != nil {
			return err
		}
		rows, total, err := tx.NodeHistory(ctx, in.ID, in.Limit, in.Offset)
		out.Body.Total = total
		out.Body.Data = []Transition{}
		for _, r := range rows {
			out.Body.Data = append(out.Body.Data, Transition{
				ID: r.ID, FromState: r.FromState, ToState: r.ToState, TriggeredBy: r.TriggeredBy, UserID: r.UserID, Comment: r.Comment,
				Metadata: r.Metadata, CreatedAt: r.CreatedAt.UTC(),
			})
		}
		return err
	})
	return out, err
}

// Occupancy is what a node was used for during a time.
type Occupancy struct {
	State         lifecycle.Occupancy `json:"state" doc:"allocated, releasing, sanitizing, clean, free or maintenance"`
	AllocationID  string              `json:"allocation_id,omitempty" doc:"Whose it was, or whom the cleaning was about"`
	CertificateID string              `json:"certificate_id,omitempty" doc:"That proves it clean"`
	Since         time.Time           `json:"since"`
	Until         *time.Time          `json:"until,omitempty" doc:"Absent in the row that lasts"`
}

func (s *server) nodeOccupancies(ctx context.Context, in *struct {
	NodePath
	op.Page
}) (*op.Listed[Occupancy], error) {
	if _, err := s.store.Node(ctx, in.ID); err != nil {
		return nil, err
	}
	before, err := in.AfterNumber()
	if err != nil {
		return nil, err
	}
	rows, err := allocationdb.ListOccupancies(ctx, s.store, in.ID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(o allocationdb.Occupancy) string { return strconv.FormatInt(o.ID, 10) }, func(o allocationdb.Occupancy) Occupancy {
		out := Occupancy{State: o.State, AllocationID: text(o.AllocationID), CertificateID: text(o.CertificateID), Since: o.Since.UTC()}
		if o.Until != nil {
			until := o.Until.UTC()
			out.Until = &until
		}
		return out
	}), nil
}

// TimelineEntry is one thing that happened.
type TimelineEntry struct {
	ID           string          `json:"id"`
	At           time.Time       `json:"at"`
	ResourceKind string          `json:"resource_kind"`
	ResourceID   string          `json:"resource_id"`
	Kind         string          `json:"kind" doc:"transition, action, call or observation"`
	Name         string          `json:"name"`
	FromState    string          `json:"from_state,omitempty"`
	ToState      string          `json:"to_state,omitempty"`
	TriggeredBy  string          `json:"triggered_by"`
	Owner        string          `json:"owner"`
	Actor        string          `json:"actor,omitempty"`
	Comment      string          `json:"comment,omitempty"`
	Metadata     json.RawMessage `json:"metadata"`
	WorkflowID   string          `json:"workflow_id,omitempty"`
}

func timelineView(r db.AuditRow) TimelineEntry {
	return TimelineEntry{
		ID: r.ID, At: r.At.UTC(), ResourceKind: r.ResourceKind, ResourceID: r.ResourceID, Kind: string(r.Kind), Name: r.Name, FromState: r.FromState,
		ToState: r.ToState, TriggeredBy: r.TriggeredBy, Owner: r.Owner, Actor: text(r.ActorID), Comment: text(r.Comment), Metadata: r.Metadata,
		WorkflowID: text(r.WorkflowID),
	}
}

func (s *server) nodeTimeline(ctx context.Context, in *struct {
	NodePath
	op.Page
}) (*op.Listed[TimelineEntry], error) {
	if _, err := s.store.Node(ctx, in.ID); err != nil {
		return nil, err
	}
	before, err := in.AfterNumber()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.NodeTimeline(ctx, in.ID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.AuditRow) string { return strconv.FormatInt(r.Pos, 10) }, timelineView), nil
}
