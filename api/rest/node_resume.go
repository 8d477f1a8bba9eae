package rest

import (
	"context"
	"fmt"
	"net/http"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// resumption is a node in between, as it was seen, and what became of the task
// that its job waits for.
type resumption struct {
	judgement
	task db.NodeTask
	did  db.Resumed
}

// resumeNode sees to it that a node which is draining or being removed has an
// owner that goes on (seed 001 section 8): a task that is queued or held under a
// live lease stays as it is, a stale one is asked for again, a job that is
// parked or whose workflow was lost goes on, and where there is no job one is
// created. Repeating it changes nothing more.
func (s *Server) resumeNode(ctx context.Context, info lifecycle.NodeActionInfo, in *nodeActionInput) (*Created[NodeActionAnswer], error) {
	key, err := in.optional()
	if err != nil {
		return nil, err
	}
	body := nodeRequest{in.ID, in.ask()}
	if first, err := recalled[NodeActionAnswer](ctx, s, key, body); first != nil || err != nil {
		return first, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ActionTimeout)
	defer cancel()
	for look := 1; ; look++ {
		r, made, err := s.resumeTask(ctx, info, in)
		if err == nil && made == nil {
			made, err = s.resumeJob(ctx, r, in.ask())
		}
		if err != nil {
			return nil, err
		}
		if made != nil {
			return once(ctx, s, key, body, nil, func(*db.Tx) (*Created[NodeActionAnswer], error) { return made, nil })
		}
		if look == maxLooks { // its job ended each time it was asked
			return nil, problem.New(problem.Conflict, "the node's job is ending; look at the node, and repeat resume if it still stands in between")
		}
	}
}

// resumeTask judges the node under its lock. Where a job owns it, the task that
// the job waits for is seen to; where none does, one is created, and that is the
// answer.
func (s *Server) resumeTask(ctx context.Context, info lifecycle.NodeActionInfo, in *nodeActionInput) (r resumption, made *Created[NodeActionAnswer], err error) {
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if r.judgement, err = s.judgeNode(ctx, tx, info, in); err != nil {
			return err
		}
		if r.live == nil {
			made, err = s.adoptNode(ctx, tx, r.judgement, in.ask())
			return err
		}
		if !lifecycle.OwnsNodeState(r.live.Kind) {
			return problem.New(problem.LiveJob, fmt.Sprintf("job %s (%s) holds node %s and does not own its state; wait for it to end, or cancel it, then resume",
				r.live.ID, whatOf(*r.live), r.node.Hostname)).With(r.live.ID)
		}
		_, kind, _ := lifecycle.ResumeOf(r.node.Status)
		a := s.actor(ctx)
		a.Comment = in.ask().Reason
		if r.task, r.did, err = tx.ResumeTaskOfJob(ctx, *r.live, kind, a); err != nil {
			return err
		}
		a.Metadata = map[string]any{"job_id": r.live.ID, "task_id": r.task.ID, "task": string(r.did)}
		return tx.AppendAudit(ctx, db.Entry{
			ResourceKind: "node", ResourceID: r.node.ID, NodeID: &r.node.ID, Kind: db.EntryAction, Name: string(info.Action), Actor: a,
		})
	})
	return r, made, err
}

// resumeJob has the job go on, if it does not. nil: it ended meanwhile.
func (s *Server) resumeJob(ctx context.Context, r resumption, ask NodeActionRequest) (*Created[NodeActionAnswer], error) {
	x := &exchange{s: s, job: *r.live, action: lifecycle.ActionResume, ask: ActionRequest{Reason: ask.Reason}}
	d, err := x.run(ctx)
	if err != nil {
		return nil, err
	}
	if d.refused != nil {
		return nil, nil
	}
	effect, message := NodeEffectNoop, fmt.Sprintf("job %s is at work", r.live.ID)
	if d.answer.Effect != lifecycle.EffectNoop {
		effect, message = NodeEffectResumed, fmt.Sprintf("job %s goes on", r.live.ID)
	}
	if r.did != db.ResumedNothing {
		effect = NodeEffectResumed
		message += fmt.Sprintf("; its task %s was asked for again", r.task.Kind)
	}
	return r.answer(http.StatusOK, effect, r.node, r.live.ID, message), nil
}

// adoptNode creates the job of a node in between that has none. It is the
// smallest that leads to where the node was going; what a lost decommission was
// to do besides is planned anew when the node has come to rest.
func (s *Server) adoptNode(ctx context.Context, tx *db.Tx, j judgement, ask NodeActionRequest) (*Created[NodeActionAnswer], error) {
	from, err := tx.CameFrom(ctx, j.node.ID)
	if err != nil {
		return nil, err
	}
	mode, _, _ := lifecycle.ResumeOf(j.node.Status)
	in, err := decommissionInput(ctx, tx, j.node, mode, from)
	if err != nil {
		return nil, err
	}
	in.Reason, in.GraceSeconds = ask.Reason, ask.GraceSeconds
	row, err := s.nodeJob(ctx, in)
	if err != nil {
		return nil, err
	}
	job, err := tx.AdoptNode(ctx, db.NodeJob{Mode: mode, Node: j.node, Job: row})
	if err != nil {
		return nil, err
	}
	return j.answer(http.StatusAccepted, NodeEffectStarted, j.node, job.ID, fmt.Sprintf("no job owned the node; job %s (%s) was created for it", job.ID, mode)), nil
}
