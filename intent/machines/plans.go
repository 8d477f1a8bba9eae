package machines

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// CreatePlan checks a plan and stores it, unless it is only to be checked. It returns the plan as
// it is stored.
func CreatePlan(ctx context.Context, tx *db.Tx, p runplan.Plan, validateOnly bool, actor db.Actor) (runplan.Plan, error) {
	p.ID = cmp.Or(p.ID, db.NewID("plan"))
	p.StartableBy = cmp.Or(p.StartableBy, runplan.StartableByOperator)
	if err := p.Check(); err != nil {
		return p, err
	}
	_, err := FindPlan(ctx, tx, p.ID)
	if err == nil {
		return p, &intent.Refusal{Kind: intent.Conflict, Existing: p.ID, Detail: "there is a plan " + p.ID + ", and plans do not change; choose another id"}
	}
	if !errors.Is(err, db.ErrNotFound) || validateOnly {
		return p, ignoreNotFound(err)
	}
	if err := machinesdb.CreatePlan(ctx, tx, p, actor.ID); err != nil {
		return p, err
	}
	actor.Metadata = map[string]any{"steps": len(p.Steps), "startable_by": p.StartableBy}
	return p, tx.AppendAudit(ctx, db.Entry{ResourceKind: "plan", ResourceID: p.ID, Kind: db.EntryAction, Name: "create_plan", Actor: actor})
}

func ignoreNotFound(err error) error {
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	return err
}

// FindPlan returns a plan that is stored or that the program brings, or db.ErrNotFound.
func FindPlan(ctx context.Context, c db.Conn, id string) (runplan.Plan, error) {
	defaults, err := runplan.Defaults()
	if err != nil {
		return runplan.Plan{}, err
	}
	for _, p := range defaults {
		if p.ID == id {
			return p, nil
		}
	}
	return machinesdb.GetPlan(ctx, c, id)
}

// FindPlanOf is FindPlan for a project, whose members see only the plans that they may start.
// Project "" is an operator.
func FindPlanOf(ctx context.Context, c db.Conn, project, id string) (runplan.Plan, error) {
	plan, err := FindPlan(ctx, c, id)
	if err == nil && project != "" && plan.StartableBy != runplan.StartableByCustomer {
		err = db.NotFound("plan " + id)
	}
	return plan, err
}

// maxPlansPage bounds one page of plans, in bytes: the largest answer that clients of gRPC take is
// 4 MiB.
const maxPlansPage = 3 << 20

// ListPlans returns one page of the plans by their ids, those that the program brings among them,
// and whether there are more. customers leaves out those that only operators start.
func ListPlans(ctx context.Context, c db.Conn, customers bool, after string, limit int) (page []runplan.Plan, more bool, err error) {
	sizes, err := machinesdb.ListPlanSizes(ctx, c, customers, after, limit+1)
	if err != nil {
		return nil, false, err
	}
	defaults, err := runplan.Defaults()
	if err != nil {
		return nil, false, err
	}
	brought := map[string]runplan.Plan{}
	for _, p := range defaults {
		if p.ID > after && (!customers || p.StartableBy == runplan.StartableByCustomer) {
			brought[p.ID] = p
			sizes = append(sizes, machinesdb.PlanSize{ID: p.ID})
		}
	}
	slices.SortFunc(sizes, func(a, b machinesdb.PlanSize) int { return strings.Compare(a.ID, b.ID) })
	bytes, stored := 0, []string{}
	for n, s := range sizes {
		if bytes += s.Size; n == limit || n > 0 && bytes > maxPlansPage {
			more = true
			break
		}
		if p, ok := brought[s.ID]; ok {
			page = append(page, p)
		} else {
			stored = append(stored, s.ID)
		}
	}
	plans, err := machinesdb.GetPlans(ctx, c, stored)
	page = append(page, plans...)
	slices.SortFunc(page, func(a, b runplan.Plan) int { return strings.Compare(a.ID, b.ID) })
	return page, more, err
}
