package sweep

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// candidates are the jobs whose workflow is asked about: first those without
// one in the list, then those that are late or were found silent, then in turn
// some of those that look well, so that each is looked at every few passes and
// a workflow that fails over and over shows long before its stage's deadline.
func (p *pass) candidates() []db.LiveJob {
	var absent, late, well []db.LiveJob
	for _, j := range p.jobs {
		if j.StartOpen || p.young(j) {
			continue // its workflow is about to start, or it has just moved
		}
		_, running := p.open[j.WorkflowID]
		switch {
		case !running && (!j.Status.Parked() || j.Finding != db.FindingGone):
			absent = append(absent, j)
		case running && j.Status.Parked() && j.Finding == db.FindingGone:
			late = append(late, j)
		case j.Status.Parked():
		case j.Finding == db.FindingSilent || p.overdue(j) || p.unbegun(j) || p.undelivered[j.ID].ID != "":
			late = append(late, j)
		case p.now.Sub(j.UpdatedAt) > p.pace().Quiet:
			well = append(well, j)
		}
	}
	out := append(absent, late...)
	out = out[:min(len(out), maxLooks-maxRotation)]
	return append(out, p.turn(well)...)
}

// turn takes the next few after the place of the pass before.
func (p *pass) turn(well []db.LiveJob) []db.LiveJob {
	from := 0
	for from < len(well) && well[from].ID <= p.place {
		from++
	}
	if from == len(well) {
		from = 0
	}
	out := well[from:min(from+maxRotation, len(well))]
	p.place = ""
	if len(out) > 0 {
		p.place = out[len(out)-1].ID
	}
	return out
}

func (p *pass) young(j db.LiveJob) bool {
	return p.now.Sub(j.UpdatedAt) < p.pace().Settle || p.now.Sub(j.StartedOrCreated) < p.pace().Settle
}

func (p *pass) overdue(j db.LiveJob) bool {
	return j.StageDeadlineAt != nil && p.now.Sub(*j.StageDeadlineAt) > grace
}

// unbegun returns whether the job's workflow was started long ago and has not written its first
// step.
func (p *pass) unbegun(j db.LiveJob) bool {
	return j.Status == lifecycle.JobPending && p.now.Sub(j.StartedOrCreated) > grace
}

// checkWorkflow compares one job with its workflow. It parks the job, or opens or closes a finding.
func (p *pass) checkWorkflow(ctx context.Context, j db.LiveJob) error {
	e, err := p.Engine.Look(ctx, j.WorkflowID)
	if err != nil {
		return err
	}
	switch {
	case !e.Running && j.Status.Parked():
		return p.gone(ctx, j, e)
	case !e.Running:
		return p.lost(ctx, j, e)
	case j.Status.Parked():
		_, err := p.Store.CloseFinding(ctx, db.FindingGone, j.ID, "the workflow runs again")
		return err
	}
	words, taskFails := p.trouble(j, e)
	if words == "" {
		if j.Finding == db.FindingSilent {
			_, err = p.Store.CloseFinding(ctx, db.FindingSilent, j.ID, "the workflow goes on")
		}
		return err
	}
	if taskFails {
		why, err := p.Engine.TaskFailure(ctx, j.WorkflowID, e.RunID)
		if err != nil {
			return err
		}
		if why != "" {
			words += ": " + why
		}
	}
	return p.silent(ctx, j, e, words)
}

// lost parks a job without a running workflow.
func (p *pass) lost(ctx context.Context, j db.LiveJob, e temporalx.Execution) error {
	if e.Found && p.now.Sub(e.Closed) < p.pace().Settle {
		return nil // its last projection may still be in flight
	}
	cause, err := p.ending(ctx, j, e)
	if err != nil {
		return err
	}
	parked, ended := false, false
	err = p.Store.Tx(ctx, func(tx *db.Tx) error {
		parked, ended, err = p.parkLost(ctx, tx, j, cause)
		return err
	})
	if err != nil || !parked {
		return err
	}
	p.Log.WarnContext(ctx, "sweeper: job parked, its workflow is lost", "job", j.ID, "stage", j.Stage, "cause", cause)
	p.note(func(r *JobsReport) { r.Lost = append(r.Lost, j.ID) })
	if ended {
		return nil // no action is needed
	}
	return p.gone(ctx, j, e)
}

// gone opens a finding: a parked job has no workflow that could take an action.
func (p *pass) gone(ctx context.Context, j db.LiveJob, e temporalx.Execution) error {
	cause, err := p.ending(ctx, j, e)
	if err != nil {
		return err
	}
	_, _, err = p.Store.SeeFinding(ctx, db.Finding{Kind: db.FindingGone, Subject: j.ID, JobID: &j.ID, RunID: e.RunID, Message: cause})
	p.note(func(r *JobsReport) { r.Gone++ })
	return err
}

// ending returns how a workflow ended.
func (p *pass) ending(ctx context.Context, j db.LiveJob, e temporalx.Execution) (string, error) {
	if !e.Found {
		return "the workflow is not there: Temporal has lost it, or never had it", nil
	}
	words, err := p.Engine.Ending(ctx, j.WorkflowID, e.RunID)
	if words == "" {
		words = "has ended (" + e.Status + ") and its history is not there any more"
	}
	return fmt.Sprintf("the workflow %s at %s", words, e.Closed.UTC().Format(timeFormat)), err
}

// silent opens a finding for a job whose workflow runs and does not continue. It never ends the
// workflow: the cause is mostly a worker or a build, and when that is fixed such jobs continue.
func (p *pass) silent(ctx context.Context, j db.LiveJob, e temporalx.Execution, words string) error {
	_, opened, err := p.Store.SeeFinding(ctx, db.Finding{Kind: db.FindingSilent, Subject: j.ID, JobID: &j.ID, RunID: e.RunID, Message: words})
	if err == nil && opened {
		p.Log.WarnContext(ctx, "sweeper: job does not move", "job", j.ID, "stage", j.Stage, "why", words)
	}
	p.note(func(r *JobsReport) { r.Silent++ })
	return err
}
