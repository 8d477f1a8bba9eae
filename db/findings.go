package db

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// The kinds of finding: what the sweeper sees and no row tells.
const (
	FindingSilent = "workflow_silent" // a job at work whose workflow runs and does not go on
	FindingGone   = "workflow_gone"   // a parked job without a workflow
	FindingOrphan = "workflow_orphan" // a workflow without a live job
)

// Finding is opened once, kept up to date while it lasts, and closed. Subject
// is the job, of an orphan the workflow id.
type Finding = gen.SweepFinding

// SeeFinding opens the finding of f's kind and subject, or updates the open one
// with f's run, job and message. opened tells which.
func (s statements) SeeFinding(ctx context.Context, f Finding) (seen Finding, opened bool, err error) {
	r, err := s.q.SeeFinding(ctx, gen.SeeFindingParams{
		ID: NewID("find"), Kind: f.Kind, Subject: f.Subject, JobID: f.JobID, RunID: f.RunID, Message: ClipText(f.Message, MaxMessage),
	})
	if err != nil {
		return Finding{}, false, MapError("finding "+f.Kind+" of "+f.Subject, err)
	}
	return Finding{
		ID: r.ID, Kind: r.Kind, Subject: r.Subject, JobID: r.JobID, RunID: r.RunID, Message: r.Message, ActedAt: r.ActedAt,
		OpenedAt: r.OpenedAt, SeenAt: r.SeenAt, ClosedAt: r.ClosedAt, Outcome: r.Outcome,
	}, r.Opened, nil
}

// ActOnFinding notes that something was done about an open finding.
func (s statements) ActOnFinding(ctx context.Context, id, message string) error {
	return MapError("finding "+id, s.q.ActOnFinding(ctx, gen.ActOnFindingParams{ID: id, Message: ClipText(message, MaxMessage)}))
}

// CloseFinding closes the open finding of a kind and subject, if there is one.
func (s statements) CloseFinding(ctx context.Context, kind, subject, outcome string) (bool, error) {
	n, err := s.q.CloseFinding(ctx, gen.CloseFindingParams{Kind: kind, Subject: subject, Outcome: ClipText(outcome, MaxMessage)})
	return n > 0, MapError("close finding "+kind+" of "+subject, err)
}

// CloseFindingsOfMovedJobs closes those about jobs that went on since.
func (s statements) CloseFindingsOfMovedJobs(ctx context.Context) (int64, error) {
	n, err := s.q.CloseFindingsOfMovedJobs(ctx)
	return n, MapError("close findings of jobs that moved", err)
}

// OpenFindings lists the open findings of a kind, oldest first.
func (s statements) OpenFindings(ctx context.Context, kind string, limit int) ([]Finding, error) {
	rows, err := s.q.OpenFindings(ctx, gen.OpenFindingsParams{Kind: kind, MaxRows: PageLimit(limit)})
	return rows, MapError("list findings", err)
}

// PruneFindings deletes findings that were closed before, a batch at a time,
// and says how many.
func (s statements) PruneFindings(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneFindings(ctx, gen.PruneFindingsParams{Before: before, MaxRows: PruneBatch})
	return n, MapError("prune findings", err)
}
