package projection

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/lifecycle"
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
		moves, err := subject.Lock(ctx, tx, p) // before the job
		if err != nil {
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
		if !now.Applied {
			return nil
		}
		if err := moves.Apply(ctx, tx); err != nil {
			return err
		}
		return auditCancels(ctx, tx, p, unproven)
	})
	return res, final(err)
}

func rowOf(p contract.Projection) db.Projection {
	row := db.Projection{
		JobID: p.JobID, Seq: p.Seq, RunID: p.RunID, Status: p.Status, Stage: p.Stage, StageOrdinal: p.StageOrdinal, Attempt: p.Attempt,
		WaitingOutside: p.WaitingOut, Frozen: p.Frozen, Adopted: p.Adopted, ProgressPercent: p.Progress, ReachedPercent: p.Reached,
		StageDeadline: p.StageDeadline, Observed: p.Observed, Stages: p.Stages, Checkpoint: p.Checkpoint, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: p.By},
		At: p.At, ActionType: p.ActionType, Metadata: p.Metadata, Did: p.Did, Fingerprint: p.Fingerprint(),
		MovesOnce: p.MovesOnce(),
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
