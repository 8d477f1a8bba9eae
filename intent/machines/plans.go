package machines

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// defaultPrefix begins the ids of the plans that the program brings, now or later.
const defaultPrefix = "default-"

// CreatePlan checks a plan and stores it, unless it is only to be checked. It returns the plan as
// it is stored.
func CreatePlan(ctx context.Context, tx *db.Tx, p runplan.Plan, validateOnly bool, actor db.Actor) (runplan.Plan, error) {
	p.ID = cmp.Or(p.ID, db.NewID("plan"))
	if strings.HasPrefix(p.ID, defaultPrefix) {
		return p, invalid("plan.plan_id", "begins with "+defaultPrefix+", which is for the plans that Slipway brings; choose another id")
	}
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

// FindPlan returns a plan that is stored or that the program brings, or db.ErrNotFound. A default
// plan is stored when a run first uses it. From then on the stored one holds, whatever a later
// version of the program brings under its id.
func FindPlan(ctx context.Context, c db.Conn, id string) (runplan.Plan, error) {
	plan, err := machinesdb.GetPlan(ctx, c, id)
	if !errors.Is(err, db.ErrNotFound) {
		return plan, err
	}
	brought, is, failed := findDefault(id)
	if failed != nil || is {
		return brought, failed
	}
	return plan, err
}

// findDefault returns the default plan with an id that the program brings.
func findDefault(id string) (plan runplan.Plan, is bool, err error) {
	defaults, err := runplan.Defaults()
	for _, p := range defaults {
		if p.ID == id {
			return p, true, err
		}
	}
	return runplan.Plan{}, false, err
}

// storeDefault stores the default plan that a run uses, where it is one and is not stored yet. The
// audit log of the plan says where the run uses another one than the program brings under that id.
func storeDefault(ctx context.Context, tx *db.Tx, id, runID string, actor db.Actor) error {
	p, is, err := findDefault(id)
	if err != nil || !is {
		return err
	}
	stored, err := machinesdb.StoreDefaultPlan(ctx, tx, p)
	if err != nil || reflect.DeepEqual(stored, p) {
		return err
	}
	actor.Metadata = map[string]any{"run": runID}
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: "plan", ResourceID: id, Kind: db.EntryAction, Name: "default_plan_differs", Actor: actor})
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
	brought, ids := map[string]runplan.Plan{}, []string{}
	for _, p := range defaults {
		ids = append(ids, p.ID)
	}
	kept, err := machinesdb.GetPlans(ctx, c, ids)
	if err != nil {
		return nil, false, err
	}
	for _, p := range defaults {
		isStored := slices.ContainsFunc(kept, func(s runplan.Plan) bool { return s.ID == p.ID })
		if p.ID > after && !isStored && (!customers || p.StartableBy == runplan.StartableByCustomer) {
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
