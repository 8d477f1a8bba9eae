package rest

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
)

// PlanEngine is what plans ask of Temporal: they are made by workers, since the
// API holds no connection to a region or a BMC. client.Client is one.
type PlanEngine interface {
	ExecuteWorkflow(ctx context.Context, o client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error)
	DescribeTaskQueue(ctx context.Context, queue string, kind enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error)
}

const (
	// planLimit bounds the wait for a plan; the workflow itself ends sooner.
	planLimit = 20 * time.Second
	// planLife ends a plan that no worker took up, so that none comes late.
	planLife = time.Minute
	// pollerFresh is the age up to which a worker counts as there: each asks for
	// work at least once a minute.
	pollerFresh = 75 * time.Second
)

// plan has a worker make the plan of an onboarding.
func (s *server) plan(ctx context.Context, in contract.PlanInput) (*struct{ Body Plan }, error) {
	p, err := s.runPlan(ctx, contract.PlanWorkflowID(in), contract.PlanWorkflow, in)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Plan }{planView(p)}, nil
}

// runPlan has a worker run a workflow that makes a plan. Equal questions at once
// are one workflow, by its id.
func (s *server) runPlan(ctx context.Context, id, workflow string, in any) (contract.Plan, error) {
	var p contract.Plan
	err := s.look(ctx, id, workflow, in, &p)
	return p, err
}

// look has a worker run a workflow that looks at something and changes nothing, and reads its
// result into out.
func (s *server) look(ctx context.Context, id, workflow string, in, out any) error {
	if s.cfg.Plans == nil {
		return problem.New(problem.Unavailable, "this server makes no plans; start the job, or ask another server")
	}
	hctx, cancelHealth := context.WithTimeout(ctx, healthLimit)
	defer cancelHealth()
	if _, err := s.cfg.Temporal.CheckHealth(hctx, &client.CheckHealthRequest{}); err != nil {
		return s.noEngine(ctx, err)
	}
	wctx, cancel := context.WithTimeout(ctx, planLimit)
	defer cancel()
	run, err := s.cfg.Plans.ExecuteWorkflow(wctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: s.taskQueue(), WorkflowExecutionTimeout: planLife,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "plan: changes nothing",
	}, workflow, in)
	if err != nil {
		return s.noEngine(ctx, err)
	}
	if err := run.Get(wctx, out); err != nil {
		return s.noPlan(ctx, wctx, err)
	}
	return nil
}

func (s *server) taskQueue() string {
	if s.cfg.TaskQueue == "" {
		return contract.TaskQueue
	}
	return s.cfg.TaskQueue
}

func (s *server) noEngine(ctx context.Context, err error) error {
	s.log.WarnContext(ctx, "temporal does not answer", "error", err)
	return problem.New(problem.EngineUnavailable, "Temporal does not answer, so nothing could be looked at; ask again when Temporal is back")
}

// noPlan tells a worker that is missing from one that is slow.
func (s *server) noPlan(ctx, wctx context.Context, err error) error {
	var away *serviceerror.Unavailable
	var timeout *temporal.TimeoutError
	var app *temporal.ApplicationError
	late := errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &app) && app.Type() == contract.ErrTypePlanOutOfTime
	switch {
	case errors.As(err, &away):
		return s.noEngine(ctx, err)
	case wctx.Err() == nil && !late:
		return err
	}
	dctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	q, derr := s.cfg.Plans.DescribeTaskQueue(dctx, s.taskQueue(), enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if derr != nil {
		return s.noEngine(ctx, derr)
	}
	for _, p := range q.GetPollers() {
		if time.Since(p.GetLastAccessTime().AsTime()) < pollerFresh {
			return problem.New(problem.OutcomeUnknown, "no plan within "+planLimit.String()+"; nothing was changed; the workers are busy or what they ask is slow; ask again")
		}
	}
	return problem.New(problem.Unavailable, "no worker serves task queue "+s.taskQueue()+", and plans are made by workers; start one with `slipwayd worker`, then ask again")
}
