package rest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Engine asks workflows for areas that do not know Temporal.
type Engine struct{ s *server }

// NewEngine returns the engine of an API that Register was called for with the same configuration.
func NewEngine(api *op.API, cfg Config) *Engine { return &Engine{newServer(api, cfg)} }

// AskJob asks a live job for an action, as POST jobs/{id}/actions/{action} does, and returns when
// it has answered. It returns a *lifecycle.ActionRefusedError when the job refuses.
func (e *Engine) AskJob(ctx context.Context, jobID string, action lifecycle.Action, reason string) error {
	job, err := e.s.store.Job(ctx, jobID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.s.cfg.ActionTimeout)
	defer cancel()
	x := &exchange{s: e.s, job: job, action: action, ask: ActionRequest{Reason: reason}}
	d, err := x.run(ctx)
	if err != nil {
		return err
	}
	if d.refused != nil {
		return d.refused
	}
	return nil
}

// answerSoon is how long AskAtOnce waits for the answer of a job.
const answerSoon = time.Second

// AskAtOnce is AskJob for a caller who does not wait. A job that has not answered within a second,
// for example because no worker runs, gets the action as a signal: Temporal keeps it until the job
// takes it. A job that gets the action both ways takes it once.
func (e *Engine) AskAtOnce(ctx context.Context, jobID string, action lifecycle.Action, reason string) error {
	job, err := e.s.store.Job(ctx, jobID)
	if err != nil {
		return err
	}
	began := time.Now()
	soon, cancel := context.WithTimeout(ctx, answerSoon)
	defer cancel()
	x := &exchange{s: e.s, job: job, action: action, ask: ActionRequest{Reason: reason}, once: uuid.NewString()}
	d, err := x.run(soon)
	switch {
	case err == nil && d.refused != nil:
		return d.refused
	case err == nil || ctx.Err() != nil || x.started:
		return err
	case soon.Err() == nil && time.Since(began) < answerSoon*9/10: // a server's deadline is a little earlier than ours
		return err
	}
	ask, err := x.request(ctx)
	if err != nil {
		return err
	}
	limited, stop := context.WithTimeout(ctx, e.s.cfg.ActionTimeout)
	defer stop()
	err = e.s.cfg.Temporal.SignalWorkflow(limited, job.WorkflowID, "", string(action), ask)
	switch {
	case gone(err):
		return e.AskJob(ctx, jobID, action, reason) // no workflow keeps a signal
	case err != nil:
		return x.trouble(ctx, err)
	}
	return nil
}

// ReadPower has a worker read the power of the node of an allocation that is being released. A BMC
// or MAAS that does not answer has said nothing.
func (e *Engine) ReadPower(ctx context.Context, nodeID string) (allocation.PowerProof, error) {
	var out allocation.PowerProof
	node, err := e.s.store.Node(ctx, nodeID)
	if err != nil {
		return out, err
	}
	job, err := e.s.store.LiveJobOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return out, problem.New(problem.Conflict, "no job works on the node now, and power is read for a job; repeat this in a minute, or quarantine the node first")
	}
	if err != nil {
		return out, err
	}
	in := contract.NodePowerInput{Job: contract.JobRef{JobID: job.ID, NodeID: nodeID, SiteID: text(node.SiteRef)}, SystemID: text(node.MAASSystemID)}
	if node.SiteRef != nil {
		site, err := e.s.store.Site(ctx, *node.SiteRef)
		if err != nil {
			return out, err
		}
		in.BMCCAPEM = site.Spec.BMCCAPEM
	}
	bmc, err := e.s.store.BMCOfNode(ctx, nodeID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return out, err
	}
	in.BMCID = bmc.ID
	var said contract.NodePower
	err = e.s.look(ctx, contract.NodePowerWorkflowID(in), contract.NodePowerWorkflow, in, &said)
	return allocation.PowerProof{BMC: said.BMC, MAAS: said.MAAS}, err
}
