// Package machinesdb stores machines, plans and runs, with the output of runs. It is a package
// below db. Locks are taken in this order: machine, run, job, node.
package machinesdb

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/machines/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The rows.
type (
	Machine = gen.Machine
	Run     = gen.Run
	Chunk   = gen.RunLog
)

// Conn runs queries: a *db.Store, a *db.Tx, or a *db.ProjectTx, which sees one project.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

// Resource and RunResource are the kinds of machines and runs in the audit log, in events and of
// jobs.
var (
	Resource    = lifecycle.MachinePhases.Resource
	RunResource = lifecycle.Run.Resource
)

// New is a machine that is registered.
type New struct {
	ID        string // "" makes one
	ProjectID string // "" for none
	Labels    map[string]string
	Spec      spec.MachineSpec
	Phase     lifecycle.MachinePhase
	Actor     db.Actor
}

// Create writes a machine with its MAC addresses and its audit row. It returns a *db.ConflictError
// when another machine has its serial number or one of its MAC addresses.
func Create(ctx context.Context, tx *db.Tx, in New) (Machine, error) {
	if in.ID == "" {
		in.ID = db.NewID("mach")
	}
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Machine{}, err
	}
	_, err = queries(tx).InsertMachine(ctx, gen.InsertMachineParams{
		ID: in.ID, ProjectID: db.OrNil(in.ProjectID), Status: in.Phase, Labels: labels(in.Labels), Spec: in.Spec, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
		Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if err == nil {
		err = queries(tx).InsertMACs(ctx, gen.InsertMACsParams{MachineID: in.ID, MACs: db.EmptyIfNil(in.Spec.MACAddresses)})
	}
	if err != nil {
		return Machine{}, db.MapError(what(in.ID), err)
	}
	return Get(ctx, tx, in.ID)
}

var what, whatRun = db.Named("machine"), db.Named("run")

func labels(l map[string]string) record.Labels {
	if l == nil {
		return record.Labels{}
	}
	return l
}

// Get returns one machine, or db.ErrNotFound.
func Get(ctx context.Context, c Conn, id string) (Machine, error) {
	m, err := queries(c).Machine(ctx, id)
	return m, db.MapError(what(id), err)
}

// Lock returns one machine and keeps others from changing it until the transaction ends.
func Lock(ctx context.Context, tx *db.Tx, id string) (Machine, error) {
	m, err := queries(tx).LockMachine(ctx, id)
	return m, db.MapError(what(id), err)
}

// FindByMACs returns the ids of the machines that have one of these MAC addresses.
func FindByMACs(ctx context.Context, c Conn, macs []string) ([]string, error) {
	ids, err := queries(c).MachinesWithMACs(ctx, db.EmptyIfNil(macs))
	return ids, db.MapError("find machines by their MAC addresses", err)
}

// FindOfNode returns the machine that is linked to a node, or db.ErrNotFound.
func FindOfNode(ctx context.Context, c Conn, nodeID string) (Machine, error) {
	m, err := queries(c).MachineOfNode(ctx, nodeID)
	return m, db.MapError("machine of node "+nodeID, err)
}

// Update writes labels, specification, project, pinned host key and BMC of a locked machine.
func Update(ctx context.Context, tx *db.Tx, m Machine) (Machine, error) {
	_, err := queries(tx).UpdateMachine(ctx, gen.UpdateMachineParams{
		ID: m.ID, Labels: labels(m.Labels), Spec: m.Spec, ProjectID: m.ProjectID, HostKey: m.HostKey, BMCID: m.BMCID,
	})
	if err == nil {
		err = queries(tx).DeleteMACs(ctx, m.ID)
	}
	if err == nil {
		err = queries(tx).InsertMACs(ctx, gen.InsertMACsParams{MachineID: m.ID, MACs: db.EmptyIfNil(m.Spec.MACAddresses)})
	}
	if err != nil {
		return Machine{}, db.MapError(what(m.ID), err)
	}
	return Get(ctx, tx, m.ID)
}

// SetAccess writes node, site, pinned host key and BMC of a locked machine.
func SetAccess(ctx context.Context, tx *db.Tx, m Machine) (Machine, error) {
	_, err := queries(tx).SetMachineAccess(ctx, gen.SetMachineAccessParams{ID: m.ID, NodeID: m.NodeID, SiteID: m.SiteID, HostKey: m.HostKey, BMCID: m.BMCID})
	if err != nil {
		return Machine{}, db.MapError(what(m.ID), err)
	}
	return Get(ctx, tx, m.ID)
}

// Linked is a machine that is linked to a node, with what is known of the node.
type Linked = gen.LinkedMachinesRow

// ListLinked returns machines that are linked to a node, by their ids after one.
func ListLinked(ctx context.Context, c Conn, after string, limit int) ([]Linked, error) {
	rows, err := queries(c).LinkedMachines(ctx, gen.LinkedMachinesParams{After: after, MaxRows: int32(limit)}) //nolint:gosec // a constant
	return rows, db.MapError("machines of nodes", err)
}

// GetLinked returns a machine with what is known of its node. It returns db.ErrNotFound for one
// that is linked to no node, or RETIRED.
func GetLinked(ctx context.Context, c Conn, id string) (Linked, error) {
	rows, err := queries(c).LinkedMachines(ctx, gen.LinkedMachinesParams{Named: id, MaxRows: 1})
	if err == nil && len(rows) == 0 {
		return Linked{}, db.NotFound(what(id))
	}
	if err != nil {
		return Linked{}, db.MapError(what(id), err)
	}
	return rows[0], nil
}

// SetFollowed writes the conditions of a machine, and the phase that its node gave it.
func SetFollowed(ctx context.Context, c Conn, id string, conditions lifecycle.Conditions, given lifecycle.MachinePhase) error {
	_, err := queries(c).SetFollowed(ctx, gen.SetFollowedParams{ID: id, Conditions: conditions, NodePhase: given})
	return db.MapError(what(id), err)
}

// ClaimProbes returns machines that are linked to no node and whose probe is due: of those that
// answered last, or of those that did not. No other worker gets one of them again within the time
// every, unless the way to reach it changes.
func ClaimProbes(ctx context.Context, c Conn, every time.Duration, silent bool, limit int) ([]Machine, error) {
	rows, err := queries(c).ClaimProbes(ctx, gen.ClaimProbesParams{EverySeconds: every.Seconds(), Silent: silent, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("machines that are to be probed", err)
}

// MoveTo moves a locked machine with its audit row. runID is the run that begins, "" otherwise:
// every other move ends the active run. It returns *lifecycle.IllegalTransitionError when the phase
// or the owner forbids it.
func MoveTo(ctx context.Context, tx *db.Tx, m Machine, t lifecycle.Transition[lifecycle.MachinePhase], proof lifecycle.Proof, runID string, a db.Actor) (Machine, error) {
	err := db.CommitTransition(lifecycle.MachinePhases, t, m.Status, proof, a, func(st db.AuditStamp) error {
		_, err := queries(tx).MoveMachine(ctx, gen.MoveMachineParams{
			ID: m.ID, FromState: string(m.Status), ToState: string(t.To), Version: m.Version, ActiveRunID: db.OrNil(runID), Name: t.Name, AuditID: st.AuditID,
			TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
		})
		return db.MapError(what(m.ID), err)
	})
	if err == nil && t.To == lifecycle.MachineRetired {
		err = db.MapError(what(m.ID), queries(tx).DeleteMACs(ctx, m.ID))
	}
	if err != nil {
		return Machine{}, err
	}
	return Get(ctx, tx, m.ID)
}

// Page is which rows of a list are read. Project "" is every project; After is the id of the last
// row of the page before.
type Page struct {
	Project string
	Filter  listfilter.Filter
	After   string
	Limit   int
}

// terms returns a filter as three lists.
func (p Page) terms() (fields []string, negated []bool, wanted []string) {
	fields, negated, wanted = []string{}, []bool{}, []string{}
	for _, t := range p.Filter {
		fields, negated, wanted = append(fields, t.Field), append(negated, t.Negated), append(wanted, t.Value)
	}
	return fields, negated, wanted
}

// Shown is a machine with its active run, as they were at one moment. Of the run it has what
// callers may see; RunID is "" for none.
type Shown struct {
	Machine

	RunID    string
	RunPhase lifecycle.RunPhase
	RunWaits bool // for an operator
}

// Show returns one machine, or db.ErrNotFound.
func Show(ctx context.Context, c Conn, id string) (Shown, error) {
	r, err := queries(c).ShownMachine(ctx, id)
	return Shown{r.Machine, r.RunID, lifecycle.RunPhase(r.RunPhase), r.RunWaits}, db.MapError(what(id), err)
}

// List returns machines by their ids.
func List(ctx context.Context, c Conn, p Page) ([]Shown, error) {
	fields, negated, wanted := p.terms()
	rows, err := queries(c).ListMachines(ctx, gen.ListMachinesParams{
		After: p.After, ProjectID: p.Project, Fields: fields, Negated: negated, Wanted: wanted, MaxRows: int32(p.Limit), //nolint:gosec // at most 1001
	})
	out := make([]Shown, 0, len(rows))
	for _, r := range rows {
		out = append(out, Shown{r.Machine, r.RunID, lifecycle.RunPhase(r.RunPhase), r.RunWaits})
	}
	return out, db.MapError("list machines", err)
}

// CreatePlan stores a plan. It returns a *db.ConflictError when there is one with its id.
func CreatePlan(ctx context.Context, c Conn, p runplan.Plan, by string) error {
	return db.MapError("plan "+p.ID, queries(c).InsertPlan(ctx, gen.InsertPlanParams{
		ID: p.ID, DisplayName: p.DisplayName, StartableBy: p.StartableBy, Steps: p.Steps, CreatedBy: by,
	}))
}

// StoreDefaultPlan stores a plan that the program brings, and returns the stored one. A plan that
// is stored already stays as it is, and may differ.
func StoreDefaultPlan(ctx context.Context, c Conn, p runplan.Plan) (runplan.Plan, error) {
	err := queries(c).StoreDefaultPlan(ctx, gen.StoreDefaultPlanParams{
		ID: p.ID, DisplayName: p.DisplayName, StartableBy: p.StartableBy, Steps: p.Steps,
	})
	if err != nil {
		return runplan.Plan{}, db.MapError("plan "+p.ID, err)
	}
	return GetPlan(ctx, c, p.ID)
}

// GetPlan returns a stored plan, or db.ErrNotFound.
func GetPlan(ctx context.Context, c Conn, id string) (runplan.Plan, error) {
	row, err := queries(c).Plan(ctx, id)
	return planOf(row), db.MapError("plan "+id, err)
}

func planOf(row gen.Plan) runplan.Plan {
	return runplan.Plan{ID: row.ID, DisplayName: row.DisplayName, StartableBy: row.StartableBy, Steps: row.Steps}
}

// PlanSize is how long a stored plan is, in bytes.
type PlanSize = gen.PlanSizesRow

// ListPlanSizes returns the stored plans by their ids. customers leaves out those that only
// operators start.
func ListPlanSizes(ctx context.Context, c Conn, customers bool, after string, limit int) ([]PlanSize, error) {
	rows, err := queries(c).PlanSizes(ctx, gen.PlanSizesParams{After: after, Customers: customers, MaxRows: int32(limit)}) //nolint:gosec // at most 1001
	return rows, db.MapError("list plans", err)
}

// GetPlans returns stored plans, in no order.
func GetPlans(ctx context.Context, c Conn, ids []string) ([]runplan.Plan, error) {
	rows, err := queries(c).Plans(ctx, db.EmptyIfNil(ids))
	out := make([]runplan.Plan, 0, len(rows))
	for _, r := range rows {
		out = append(out, planOf(r))
	}
	return out, db.MapError("list plans", err)
}
