// Package sweep finds what is stuck: jobs without a workflow, workflows without a job, starts that
// were never sent, and jobs that do not move. It parks or repeats what it safely can, and reports
// the rest to operators. Every pass reads the current state and may be repeated. Before it writes a
// row it reads that row again under its lock.
package sweep

import (
	"context"
	"errors"
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

// Engine is what the sweeper needs of Temporal; temporalx.Watch is one.
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
	// Lease is the longest time for which a relay claims a start.
	Lease time.Duration
	// OfflineAfter is how long an active node may be silent.
	OfflineAfter time.Duration
	Keep         Keep
	// Pace has the least ages of what the sweeper checks; zero is that of the default settings.
	Pace Pace
	// Ahead moves the clock, for tests; nil leaves it.
	Ahead func() time.Duration
}

// Pace has the least ages of what the sweeper checks, since a younger row may be about to change.
type Pace struct {
	Settle time.Duration // the least age of a row, a run or a start
	Quiet  time.Duration // the least age of the last projection of a job without trouble
	Again  time.Duration // between two checks of a workflow without a job; the second one ends it
}

// NewPace returns the pace of a sweeper that runs a pass in each interval. Two thirds of the
// interval distinguish the next pass from a repetition of the same one.
func NewPace(every, settle, quiet time.Duration) Pace {
	return Pace{Settle: settle, Quiet: quiet, Again: every * 2 / 3}
}

func (a *Activities) pace() Pace {
	if a.Pace == (Pace{}) {
		return NewPace(15*time.Second, 15*time.Second, 30*time.Second)
	}
	return a.Pace
}

// clock returns the database's time, by which nearly all rows are dated. With a worker's own clock
// that is ahead every node would seem silent.
func (a *Activities) clock(ctx context.Context) (time.Time, error) {
	now, err := a.Store.Clock(ctx)
	if a.Ahead != nil {
		now = now.Add(a.Ahead())
	}
	return now, fault.Internal(ctx, err)
}

// The limits of a pass, and how late something must be before it is reported.
const (
	grace       = time.Minute      // past a deadline, and of a first step
	untaken     = 45 * time.Second // a task that no worker took
	maxJobs     = 50_000
	maxOpen     = 50_000
	maxLooks    = 300 // requests about single workflows
	maxRotation = 50  // of them for jobs without trouble
	maxOrphans  = 100
	lookers     = 8
	startsBatch = 100
	maxProblems = 5
)

// actor is the actor in the audit log.
var actor = db.Actor{Owner: lifecycle.OwnerSystem, ID: "sweeper"}

// StartsReport counts the starts that the pass repaired.
type StartsReport struct {
	Released int64    `json:"released,omitempty"` // claims of relays that are dead
	Missing  []string `json:"missing,omitempty"`  // jobs without a start in the outbox
	Overdue  int64    `json:"overdue,omitempty"`
	// Expired and Continued are the allocations that were released because their expiry is past,
	// and those that lacked a job.
	Expired   int      `json:"expired,omitempty"`
	Continued []string `json:"continued,omitempty"`
	// KeyJobs are the allocations whose changed keys a job brings to their nodes.
	KeyJobs []string `json:"key_jobs,omitempty"`
	// Machines counts those that were brought up to their nodes.
	Machines int `json:"machines,omitempty"`
}

// SweepStarts repairs the starts of jobs. Then it moves the allocations that are due or lack a job:
// their jobs are started with the next pass when a relay misses them. At last it brings machines up
// to their nodes.
func (a *Activities) SweepStarts(ctx context.Context) (StartsReport, error) {
	r, err := a.sweepStarts(ctx)
	if err != nil {
		return r, err
	}
	if err := a.sweepAllocations(ctx, &r); err != nil {
		return r, fault.Internal(ctx, fmt.Errorf("not every allocation was moved on: %w", err))
	}
	if err := a.sweepMachines(ctx, &r); err != nil {
		return r, fault.Internal(ctx, fmt.Errorf("not every machine follows its node: %w", err))
	}
	return r, nil
}

// sweepStarts releases the starts that a dead relay has claimed, and adds the starts that are
// missing in the outbox. It wakes the relays when a start is overdue.
func (a *Activities) sweepStarts(ctx context.Context) (StartsReport, error) {
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

// JobsReport is the result of comparing jobs with workflows.
type JobsReport struct {
	Jobs      int      `json:"jobs"`
	Workflows int      `json:"workflows"`
	Asked     int      `json:"asked"`
	Lost      []string `json:"lost,omitempty"` // parked as workflow_lost
	Silent    int      `json:"silent,omitempty"`
	Gone      int      `json:"gone,omitempty"`
	Orphans   int      `json:"orphans,omitempty"`
	Ended     []string `json:"ended,omitempty"` // orphans that were cancelled or terminated
	// Problems say what could not be checked.
	Problems []string `json:"problems,omitempty"`
}

// SweepJobs compares live jobs with running workflows, both ways. It returns an error only when a
// list cannot be read. An error about one job is a problem in the report, and the next pass checks
// the job again.
func (a *Activities) SweepJobs(ctx context.Context) (JobsReport, error) {
	now, err := a.clock(ctx)
	if err != nil {
		return JobsReport{}, err
	}
	p := &pass{Activities: a, now: now}
	if err := p.read(ctx); err != nil {
		return p.report, fault.Internal(ctx, err)
	}
	p.each(ctx, p.candidates(), p.checkWorkflow)
	if err := p.orphans(ctx); err != nil {
		return p.report, fault.Internal(ctx, err)
	}
	return p.report, fault.Internal(ctx, a.Store.PlaceSweep(ctx, p.place))
}

// Outcome is the input of the last activity of a pass.
type Outcome struct {
	Problem string `json:"problem,omitempty"` // why the pass could not check everything
}

// SweepDone closes findings of jobs that have moved, prunes one batch of old rows of each kind, and
// records the pass with what it could not do.
func (a *Activities) SweepDone(ctx context.Context, in Outcome) error {
	if _, err := a.Store.CloseFindingsOfMovedJobs(ctx); err != nil {
		return fault.Internal(ctx, err)
	}
	now, err := a.clock(ctx)
	if err != nil {
		return err
	}
	pruned, problem := a.prune(ctx, now), in.Problem
	if pruned != nil {
		problem = strings.TrimSpace(problem + " " + strings.ReplaceAll(pruned.Error(), "\n", "; "))
	}
	return fault.Internal(ctx, errors.Join(pruned, a.Store.FinishSweep(ctx, problem)))
}

// pass is the state of one comparison.
type pass struct {
	*Activities
	now  time.Time
	jobs []db.LiveJob
	open map[string]temporalx.Open // by workflow id
	// undelivered has the undelivered tasks that jobs wait for, by job.
	undelivered map[string]db.UndeliveredTask
	// place is where the next round through the jobs without trouble starts.
	place string

	mu     sync.Mutex // for the report
	report JobsReport
}

// read reads both sides. It reads workflows first: a job that is accepted meanwhile has no workflow
// in the list, and is too young to be checked.
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

// each calls do for each job, a few at a time, until ctx ends.
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

// problem logs an error and adds it to the report, which has the first few only.
func (p *pass) problem(err error) {
	p.Log.Warn("sweeper: not everything could be looked at", "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.report.Problems) < maxProblems {
		p.report.Problems = append(p.report.Problems, err.Error())
	}
}

// note changes the report under its lock.
func (p *pass) note(f func(*JobsReport)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
}

// Problem returns all problems in one line.
func (r JobsReport) Problem() string { return strings.Join(r.Problems, "; ") }
