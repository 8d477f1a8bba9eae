// Package sweep looks for what is stuck: jobs without a workflow, workflows
// without a job, starts that were never sent, jobs that do not move. It parks
// or repeats what it safely can and notes the rest for a person. Every pass
// reads the truth anew and may be repeated; before a row is written it is read
// again under its lock.
package sweep

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Engine is what is asked of Temporal; temporalx.Watch is one.
type Engine interface {
	OpenWorkflows(ctx context.Context, limit int) (open []temporalx.Open, all bool, err error)
	Look(ctx context.Context, workflowID string) (temporalx.Execution, error)
	Ending(ctx context.Context, workflowID, runID string) (string, error)
	TaskFailure(ctx context.Context, workflowID, runID string) (string, error)
	Cancel(ctx context.Context, workflowID, runID string) error
	Terminate(ctx context.Context, workflowID, runID, reason string) error
}

// Activities is what these activities need.
type Activities struct {
	Store  *db.Store
	Engine Engine
	Log    *slog.Logger
	// Lease is the longest that a relay claims a start for.
	Lease time.Duration
	// OfflineAfter is how long an active node may be silent.
	OfflineAfter time.Duration
	Keep         Keep
	// Pace is what is too young to be judged; zero is that of the default settings.
	Pace Pace
	// Ahead moves the clock, for tests; nil leaves it.
	Ahead func() time.Duration
}

// Pace is how long something must have stood still before it is judged: a row may be about to move.
type Pace struct {
	Settle time.Duration // the least age of a row, a run or a start that is judged
	Quiet  time.Duration // the least age of the last report of a job that looks well
	Again  time.Duration // between two looks at a workflow without a job, which the second one ends
}

// NewPace returns the pace of a sweeper that looks once in every. Two thirds of that tell the next
// look from the same one that is repeated.
func NewPace(every, settle, quiet time.Duration) Pace {
	return Pace{Settle: settle, Quiet: quiet, Again: every * 2 / 3}
}

func (a *Activities) pace() Pace {
	if a.Pace == (Pace{}) {
		return NewPace(15*time.Second, 15*time.Second, 30*time.Second)
	}
	return a.Pace
}

// clock is the database's time, which nearly all that is compared with it was
// dated by: a worker's own clock that is ahead would find every node silent.
func (a *Activities) clock(ctx context.Context) (time.Time, error) {
	now, err := a.Store.Clock(ctx)
	if a.Ahead != nil {
		now = now.Add(a.Ahead())
	}
	return now, fault.Internal(ctx, err)
}

// What bounds a pass, and how late something must be before it is reported.
const (
	grace       = time.Minute      // past a deadline, and of a first step
	untaken     = 45 * time.Second // a task that no worker took
	maxJobs     = 50_000
	maxOpen     = 50_000
	maxLooks    = 300 // questions about single workflows
	maxRotation = 50  // of them about jobs that look well
	maxOrphans  = 100
	lookers     = 8
	startsBatch = 100
	maxProblems = 5
)

// actor is who the audit log names.
var actor = db.Actor{Owner: lifecycle.OwnerSystem, ID: "sweeper"}

// StartsReport is what was done about starts.
type StartsReport struct {
	Released int64    `json:"released,omitempty"` // claims of relays that are dead
	Missing  []string `json:"missing,omitempty"`  // jobs whose start nobody had asked for
	Overdue  int64    `json:"overdue,omitempty"`
}

// SweepStarts gives back starts that a dead relay holds, asks for those that
// nobody asked for, and wakes the relays when any start is overdue.
func (a *Activities) SweepStarts(ctx context.Context) (StartsReport, error) {
	var r StartsReport
	var err error
	if r.Released, err = a.Store.ReleaseClaims(ctx, a.Lease); err != nil {
		return r, fault.Internal(ctx, err)
	}
	if r.Missing, err = a.Store.EnqueueMissingStarts(ctx, a.pace().Settle, startsBatch); err != nil {
		return r, fault.Internal(ctx, err)
	}
	if r.Overdue, err = a.Store.OverdueStarts(ctx, a.pace().Settle); err != nil {
		return r, fault.Internal(ctx, err)
	}
	if r.Released == 0 && len(r.Missing) == 0 && r.Overdue == 0 {
		return r, nil
	}
	a.Log.WarnContext(ctx, "sweeper: starts were not sent", "claims_released", r.Released, "starts_missing", r.Missing, "overdue", r.Overdue)
	return r, fault.Internal(ctx, a.Store.WakeRelays(ctx))
}

// JobsReport is what was found about jobs and workflows.
type JobsReport struct {
	Jobs      int      `json:"jobs"`
	Workflows int      `json:"workflows"`
	Asked     int      `json:"asked"`
	Lost      []string `json:"lost,omitempty"` // parked as workflow_lost
	Silent    int      `json:"silent,omitempty"`
	Gone      int      `json:"gone,omitempty"`
	Orphans   int      `json:"orphans,omitempty"`
	Ended     []string `json:"ended,omitempty"` // orphans that were asked or made to end
	// Problems say what could not be looked at.
	Problems []string `json:"problems,omitempty"`
}

// SweepJobs compares every live job with the workflows that run, both ways.
// Only lists that cannot be read fail it; what concerns one job is a problem
// in the report, and the next pass looks again.
func (a *Activities) SweepJobs(ctx context.Context) (JobsReport, error) {
	now, err := a.clock(ctx)
	if err != nil {
		return JobsReport{}, err
	}
	p := &pass{Activities: a, now: now}
	if err := p.read(ctx); err != nil {
		return p.report, fault.Internal(ctx, err)
	}
	p.each(ctx, p.candidates(), p.judge)
	if err := p.orphans(ctx); err != nil {
		return p.report, fault.Internal(ctx, err)
	}
	return p.report, fault.Internal(ctx, a.Store.PlaceSweep(ctx, p.place))
}

// Outcome is what the last activity of a pass is told.
type Outcome struct {
	Problem string `json:"problem,omitempty"` // what kept the pass from looking at everything
}

// SweepDone closes findings that tell nothing any more, notes the pass, and
// prunes a little.
func (a *Activities) SweepDone(ctx context.Context, in Outcome) error {
	if _, err := a.Store.CloseFindingsOfMovedJobs(ctx); err != nil {
		return fault.Internal(ctx, err)
	}
	now, err := a.clock(ctx)
	if err != nil {
		return err
	}
	if err := a.Store.FinishSweep(ctx, in.Problem); err != nil {
		return fault.Internal(ctx, err)
	}
	return fault.Internal(ctx, a.prune(ctx, now))
}

// pass is one comparison.
type pass struct {
	*Activities
	now  time.Time
	jobs []db.LiveJob
	open map[string]temporalx.Open // by workflow id
	// undelivered are the tasks that jobs wait for in vain, by job.
	undelivered map[string]db.UndeliveredTask
	// place is where the round through the jobs that look well goes on.
	place string

	mu     sync.Mutex // for the report
	report JobsReport
}

// read takes in both sides. Workflows first: a job that is accepted meanwhile
// has no workflow in the list and is too young to be judged.
func (p *pass) read(ctx context.Context) error {
	open, all, err := p.Engine.OpenWorkflows(ctx, maxOpen)
	if err != nil {
		return fault.New(lifecycle.FailInternal, "Temporal's list of workflows cannot be read: %v", err)
	}
	if !all {
		p.problem(fmt.Errorf("more than %d workflows run; the rest was not compared", maxOpen))
	}
	p.open = make(map[string]temporalx.Open, len(open))
	for _, o := range open {
		p.open[o.WorkflowID] = o
	}
	for after := ""; ; {
		rows, err := p.Store.LiveJobs(ctx, after, 1000)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		p.jobs = append(p.jobs, rows...)
		after = rows[len(rows)-1].ID
		if len(p.jobs) >= maxJobs {
			p.problem(fmt.Errorf("more than %d jobs are live; the rest was not compared", maxJobs))
			break
		}
	}
	tasks, err := p.Store.UndeliveredTasks(ctx, "", p.now)
	if err != nil {
		return err
	}
	p.undelivered = make(map[string]db.UndeliveredTask, len(tasks))
	for _, t := range tasks {
		p.undelivered[t.JobID] = t
	}
	last, err := p.Store.SweepPass(ctx)
	p.place = last.Place
	p.report.Jobs, p.report.Workflows = len(p.jobs), len(open)
	return err
}

// each does one thing about many jobs, a few at a time, until ctx ends.
func (p *pass) each(ctx context.Context, jobs []db.LiveJob, do func(context.Context, db.LiveJob) error) {
	var wg sync.WaitGroup
	next := make(chan db.LiveJob)
	for range min(lookers, len(jobs)) {
		wg.Go(func() {
			for j := range next {
				if err := do(ctx, j); err != nil {
					p.problem(fmt.Errorf("%s: %w", j.ID, err))
				}
			}
		})
	}
	for _, j := range jobs {
		if ctx.Err() != nil {
			p.problem(fmt.Errorf("the pass ran out of time before %s", j.ID))
			break
		}
		next <- j
	}
	close(next)
	wg.Wait()
	p.report.Asked += len(jobs)
}

// problem notes what could not be looked at; the log has all of them.
func (p *pass) problem(err error) {
	p.Log.Warn("sweeper: not everything could be looked at", "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.report.Problems) < maxProblems {
		p.report.Problems = append(p.report.Problems, err.Error())
	}
}

// note changes the report.
func (p *pass) note(f func(*JobsReport)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
}

// Problem is all problems in one line.
func (r JobsReport) Problem() string { return strings.Join(r.Problems, "; ") }
