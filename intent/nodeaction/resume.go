package nodeaction

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Resumption is what Resume found and did.
type Resumption struct {
	Node db.Node
	// Created is the result where no job owned the node and one was created; the rest is empty
	// then.
	Created    *Result
	Job        db.Job      // the job that owns the node
	Task       db.NodeTask // the task that the job waits for
	TaskEffect db.Resumed
}

// Resume makes sure that a node which is draining or being removed has an owner that goes on. The
// task that its job waits for is queued again where it is stale. Where no job owns the node, Resume
// creates one. The caller then has the job's workflow go on. Repeating it changes nothing more.
func Resume(ctx context.Context, tx *db.Tx, r Request, actor db.Actor) (Resumption, error) {
	d, err := decide(ctx, tx, r)
	if err != nil {
		return Resumption{}, err
	}
	actor.Comment = r.Reason
	out := Resumption{Node: d.node}
	if d.live == nil {
		out.Created, err = d.adopt(ctx, tx, actor)
		return out, err
	}
	if !lifecycle.OwnsNodeState(d.live.Kind) {
		return out, &intent.Refusal{Kind: intent.LiveJob, Existing: d.live.ID, Detail: fmt.Sprintf(
			"job %s (%s) holds node %s and does not own its state; wait for it to end, or cancel it, then resume",
			d.live.ID, intent.JobLabel(*d.live), d.node.Hostname)}
	}
	out.Job = *d.live
	_, kind, _ := lifecycle.ResumeOf(d.node.Status)
	if out.Task, out.TaskEffect, err = tx.ResumeTaskOfJob(ctx, out.Job, kind, actor); err != nil {
		return out, err
	}
	actor.Metadata = map[string]any{"job_id": out.Job.ID, "task_id": out.Task.ID, "task": string(out.TaskEffect)}
	return out, tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "node", ResourceID: d.node.ID, NodeID: &d.node.ID, Kind: db.EntryAction, Name: string(r.Action.Action), Actor: actor,
	})
}

// Result describes a resumption. resumed says that the job's workflow was set going again.
func (r Resumption) Result(resumed bool) Result {
	out := Result{Effect: EffectNoop, Node: r.Node, JobID: r.Job.ID, Message: fmt.Sprintf("job %s is at work", r.Job.ID)}
	if resumed {
		out.Effect, out.Message = EffectResumed, fmt.Sprintf("job %s goes on", r.Job.ID)
	}
	if r.TaskEffect != db.ResumedNothing {
		out.Effect = EffectResumed
		out.Message += fmt.Sprintf("; its task %s was asked for again", r.Task.Kind)
	}
	return out
}

// adopt creates the smallest job that leads to where the node was going. The rest of a lost
// decommission is planned again when the node has come to rest.
func (d decision) adopt(ctx context.Context, tx *db.Tx, actor db.Actor) (*Result, error) {
	from, err := tx.CameFrom(ctx, d.node.ID)
	if err != nil {
		return nil, err
	}
	mode, _, _ := lifecycle.ResumeOf(d.node.Status)
	in, err := decommission.Input(ctx, tx, d.node, mode, from)
	if err != nil {
		return nil, err
	}
	in.Reason, in.GraceSeconds = d.Reason, d.GraceSeconds
	job, err := decommission.Adopt(ctx, tx, d.node, in, actor)
	if err != nil {
		return nil, err
	}
	return &Result{Effect: EffectStarted, Node: d.node, JobID: job.ID, Message: fmt.Sprintf("no job owned the node; job %s (%s) was created for it", job.ID, mode)}, nil
}
