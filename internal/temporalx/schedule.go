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

	"github.com/slipway-cloud/slipway/contract"
)

// Schedule is the Temporal Schedule that starts a pass again and again.
type Schedule struct {
	Client    client.Client
	TaskQueue string
	Pass      contract.Pass
	// Every is the time between two passes, where the pass does not say it.
	Every time.Duration
	// Of names what the pass is about, where there is a Schedule for each; Input is then its input.
	Of    string
	Input any
}

const (
	scheduleCatchUp = 10 * time.Second // a pass that is later than that is left out
	scheduleMethod  = 10 * time.Second
)

// ID returns the id of the Schedule and of its workflow.
func (s Schedule) ID() string {
	id := s.Pass.ID + "/" + s.TaskQueue
	if s.Of != "" {
		id += "/" + s.Of
	}
	return id
}

// Ensure makes the Schedule and starts the first pass, or brings a Schedule that is there to this
// program's settings. It leaves it paused when somebody paused it. Repeatable.
func (s Schedule) Ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	every := s.Pass.Every
	if every == 0 {
		every = s.Every
	}
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	action := &client.ScheduleWorkflowAction{
		ID: s.ID(), Workflow: s.Pass.Workflow, TaskQueue: s.TaskQueue, WorkflowRunTimeout: s.Pass.RunLimit, StaticSummary: s.Pass.Summary,
	}
	if s.Input != nil {
		action.Args = []any{s.Input}
	}
	_, err := s.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: action.ID, Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: scheduleCatchUp,
		TriggerImmediately: true,
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("make schedule %s: %w", action.ID, err)
	}
	err = s.handle(ctx).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			there := in.Description.Schedule
			there.Spec, there.Action = &spec, action
			there.Policy = &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: scheduleCatchUp}
			return &client.ScheduleUpdate{Schedule: &there}, nil
		},
	})
	if err != nil {
		return fmt.Errorf("update schedule %s: %w", action.ID, err)
	}
	return nil
}

// Trigger starts a pass at once, unless one is at work.
func (s Schedule) Trigger(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	return s.handle(ctx).Trigger(ctx, client.ScheduleTriggerOptions{})
}

// Remove deletes the Schedule; one that is not there is no error. A dev stack does so when it ends,
// an installation when it moves to another task queue.
func (s Schedule) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	err := s.handle(ctx).Delete(ctx)
	var gone *serviceerror.NotFound
	if err == nil || errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("delete schedule %s: %w", s.ID(), err)
}

func (s Schedule) handle(ctx context.Context) client.ScheduleHandle {
	return s.Client.ScheduleClient().GetHandle(ctx, s.ID())
}
