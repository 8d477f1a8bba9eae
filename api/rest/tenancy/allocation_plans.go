package tenancy

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
)

// AllocationPlan is what a request for a node would do and cost now.
type AllocationPlan struct {
	ProjectID string             `json:"project_id"`
	SKUID     string             `json:"sku_id"`
	SKU       string             `json:"sku" doc:"The SKU's name"`
	NodeFree  bool               `json:"node_free" doc:"Whether a node is free now. Without one the request waits for wait_seconds or is refused"`
	Currency  string             `json:"currency" doc:"Of the billing account that pays for the project"`
	Exponent  int                `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	Charging  bool               `json:"charging" doc:"false while this installation has no price in force: nothing is charged then"`
	Price     *Rate              `json:"price,omitempty" doc:"Left out where nothing is charged, or the SKU has no price in the currency"`
	Balance   *AllocationBalance `json:"balance,omitempty" doc:"For owners and members with role billing, where the SKU has a price"`
	Refusals  []problem.Problem  `json:"refusals" nullable:"false" doc:"The answers with which the request would be refused now; empty when it would be accepted"`
}

// AllocationBalance is the balance before and after a request.
type AllocationBalance struct {
	BalanceMinor        int64 `json:"balance_minor" doc:"What was posted; the request does not change it"`
	AvailableMinor      int64 `json:"available_minor" doc:"What may be held back now"`
	AvailableAfterMinor int64 `json:"available_after_minor" doc:"What may be held back after the request; below 0 the request is refused"`
}

const planDoc = "It names the price, what is held back of the balance, and every reason for which the request would be refused now. A request that is not valid is refused as " +
	"by the request itself. Nothing is written and no node is kept: another request may be faster."

func (s *allocationServer) registerPlans() {
	add := func(id, path, summary, more string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: http.MethodPost, Path: path, Tags: []string{"allocations"}, Summary: summary, Description: planDoc + more, DefaultStatus: http.StatusOK,
		}
	}
	op.Add(s.api, add("plan-allocation", "/projects/{id}/allocations/plan", "Say what a request for a node would cost, without making it", ""), s.planInPath)
	op.Add(s.api, add("plan-own-allocation", "/allocations/plan", "Say what a request for a node for your project would cost, without making it",
		" Those may call it who have role member in the project."), s.planOwn)
}

func (s *allocationServer) planInPath(ctx context.Context, in *struct {
	ProjectPath
	Body AllocationRequest
}) (*struct{ Body AllocationPlan }, error) {
	return s.planIn(ctx, in.Body)
}

func (s *allocationServer) planOwn(ctx context.Context, in *struct {
	OwnProject
	Body AllocationRequest
}) (*struct{ Body AllocationPlan }, error) {
	ctx, err := s.enterToCreate(ctx, in.OwnProject, in.Body)
	if err != nil {
		return nil, err
	}
	return s.planIn(ctx, in.Body)
}

// planIn tries a request for the project of the request in a transaction that only reads: no claim
// waits for a dry run.
func (s *allocationServer) planIn(ctx context.Context, body AllocationRequest) (*struct{ Body AllocationPlan }, error) {
	project := op.ProjectAccessOf(ctx).Project
	if err := op.InProject(ctx, s.api, func(tx *db.ProjectTx) error {
		_, err := tenancydb.ReadProject(ctx, tx, project)
		return err
	}); err != nil {
		return nil, err
	}
	out := &struct{ Body AllocationPlan }{}
	err := s.api.Store().ReadTx(ctx, func(tx *db.Tx) error {
		tried, err := allocation.TryCreate(ctx, tx, s.requestOf(ctx, body))
		if err != nil {
			return err
		}
		sku, err := tx.SKU(ctx, body.SKUID)
		out.Body = planOf(tried, op.ReadsMoney(ctx))
		out.Body.ProjectID, out.Body.SKUID, out.Body.SKU = project, body.SKUID, sku.Name
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func planOf(tried allocation.DryRun, readsMoney bool) AllocationPlan {
	q, b := tried.Quote, tried.Quote.Balance
	out := AllocationPlan{NodeFree: tried.IsFree, Currency: b.Currency, Exponent: int(b.Exponent), Charging: q.Charging, Refusals: []problem.Problem{}}
	if q.Priced {
		rate := rateView(q.RateMinorPerHour, b.Currency, int(b.Exponent))
		out.Price = &rate
		if readsMoney {
			out.Balance = &AllocationBalance{b.BalanceMinor, b.AvailableMinor(), b.AvailableMinor() - q.HoldMinor}
		}
	}
	for _, r := range tried.Refusals {
		out.Refusals = append(out.Refusals, *problem.From(r))
	}
	return out
}
