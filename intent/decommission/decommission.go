// Package decommission accepts what takes a node out of service, cleans it or deploys it again: the
// job, the node's move and the plan that the operator has read.
package decommission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Request asks for a mode of decommission or of a node operation.
type Request struct {
	NodeID       string
	Mode         lifecycle.DecommissionMode
	GraceSeconds int
}

// Checked is a request that the node's state allows. Check makes it.
type Checked struct {
	Node     db.Node
	Input    contract.DecommissionInput
	Hardware *contract.HardwareFacts // of a migration that names it
}

// PlanInput is what a worker needs to make the plan of the request.
func (c Checked) PlanInput() contract.DecommissionPlanInput {
	return contract.DecommissionPlanInput{
		Job:     contract.JobInput{Kind: contract.DecommissionKind(c.Input.Mode), NodeID: c.Node.ID, SiteID: c.Node.SiteID},
		Request: &c.Input, Hardware: c.Hardware,
	}
}

// Check refuses a mode that the node's state or a live job does not allow, before anything outside
// is asked. Accept decides again.
func Check(ctx context.Context, store *db.Store, r Request) (Checked, error) {
	c := Checked{}
	var err error
	if c.Node, err = store.Node(ctx, r.NodeID); err != nil {
		return c, err
	}
	if err := startable(ctx, store, c.Node, r.Mode); err != nil {
		return c, err
	}
	c.Input, err = Input(ctx, store, c.Node, r.Mode, c.Node.Status)
	c.Input.GraceSeconds = r.GraceSeconds
	return c, err
}

func startable(ctx context.Context, store *db.Store, n db.Node, mode lifecycle.DecommissionMode) error {
	info, ok := lifecycle.DecommissionModeOf(mode)
	allowed := func() []string { return names(AllowedModes(n, false)) }
	switch {
	case !ok:
		return intent.InvalidIf([]intent.Field{{Name: "mode", Message: "is not a mode; docs/states/decommission.md lists them"}})
	case n.Lifecycle != info.Lifecycle && n.Lifecycle == lifecycle.NodeMAAS.Lifecycle:
		return &intent.Refusal{Kind: intent.ActionRefused, Advice: intent.Advice{Reason: intent.ReasonMAASNode}, Allowed: allowed(),
			Detail: fmt.Sprintf("%s is for nodes that boot from the network; node %s is provisioned by MAAS", mode, n.Hostname)}
	case n.Lifecycle != info.Lifecycle:
		return RefusePXE(n, string(mode))
	}
	live, err := store.LiveJobOfNode(ctx, n.ID)
	if err == nil {
		return &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID, Detail: fmt.Sprintf("job %s (%s) is %s and holds node %s; wait for it to end, or cancel it",
			live.ID, intent.JobLabel(live), live.Status, n.Hostname)}
	}
	if !errors.Is(err, db.ErrNotFound) {
		return err
	}
	if slices.Contains(info.From, n.Status) {
		return refuseRootTenant(ctx, store, n, mode)
	}
	return &intent.Refusal{Kind: intent.ActionRefused, Allowed: allowed(),
		Detail: fmt.Sprintf("node %s is %s, and %s is for a node that is %s", n.Hostname, n.Status, mode, lifecycle.OneOf(info.From))}
}

// refuseRootTenant refuses what goes by the word of a system on which a tenant was root: a mode
// that keeps that system, and a reimage, which is asked of its agent, while the tenant is there.
func refuseRootTenant(ctx context.Context, store *db.Store, n db.Node, mode lifecycle.DecommissionMode) error {
	if !mode.KeepsSystem() && mode != lifecycle.ModeReimage {
		return nil
	}
	unknown, listed, err := store.AwaitsDrift(ctx, n.ID)
	if err != nil {
		return err
	}
	if unknown && (mode.KeepsSystem() || !listed) {
		return &intent.Refusal{Kind: intent.Conflict, Existing: n.ID, Detail: fmt.Sprintf(
			"the database was restored from a backup, and nothing has said since that node %s is free; wait for the reconciler's next pass, which asks MAAS and the agent, or use full_decommission", n.Hostname)}
	}
	root, err := store.HoldsRootTenant(ctx, n.ID)
	switch {
	case err != nil || !root:
		return err
	case n.AllocationID != nil:
		return &intent.Refusal{Kind: intent.Conflict, Existing: n.ID, Detail: fmt.Sprintf(
			"the tenant of node %s is root there, so that its system is his and %s proves nothing; release allocation %s, which installs the node again, or use full_decommission",
			n.Hostname, mode, *n.AllocationID)}
	case mode == lifecycle.ModeReimage:
		return nil
	}
	return &intent.Refusal{Kind: intent.Conflict, Existing: n.ID, Detail: fmt.Sprintf(
		"a tenant who left node %s was root there, so that its system is his and %s proves nothing; use reimage or full_decommission", n.Hostname, mode)}
}

// RefusePXE refuses what only nodes that MAAS or an operator provisions know, and lists the states
// that may be set instead.
func RefusePXE(n db.Node, asked string) error {
	r := &intent.Refusal{Kind: intent.ActionRefused, Allowed: []string{}}
	r.Allowed = append(r.Allowed, lifecycle.NodePXE.ReachableBy(n.Status, lifecycle.OwnerAdmin)...)
	r.Detail = fmt.Sprintf("node %s has lifecycle %s, which knows no %s", n.Hostname, n.Lifecycle, asked)
	if len(r.Allowed) == 0 {
		r.Detail += fmt.Sprintf(", and it is %s for good", n.Status)
		return r
	}
	r.Advice = intent.Advice{Reason: intent.ReasonPXENode, NodeID: n.ID, Hostname: n.Hostname}
	r.Detail += "; set its state: deprovisioning erases and retires it, retired takes it out as it is; the states that may be set now are listed"
	return r
}

// AllowedModes lists the modes that a decommission of the node may be started with. busy says that
// a live job holds the node.
func AllowedModes(n db.Node, busy bool) []lifecycle.DecommissionMode {
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return []lifecycle.DecommissionMode{}
	}
	return lifecycle.AllowedDecommissions(n.Status, busy)
}

// BMCReader is a store or a transaction.
type BMCReader interface {
	BMCOfNode(ctx context.Context, nodeID string) (db.BMC, error)
}

// Input is a request as its job takes it. from is the node's state before the request.
func Input(ctx context.Context, read BMCReader, n db.Node, mode lifecycle.DecommissionMode, from lifecycle.NodeStatus) (contract.DecommissionInput, error) {
	in := contract.DecommissionInput{Mode: mode, NodeID: n.ID, Hostname: n.Hostname, From: from}
	if n.MAASSystemID != nil {
		in.SystemID = *n.MAASSystemID
	}
	b, err := read.BMCOfNode(ctx, n.ID)
	if err == nil {
		in.BMCID = b.ID
	}
	if errors.Is(err, db.ErrNotFound) {
		err = nil
	}
	return in, err
}

// Accept writes job, audit row, outbox row and the node's move. It decides again under the node's
// lock.
func Accept(ctx context.Context, tx *db.Tx, c Checked, plan contract.Plan, reason string, actor db.Actor) (db.Job, db.Node, error) {
	c.Input.PlanHash, c.Input.Reason = plan.Hash, reason
	job, n, err := Start(ctx, tx, "", c.Node, c.Input, actor)
	if errors.Is(err, db.ErrStale) {
		err = &intent.Refusal{Kind: intent.PlanStale, Detail: "the node was changed while its plan was made again; make the plan again and read it"}
	}
	if err == nil {
		err = checkDrives(ctx, tx, n.ID, plan)
	}
	if err != nil {
		return job, n, err
	}
	return job, n, tx.UseNodePlan(ctx, n.ID, plan.Hash, job.ID)
}

// Start creates the job of a request and moves the node. id is the job's; "" makes one.
func Start(ctx context.Context, tx *db.Tx, id string, n db.Node, in contract.DecommissionInput, actor db.Actor) (db.Job, db.Node, error) {
	row, err := newJob(in, actor)
	if err != nil {
		return db.Job{}, n, err
	}
	row.ID = id
	return tx.StartNodeJob(ctx, db.NodeJob{Mode: in.Mode, Node: n, Job: row})
}

// Adopt creates the job of a node that is draining or being removed and has none.
func Adopt(ctx context.Context, tx *db.Tx, n db.Node, in contract.DecommissionInput, actor db.Actor) (db.Job, error) {
	row, err := newJob(in, actor)
	if err != nil {
		return db.Job{}, err
	}
	return tx.AdoptNode(ctx, db.NodeJob{Mode: in.Mode, Node: n, Job: row})
}

func newJob(in contract.DecommissionInput, actor db.Actor) (db.NewJob, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return db.NewJob{}, fmt.Errorf("decommission input: %w", err)
	}
	actor.Comment = in.Reason
	actor.Metadata = map[string]any{"mode": string(in.Mode)}
	if in.PlanHash != "" {
		actor.Metadata["plan_hash"] = in.PlanHash
	}
	return db.NewJob{Kind: string(contract.DecommissionKind(in.Mode)), Input: raw, Actor: actor}, nil
}

// EndUnstarted takes a node back from a job that was cancelled before it began. It changes nothing
// where the job does not own the node's state.
func EndUnstarted(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
	var in contract.DecommissionInput
	if !lifecycle.OwnsNodeState(job.Kind) || job.NodeID == nil || json.Unmarshal(job.Input, &in) != nil {
		return nil
	}
	actor.WorkflowID = job.WorkflowID
	if actor.Comment == "" {
		actor.Comment = "job " + job.ID + " was cancelled before it began"
	}
	return tx.LeaveUnstarted(ctx, *job.NodeID, in.From, actor)
}

func names(modes []lifecycle.DecommissionMode) []string {
	out := make([]string, 0, len(modes))
	for _, m := range modes {
		out = append(out, string(m))
	}
	return out
}
