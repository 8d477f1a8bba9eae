package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NodeJob is an accepted decommission or node operation.
type NodeJob struct {
	Mode lifecycle.DecommissionMode
	// Node is the node as the request was checked on; StartNodeJob refuses when it
	// is another machine or in another state by then.
	Node Node
	// Job is the job as it is to be created; its node and site are Node's.
	Job NewJob
}

// StartNodeJob creates the job and moves the node where the mode's request does
// so, in this transaction: a node never enters draining or removing without the
// job that owns it. Another live job gives
// *ConflictError with its id, a state that the mode is not started in
// *lifecycle.IllegalTransitionError, a node that changed meanwhile ErrStale.
func (tx *Tx) StartNodeJob(ctx context.Context, in NodeJob) (Job, Node, error) {
	mode, ok := lifecycle.DecommissionModeOf(in.Mode)
	if !ok {
		return Job{}, Node{}, fmt.Errorf("mode %q: %w", in.Mode, ErrInvalid)
	}
	n, err := tx.LockNode(ctx, in.Node.ID)
	if err != nil {
		return Job{}, Node{}, err
	}
	if live, err := tx.LiveJobOfNode(ctx, n.ID); err == nil {
		return Job{}, Node{}, conflictWith("jobs_one_live_per_node", live.ID)
	} else if !errors.Is(err, ErrNotFound) {
		return Job{}, Node{}, err
	}
	move, moves, ok := mode.Entry(n.Status)
	if !ok || n.Lifecycle != mode.Lifecycle {
		return Job{}, Node{}, notStartedIn(mode, n)
	}
	if !sameSubject(n, in.Node) {
		return Job{}, Node{}, fmt.Errorf("node %s: %w", n.ID, ErrStale)
	}
	in.Job.NodeID, in.Job.SiteID, in.Job.ProfileID = &n.ID, optional(n.SiteID), n.ProfileID
	job, err := tx.CreateJob(ctx, in.Job)
	if err != nil {
		return job, n, err
	}
	if mode.Lifecycle == lifecycle.NodePXE.Lifecycle {
		// The hardware planned for an earlier job counts for that job only.
		if err := tx.q.PlanHardware(ctx, gen.PlanHardwareParams{NodeID: n.ID}); err != nil {
			return job, n, MapError("planned hardware of node "+n.ID, err)
		}
	}
	if err := tx.FreezeDrives(ctx, n.ID); err != nil || !moves {
		return job, n, err
	}
	a := in.Job.Actor
	a.WorkflowID = job.WorkflowID
	n, err = tx.moveNode(ctx, n, move, only(lifecycle.Proof{lifecycle.NeedOwningJob}, move.Needs), a)
	return job, n, err
}

func notStartedIn(mode lifecycle.DecommissionModeInfo, n Node) error {
	m, _ := lifecycle.NodeMachine(n.Lifecycle)
	return &lifecycle.IllegalTransitionError{
		Resource: "node", From: string(n.Status), To: string(mode.Ends),
		Reason:  fmt.Sprintf("%s is for a node of lifecycle %s that is %s", mode.Mode, mode.Lifecycle, lifecycle.OneOf(mode.From)),
		Allowed: m.Reachable(n.Status),
	}
}

// sameSubject reports whether what decides a plan, and is a fact of the node's
// own row, is still as it was.
func sameSubject(a, b Node) bool {
	same := func(x, y *string) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }
	return a.Status == b.Status && (a.TenantLeftAt == nil) == (b.TenantLeftAt == nil) && same(a.MAASSystemID, b.MAASSystemID) && same(a.AllocationID, b.AllocationID) && same(a.ProfileID, b.ProfileID)
}

// AdoptNode creates the job that owns a node which is draining or being removed
// and has none, so that resume always has something to resume. It is nobody's
// move: the state stays. Another live job gives *ConflictError.
func (tx *Tx) AdoptNode(ctx context.Context, in NodeJob) (Job, error) {
	n, err := tx.LockNode(ctx, in.Node.ID)
	if err != nil {
		return Job{}, err
	}
	if _, _, between := lifecycle.ResumeOf(n.Status); !between || n.Status != in.Node.Status {
		return Job{}, fmt.Errorf("node %s: %w", n.ID, ErrStale)
	}
	in.Job.NodeID, in.Job.SiteID, in.Job.ProfileID = &n.ID, &n.SiteID, n.ProfileID
	return tx.CreateJob(ctx, in.Job)
}

// LeaveUnstarted takes a node back from a job that ends before it began: out of
// draining to offline, and on to quarantine where it came from there; out of
// removing to retired. from is the node's state when the job was accepted. A
// node that is in neither stays as it is.
func (tx *Tx) LeaveUnstarted(ctx context.Context, nodeID string, from lifecycle.NodeStatus, a Actor) error {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return err
	}
	var way []lifecycle.Transition[lifecycle.NodeStatus]
	switch n.Status {
	case lifecycle.NodeDraining:
		way = append(way, lifecycle.NodeDrainFallback)
		if from == lifecycle.NodeQuarantined {
			way = append(way, lifecycle.NodeQuarantine)
		}
	case lifecycle.NodeRemoving:
		way = append(way, lifecycle.NodeRemoveRollback)
	default:
		return nil
	}
	for _, t := range way {
		if n, err = tx.moveNode(ctx, n, t, nil, a); err != nil {
			return err
		}
	}
	return nil
}

// NodePlan is a plan of a decommission that was shown to somebody.
type NodePlan = gen.NodePlan

// KeepNodePlan keeps a plan, so that a start with its hash can later be told
// what changed; those of the node that are older than a day, and that no job
// was started with, are dropped. Repeatable.
func (s statements) KeepNodePlan(ctx context.Context, p NodePlan) error {
	what := "plan of node " + p.NodeID
	if err := s.q.DropNodePlans(ctx, p.NodeID); err != nil {
		return MapError(what, err)
	}
	return MapError(what, s.q.KeepNodePlan(ctx, gen.KeepNodePlanParams{NodeID: p.NodeID, Hash: p.Hash, Mode: p.Mode, Plan: CleanJSON(p.Plan)}))
}

// NodePlan reads a plan that was kept, or ErrNotFound.
func (s statements) NodePlan(ctx context.Context, nodeID, hash string) (NodePlan, error) {
	p, err := s.q.NodePlan(ctx, gen.NodePlanParams{NodeID: nodeID, Hash: hash})
	return p, MapError("plan of node "+nodeID, err)
}

// UseNodePlan notes the job that was started with a plan, which is kept from
// then on.
func (tx *Tx) UseNodePlan(ctx context.Context, nodeID, hash, jobID string) error {
	n, err := tx.q.UseNodePlan(ctx, gen.UseNodePlanParams{NodeID: nodeID, Hash: hash, JobID: &jobID})
	return CheckRepeatable("plan of node "+nodeID, n, err, func() error {
		_, err := tx.NodePlan(ctx, nodeID, hash)
		return err
	})
}
