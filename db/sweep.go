package db

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Clock is the database's time, by which rows are dated.
func (s statements) Clock(ctx context.Context) (time.Time, error) {
	now, err := s.q.Now(ctx)
	return now, MapError("read the clock", err)
}

// LiveJob is a job that has not ended, as the sweeper compares it with
// Temporal. StartOpen: its workflow is still to be started. StartedOrCreated:
// when its workflow was last started, or else when the job was accepted.
// Finding: what is open about it.
type LiveJob = gen.LiveJobsRow

// LiveJobs lists jobs that have not ended, by id, from the one after the id.
func (s statements) LiveJobs(ctx context.Context, after string, limit int) ([]LiveJob, error) {
	rows, err := s.q.LiveJobs(ctx, gen.LiveJobsParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list live jobs", err)
}

// JobOfWorkflow is the little that tells whether a workflow still has a job.
type JobOfWorkflow = gen.StatusOfJobsRow

// JobsOfWorkflows finds the jobs of workflows by id; those without are missing.
func (s statements) JobsOfWorkflows(ctx context.Context, workflowIDs []string) (map[string]JobOfWorkflow, error) {
	out := make(map[string]JobOfWorkflow, len(workflowIDs))
	for part := range slices.Chunk(workflowIDs, 1000) {
		rows, err := s.q.StatusOfJobs(ctx, part)
		if err != nil {
			return nil, MapError("find the jobs of workflows", err)
		}
		for _, r := range rows {
			out[r.WorkflowID] = r
		}
	}
	return out, nil
}

// ParkLost parks a job whose workflow is gone, as failed_retryable with class
// workflow_lost and the cause told in message, and raises its sequence number,
// so that what the lost run may still write comes too late. It does nothing
// and says so when the job is no longer as it was seen, is parked or has
// ended, or when a start is on its way. The message must hold no secret.
func (tx *Tx) ParkLost(ctx context.Context, seen LiveJob, message string, a Actor) (bool, error) {
	j, err := tx.LockJob(ctx, seen.ID)
	if err != nil {
		return false, err
	}
	moved := j.Seq != seen.Seq || j.RunID != seen.RunID || j.Status != seen.Status
	if moved || !j.Status.Live() || j.Status.Parked() {
		return false, nil
	}
	if open, err := tx.q.HasOpenStart(ctx, j.ID); err != nil || open {
		return false, MapError("look for a start of job "+j.ID, err)
	}
	info := lifecycle.Failure(lifecycle.FailWorkflowLost)
	t := lifecycle.JobPark
	message = ClipText(message, MaxMessage)
	if err := tx.q.LoseStage(ctx, gen.LoseStageParams{JobID: j.ID, Message: message, FailureClass: info.Class}); err != nil {
		return false, MapError("close the stage of job "+j.ID, err)
	}
	// Before the transition, so that its event tells the class.
	err = tx.q.LoseJob(ctx, gen.LoseJobParams{
		ID: j.ID, FailureClass: info.Class, Message: message, RecommendedAction: info.Recommended, NextStep: info.Next,
		ProgressPercent: lifecycle.ShownPercent(t.To, j.ReachedPercent),
	})
	if err != nil {
		return false, MapError("mark job "+j.ID+" as lost", err)
	}
	a.Owner, a.Comment, a.WorkflowID = lifecycle.OwnerSystem, message, j.WorkflowID
	a.Metadata = map[string]any{"failure_class": string(info.Class), "stage": j.Stage, "run_id": j.RunID}
	_, err = tx.TransitionJob(ctx, j.ID, t, nil, a)
	return err == nil, err
}

// ReleaseClaims gives back starts that are claimed for longer than any relay
// may claim them, and says how many.
func (s statements) ReleaseClaims(ctx context.Context, lease time.Duration) (int64, error) {
	n, err := s.q.ReleaseClaims(ctx, lease.Seconds())
	return n, MapError("release claims of starts", err)
}

// EnqueueMissingStarts asks for the workflow of every pending job that is
// older than age and that no start was ever written for, and returns the jobs.
func (s statements) EnqueueMissingStarts(ctx context.Context, age time.Duration, limit int) ([]string, error) {
	ids, err := s.q.EnqueueMissingStarts(ctx, gen.EnqueueMissingStartsParams{AgeSeconds: age.Seconds(), MaxRows: PageLimit(limit)})
	return ids, MapError("enqueue missing starts", err)
}

// OverdueStarts counts starts that have been due and unclaimed for age.
func (s statements) OverdueStarts(ctx context.Context, age time.Duration) (int64, error) {
	n, err := s.q.OverdueStarts(ctx, age.Seconds())
	return n, MapError("count overdue starts", err)
}

// WakeRelays has every relay look at the outbox now.
func (s statements) WakeRelays(ctx context.Context) error {
	return MapError("wake the relays", s.q.WakeRelays(ctx))
}

// SweepPass is how the sweeper's last pass went. FinishedAt is of the last one
// that looked at everything; of a database that was never swept, when it was
// made. Place is the job that the last questions to Temporal ended with.
type SweepPass = gen.SweepPassRow

// SweepPass reads it.
func (s statements) SweepPass(ctx context.Context) (SweepPass, error) {
	row, err := s.q.SweepPass(ctx)
	return row, MapError("read the sweeper's last pass", err)
}

// FinishSweep notes that a pass ended; problem says what kept it from looking
// at everything, "" when nothing did.
func (s statements) FinishSweep(ctx context.Context, problem string) error {
	return MapError("note the sweeper's pass", s.q.FinishSweep(ctx, ClipText(problem, MaxMessage)))
}

// PlaceSweep notes the job that the questions to Temporal ended with.
func (s statements) PlaceSweep(ctx context.Context, jobID string) error {
	return MapError("note the sweeper's place", s.q.PlaceSweep(ctx, jobID))
}

// pruneJobs bounds one statement that deletes jobs: each is looked for in every table that refers
// to it.
const pruneJobs = 100

// PruneJobs deletes jobs that ended before, with their stages and tries, a small batch at a time,
// and returns how many. Each call goes on where the one before ended. The newest job of each kind
// of a node or BMC stays, and so do jobs of a batch and jobs that a task or a start still names.
// Audit log, events and certificates stay.
func (s statements) PruneJobs(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneJobs(ctx, gen.PruneJobsParams{Before: before, MaxRows: pruneJobs})
	return n, MapError("prune jobs", err)
}
