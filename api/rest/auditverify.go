package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// AuditVerifyQuery says which chains of the audit log to verify.
type AuditVerifyQuery struct {
	op.Page
	ResourceKind string `query:"resource_kind" maxLength:"100" doc:"Such as node or job; with resource_id one chain, without it all"`
	ResourceID   string `query:"resource_id" maxLength:"200"`
}

// BrokenChain is a chain of the audit log that is not whole.
type BrokenChain struct {
	ResourceKind string `json:"resource_kind"`
	ResourceID   string `json:"resource_id"`
	FirstBroken  int64  `json:"first_broken_seq" doc:"The first row of the chain that is missing or was changed"`
}

// AuditVerification is the result for a page of chains.
type AuditVerification struct {
	Checked    int           `json:"checked" doc:"How many chains this page verified"`
	Data       []BrokenChain `json:"data" nullable:"false" doc:"Those that are not whole"`
	NextCursor string        `json:"next_cursor,omitempty" doc:"Verifies the next chains; absent on the last page"`
}

func (s *server) registerAuditVerify() {
	op.Add(s.api, huma.Operation{
		OperationID: "verify-audit", Method: http.MethodGet, Path: "/admin/audit/verification", Tags: []string{"audit"},
		Summary:     "Verify the audit log: of one resource, or chain after chain",
		Description: "The database walks the chain of hashes of each resource. A limit is a number of chains; follow next_cursor to verify all of them.",
	}, s.verifyAudit)
}

func (s *server) verifyAudit(ctx context.Context, in *AuditVerifyQuery) (*struct{ Body AuditVerification }, error) {
	if (in.ResourceKind == "") != (in.ResourceID == "") {
		return nil, problem.NewInvalid(problem.Field{Location: "query.resource_id", Message: "goes with resource_kind; give both for one resource, or neither for all"})
	}
	out := &struct{ Body AuditVerification }{AuditVerification{Data: []BrokenChain{}}}
	var rows []db.ChainCheck
	var err error
	if in.ResourceKind != "" {
		rows, err = s.verifyOneChain(ctx, db.Chain{ResourceKind: in.ResourceKind, ResourceID: in.ResourceID})
	} else {
		rows, err = s.verifyChains(ctx, in.Page, &out.Body.NextCursor)
	}
	if err != nil {
		return nil, err
	}
	out.Body.Checked = len(rows)
	for _, r := range rows {
		if r.BrokenSeq != 0 {
			out.Body.Data = append(out.Body.Data, BrokenChain{ResourceKind: r.ResourceKind, ResourceID: r.ResourceID, FirstBroken: r.BrokenSeq})
		}
	}
	return out, nil
}

// verifyOneChain refuses a resource without rows, which would otherwise read as whole. A chain
// whose end was deleted is not listed and still found broken.
func (s *server) verifyOneChain(ctx context.Context, c db.Chain) ([]db.ChainCheck, error) {
	broken, err := s.store.VerifyAudit(ctx, c.ResourceKind, c.ResourceID)
	if err != nil {
		return nil, err
	}
	if broken == 0 {
		if has, err := s.store.HasAuditChain(ctx, c); err != nil || !has {
			if err == nil {
				err = db.NotFound("audit log of " + c.ResourceKind + " " + c.ResourceID)
			}
			return nil, err
		}
	}
	return []db.ChainCheck{{ResourceKind: c.ResourceKind, ResourceID: c.ResourceID, BrokenSeq: broken}}, nil
}

func (s *server) verifyChains(ctx context.Context, page op.Page, next *string) ([]db.ChainCheck, error) {
	text, err := page.After()
	if err != nil {
		return nil, err
	}
	kind, id, ok := strings.Cut(text, placeSeparator)
	if text != "" && !ok {
		return nil, problem.NewInvalid(problem.Field{Location: "query.cursor", Message: "is not a cursor of this list; begin without one"})
	}
	rows, err := s.store.VerifyAuditChains(ctx, db.Chain{ResourceKind: kind, ResourceID: id}, page.Limit)
	if err == nil && len(rows) == page.Limit {
		last := rows[len(rows)-1]
		*next = op.CursorOf(last.ResourceKind + placeSeparator + last.ResourceID)
	}
	return rows, err
}
