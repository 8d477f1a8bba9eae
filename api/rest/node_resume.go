package rest

import (
	"context"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// resumeNode makes sure that a node which is draining or being removed has an owner that goes on.
// The intent sees to the job and its task; the job's workflow is then told to resume, which also
// starts a lost one again. Repeating it changes nothing more.
func (s *server) resumeNode(ctx context.Context, info lifecycle.NodeActionInfo, in *nodeActionInput) (*op.Created[NodeActionAnswer], error) {
	key, err := in.Optional()
	if err != nil {
		return nil, err
	}
	body := nodeRequest{in.ID, in.ask()}
	if first, err := op.ReplayIfRecorded[NodeActionAnswer](ctx, s.api, key, body); first != nil || err != nil {
		return first, err
	}
	r, err := in.intent(info)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ActionTimeout)
	defer cancel()
	for range maxLooks {
		res, err := s.resume(ctx, r)
		if err != nil {
			return nil, err
		}
		if res != nil {
			return op.WithIdempotency(ctx, s.api, key, body, nil, func(*db.Tx) (*op.Created[NodeActionAnswer], error) { return nodeActionAnswer(info.Action, *res), nil })
		}
	}
	// Its job ended each time it was asked.
	return nil, problem.New(problem.Conflict, "the node's job is ending; look at the node, and repeat resume if it still stands in between")
}

// resume returns nil where the job ended meanwhile.
func (s *server) resume(ctx context.Context, r nodeaction.Request) (*nodeaction.Result, error) {
	var found nodeaction.Resumption
	err := s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		found, err = nodeaction.Resume(ctx, tx, r, op.Actor(ctx))
		return err
	})
	if err != nil || found.Created != nil {
		return found.Created, err
	}
	x := &exchange{s: s, job: found.Job, action: lifecycle.ActionResume, ask: ActionRequest{Reason: r.Reason}}
	d, err := x.run(ctx)
	if err != nil || d.refused != nil {
		return nil, err
	}
	res := found.Result(d.answer.Effect != lifecycle.EffectNoop)
	return &res, nil
}
