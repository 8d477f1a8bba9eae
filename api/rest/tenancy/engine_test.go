package tenancy_test

import (
	"context"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// engine notes what jobs are asked, and answers for them and for the workers.
type engine struct {
	mu    sync.Mutex
	asked []string
	err   error // of an action
	power contract.NodePower
}

func (e *engine) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return &client.CheckHealthResponse{}, nil
}

func (e *engine) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, o.UpdateName)
	return update{o: o}, e.err
}

func (e *engine) SignalWorkflow(context.Context, string, string, string, any) error { return nil }

// taken returns what was asked since the last call.
func (e *engine) taken() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.asked
	e.asked = nil
	return out
}

type update struct{ o client.UpdateWorkflowOptions }

func (u update) WorkflowID() string { return u.o.WorkflowID }
func (u update) RunID() string      { return "" }
func (u update) UpdateID() string   { return u.o.UpdateID }
func (u update) Get(_ context.Context, into any) error {
	*into.(*contract.ActionResult) = contract.ActionResult{Effect: lifecycle.EffectRetryStage, Status: lifecycle.JobRunning}
	return nil
}

func (e *engine) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return reading{power: e.power}, nil
}

func (e *engine) DescribeTaskQueue(context.Context, string, enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{}, nil
}

type reading struct {
	client.WorkflowRun
	power contract.NodePower
}

func (r reading) Get(_ context.Context, into any) error {
	*into.(*contract.NodePower) = r.power
	return nil
}
