package temporalx

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Sweeps is the Schedule that has what is stuck looked for. Its id names the
// task queue: installations that share a namespace have one each.
type Sweeps struct {
	Client    client.Client
	TaskQueue string
}

// A pass that could not run at its time is not made up for later: the next one
// sees all that it would have seen. A pass whose worker is gone ends by itself,
// so that the next is not skipped for ever.
const (
	sweepCatchUp   = 10 * time.Second
	sweepRunLimit  = time.Minute
	scheduleMethod = 10 * time.Second
)

// ID is the Schedule's id.
func (s Sweeps) ID() string { return "sweep/" + s.TaskQueue }

// Ensure makes the Schedule, or brings one that is there to this program's
// settings. It leaves it paused when somebody paused it. Repeatable.
func (s Sweeps) Ensure(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	action := &client.ScheduleWorkflowAction{
		ID: s.ID(), Workflow: contract.SweepWorkflow, TaskQueue: s.TaskQueue, WorkflowRunTimeout: sweepRunLimit,
		StaticSummary: "looks for what is stuck",
	}
	_, err := s.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: s.ID(), Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: sweepCatchUp,
		TriggerImmediately: true,
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("make schedule %s: %w", s.ID(), err)
	}
	err = s.Client.ScheduleClient().GetHandle(ctx, s.ID()).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			there := in.Description.Schedule
			there.Spec, there.Action = &spec, action
			there.Policy = &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: sweepCatchUp}
			return &client.ScheduleUpdate{Schedule: &there}, nil
		},
	})
	if err != nil {
		return fmt.Errorf("update schedule %s: %w", s.ID(), err)
	}
	return nil
}

// Remove deletes the Schedule; one that is not there is no error. A dev stack
// does so when it ends, an installation when it moves to another task queue.
func (s Sweeps) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	err := s.Client.ScheduleClient().GetHandle(ctx, s.ID()).Delete(ctx)
	var gone *serviceerror.NotFound
	if err == nil || errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("delete schedule %s: %w", s.ID(), err)
}
