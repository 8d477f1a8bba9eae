package sweep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// maxEnded is how many workflows without a row may be ended. With more at once, the worker probably
// uses the wrong database or an old one, and an operator must decide.
const (
	maxEnded    = 10
	cancelLimit = 2 * time.Minute
)

// orphan is a running workflow without a live job.
type orphan struct {
	temporalx.Open
	job *db.JobOfWorkflow // nil: there is no row
}

// orphans opens a finding for each workflow without a live job, and ends those that it may end. It
// closes the findings of workflows that have ended.
func (p *pass) orphans(ctx context.Context) error {
	found, err := p.suspects(ctx)
	if err != nil {
		return err
	}
	rowless := 0
	for _, o := range found {
		if o.job == nil {
			rowless++
		}
	}
	still := map[string]bool{}
	for _, o := range found {
		still[o.WorkflowID] = true
		if err := p.orphan(ctx, o, rowless); err != nil {
			p.problem(fmt.Errorf("workflow %s: %w", o.WorkflowID, err))
		}
	}
	p.report.Orphans = len(found)
	open, err := p.Store.OpenFindings(ctx, db.FindingOrphan, 1000)
	if err != nil {
		return err
	}
	for _, f := range open {
		if _, listed := p.open[f.Subject]; still[f.Subject] || listed && len(found) == maxOrphans {
			continue
		}
		if _, err := p.Store.CloseFinding(ctx, db.FindingOrphan, f.Subject, "the workflow has ended, or has a job again"); err != nil {
			return err
		}
	}
	return nil
}

// suspects are the listed workflows that no live job names, oldest first.
func (p *pass) suspects(ctx context.Context) ([]orphan, error) {
	live := make(map[string]bool, len(p.jobs))
	for _, j := range p.jobs {
		live[j.WorkflowID] = true
	}
	var ids []string
	for id, o := range p.open {
		if !live[id] && p.now.Sub(o.Started) > p.pace().Settle {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := p.Store.JobsOfWorkflows(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out []orphan
	for _, id := range ids {
		row, there := rows[id]
		switch {
		case !there:
			out = append(out, orphan{p.open[id], nil})
		case row.Status.Live() || p.now.Sub(row.UpdatedAt) < p.pace().Quiet:
			// accepted since the jobs were read, or ended just now
		default:
			out = append(out, orphan{p.open[id], &row})
		}
	}
	slices.SortFunc(out, func(a, b orphan) int { return a.Started.Compare(b.Started) })
	return out[:min(len(out), maxOrphans)], nil
}

// orphan looks at one, notes it, and at the second look ends it.
func (p *pass) orphan(ctx context.Context, o orphan, rowless int) error {
	e, err := p.Engine.Look(ctx, o.WorkflowID)
	if err != nil {
		return err
	}
	if !e.Running {
		_, err := p.Store.CloseFinding(ctx, db.FindingOrphan, o.WorkflowID, "the workflow has ended")
		return err
	}
	in := db.Finding{Kind: db.FindingOrphan, Subject: o.WorkflowID, RunID: e.RunID, Message: "the workflow runs and there is no job for it; it will be ended"}
	if o.job != nil {
		in.JobID, in.Message = &o.job.ID, fmt.Sprintf("the workflow runs although its job is %s; it will be asked to end", o.job.Status)
	} else if rowless > maxEnded {
		in.Message = fmt.Sprintf("the workflow runs and there is no job for it; so do %d others, therefore none is ended: "+
			"the worker may speak with the wrong database, or with one restored from a backup", rowless-1)
	}
	f, opened, err := p.Store.SeeFinding(ctx, in)
	if err != nil {
		return err
	}
	if opened {
		p.Log.WarnContext(ctx, "sweeper: workflow without a live job", "workflow", o.WorkflowID, "why", in.Message)
		return nil // nothing is ended at the first look
	}
	if p.now.Sub(f.OpenedAt) < p.pace().Again || o.job == nil && rowless > maxEnded {
		return nil
	}
	return p.end(ctx, o, f)
}

// end asks a workflow whose job has ended to end as well, and after a while
// makes it; one that never had a job has nothing to clean up that anybody
// knows of, and is made to end at once.
func (p *pass) end(ctx context.Context, o orphan, f db.Finding) error {
	var did string
	var do func() error
	switch {
	case o.job == nil:
		did = "terminated: no job has this workflow"
		do = func() error {
			return p.Engine.Terminate(ctx, o.WorkflowID, f.RunID, "sweeper: no job has this workflow")
		}
	case f.ActedAt == nil:
		did = "cancelled: its job is " + string(o.job.Status)
		do = func() error { return p.Engine.Cancel(ctx, o.WorkflowID, f.RunID) }
	case p.now.Sub(*f.ActedAt) > cancelLimit:
		did = "terminated: its job is " + string(o.job.Status) + " and it did not end when it was cancelled"
		do = func() error { return p.Engine.Terminate(ctx, o.WorkflowID, f.RunID, "sweeper: "+did) }
	default:
		return nil
	}
	// Intent first: whoever finds the workflow ended finds out by whom.
	if err := p.audit(ctx, o, did); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	p.Log.WarnContext(ctx, "sweeper: workflow ended", "workflow", o.WorkflowID, "how", did)
	p.note(func(r *JobsReport) { r.Ended = append(r.Ended, o.WorkflowID) })
	if o.job != nil && f.ActedAt == nil {
		return p.Store.ActOnFinding(ctx, f.ID, "the workflow ran although its job is "+string(o.job.Status)+"; it was asked to end")
	}
	_, err := p.Store.CloseFinding(ctx, db.FindingOrphan, o.WorkflowID, did)
	return err
}

func (p *pass) audit(ctx context.Context, o orphan, did string) error {
	a := actor
	a.Owner, a.Comment, a.WorkflowID = lifecycle.OwnerSystem, did, o.WorkflowID
	e := db.Entry{ResourceKind: "workflow", ResourceID: o.WorkflowID, Kind: db.EntryAction, Name: "end_orphan", Actor: a}
	if o.job != nil {
		e.ResourceKind, e.ResourceID, e.NodeID = "job", o.job.ID, o.job.NodeID
	}
	return p.Store.AppendAudit(ctx, e)
}
