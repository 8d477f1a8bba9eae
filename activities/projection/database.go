package projection

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Database is the Store of production.
type Database struct{ Store *db.Store }

// NewDatabase makes a Database.
func NewDatabase(s *db.Store) *Database { return &Database{Store: s} }

// LoadJob implements Store.
func (d *Database) LoadJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return d.snapshot(ctx, in, d.Store.Job)
}

// TakeJob implements Store.
func (d *Database) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return d.snapshot(ctx, in, d.Store.TakeJob)
}

func (d *Database) snapshot(ctx context.Context, in contract.JobInput, read func(context.Context, string) (db.Job, error)) (contract.Snapshot, error) {
	job, err := read(ctx, in.JobID)
	if err != nil {
		return contract.Snapshot{}, final(err)
	}
	rows, err := d.Store.JobStages(ctx, in.JobID)
	if err != nil {
		return contract.Snapshot{}, final(err)
	}
	s := contract.Snapshot{
		Seq: job.Seq, Status: job.Status, Stage: job.Stage, Reached: job.ReachedPercent, Frozen: job.Frozen,
		Adopted: job.Adopted, Stages: rows, Checkpoint: job.Checkpoint, Input: job.Input,
	}
	if job.FailureClass != "" {
		s.Failure = &contract.Failure{Class: job.FailureClass, Stage: job.FailedStage, Message: job.Message}
	}
	return s, nil
}

// ProjectJob implements Store.
func (d *Database) ProjectJob(ctx context.Context, p contract.Projection) (contract.ProjectResult, error) {
	row := rowOf(p)
	var res contract.ProjectResult
	err := d.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if p.Allocation != nil { // an allocation is locked before its node
			if _, err := allocationdb.Lock(ctx, tx, p.Allocation.AllocationID); err != nil {
				return err
			}
		}
		var machine machinesdb.Machine
		var run machinesdb.Run
		if p.Run != nil { // a machine and its run are locked before their job
			if machine, run, err = machinesdb.LockForJob(ctx, tx, p.JobID); err != nil {
				return err
			}
		}
		var instance instancedb.Instance
		if p.Instance != nil { // an instance is locked before its job
			if instance, err = instancedb.Lock(ctx, tx, p.Instance.InstanceID); err != nil {
				return err
			}
		}
		if row.NodeMove, err = nodeMove(ctx, tx, p); err != nil {
			return err
		}
		unproven, err := verify(ctx, tx, p)
		if err != nil {
			return err
		}
		step := row // a transaction may run again
		step.Entries = nil
		res.Unproven = attribute(&step, p, unproven)
		now, err := tx.ProjectJob(ctx, step)
		if err != nil {
			return err
		}
		res.Applied = now.Applied || now.Repeated
		res.StoredSeq, res.Pass, res.Ended = now.Seq, now.Pass, now.Ended
		if now.Applied && p.Run != nil {
			return machinesdb.Project(ctx, tx, machine, run, stepOf(p))
		}
		if now.Applied && p.Allocation != nil {
			return moveAllocation(ctx, tx, p, contract.JobWorkflowID(p.Kind, p.JobID))
		}
		if now.Applied && p.Instance != nil {
			_, err = instancedb.Project(ctx, tx, instance, instanceStep(p))
			return err
		}
		return nil
	})
	return res, final(err)
}

// instanceStep returns what a projection says of the instance of its job.
func instanceStep(p contract.Projection) instancedb.JobStep {
	s := instancedb.JobStep{
		Creates: p.Kind == contract.KindInstanceCreate, Status: p.Status, Stage: p.Stage, Shown: p.Progress, Reached: p.Reached,
		Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: p.By, WorkflowID: contract.JobWorkflowID(p.Kind, p.JobID)},
	}
	for _, f := range []*contract.Failure{p.Failure, p.Instance.GaveUp} {
		if f != nil {
			s.Class, s.Stage, s.Message = f.Class, f.Stage, f.Message
		}
	}
	return s
}

// nodeMove drops a soft move that the node's present state has no edge for, or
// none that such a job may take: a quarantined node that is onboarded again is
// not moved to enrolling, and one that somebody else has put to use meanwhile
// does not keep a job from ending.
func nodeMove(ctx context.Context, tx *db.Tx, p contract.Projection) (*db.NodeMove, error) {
	if p.Node == nil || p.NodeID == "" {
		return nil, nil
	}
	node, err := tx.LockNode(ctx, p.NodeID)
	if err != nil {
		return nil, err
	}
	owner := p.Node.Owner
	if owner == "" {
		owner = lifecycle.Owner(p.Kind)
	}
	path := lifecycle.NodePath(node.Lifecycle, node.Status, p.Node.To, p.Node.Via, owner)
	if p.Node.Soft && (len(path) == 0 || path[0] == node.Status) {
		return nil, nil
	}
	move := &db.NodeMove{To: p.Node.To, Proof: p.Node.Proof, Comment: p.Node.Note, Owner: owner}
	if len(path) > 1 {
		move.Via = path[:len(path)-1]
	}
	return move, nil
}

// stepOf returns what a projection says of the run that its job carries out.
func stepOf(p contract.Projection) machinesdb.Step {
	s := machinesdb.Step{
		Status: p.Status, Current: p.Stage, Stages: p.Stages,
		Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: p.By, WorkflowID: contract.JobWorkflowID(p.Kind, p.JobID)},
	}
	if p.Failure != nil {
		s.Parked = p.Failure.Class
	}
	if f := p.Run.Failure; f != nil {
		s.Failed, s.Message = f.Class, fmt.Sprintf("step %s failed: %s", f.Stage, f.Message)
		s.Current = f.Stage
	}
	return s
}

func rowOf(p contract.Projection) db.Projection {
	row := db.Projection{
		JobID: p.JobID, Seq: p.Seq, RunID: p.RunID, Status: p.Status, Stage: p.Stage, StageOrdinal: p.StageOrdinal, Attempt: p.Attempt,
		WaitingOutside: p.WaitingOut, Frozen: p.Frozen, Adopted: p.Adopted, ProgressPercent: p.Progress, ReachedPercent: p.Reached,
		StageDeadline: p.StageDeadline, Observed: p.Observed, Stages: p.Stages, Checkpoint: p.Checkpoint, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: p.By},
		At: p.At, ActionType: p.ActionType, Metadata: p.Metadata, Fingerprint: p.Fingerprint(),
		Moves: p.Moves(),
	}
	if f := p.Failure; f != nil {
		info := lifecycle.Failure(f.Class)
		row.FailureClass, row.FailedStage, row.Message = f.Class, f.Stage, f.Message
		row.RecommendedAction, row.NextStep = info.Recommended, info.Next
		row.Actor.Comment = f.Message
		row.Actor.Metadata = map[string]any{"failure_class": string(f.Class), "stage": f.Stage}
	}
	return row
}

// final marks an error that a retry cannot fix, such as a missing row or a refused value.
func final(err error) error {
	if err == nil {
		return nil
	}
	if db.Permanent(err) {
		return fmt.Errorf("%w: %w", fault.ErrFinal, err)
	}
	return err
}
