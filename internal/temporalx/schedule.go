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
	return ensureSchedule(ctx, s.Client, every, sweepCatchUp, &client.ScheduleWorkflowAction{
		ID: s.ID(), Workflow: contract.SweepWorkflow, TaskQueue: s.TaskQueue, WorkflowRunTimeout: sweepRunLimit,
		StaticSummary: "looks for what is stuck",
	})
}

// Bills is the Schedule that has what runs charged. Its id names the task queue.
type Bills struct {
	Client    client.Client
	TaskQueue string
}

// A pass that could not run at its time is not made up for later: the next one charges the whole
// time. One that takes longer than a minute keeps the next from starting.
const (
	billEvery    = time.Minute
	billCatchUp  = 10 * time.Second
	billRunLimit = 6 * time.Minute
)

// ID is the Schedule's id.
func (b Bills) ID() string { return "bill/" + b.TaskQueue }

// Ensure makes the Schedule, or brings one that is there to this program's settings. It leaves it
// paused when somebody paused it. Repeatable.
func (b Bills) Ensure(ctx context.Context) error {
	return ensureSchedule(ctx, b.Client, billEvery, billCatchUp, &client.ScheduleWorkflowAction{
		ID: b.ID(), Workflow: contract.BillWorkflow, TaskQueue: b.TaskQueue, WorkflowRunTimeout: billRunLimit,
		StaticSummary: "charges what runs",
	})
}

// Remove deletes the Schedule; one that is not there is no error.
func (b Bills) Remove(ctx context.Context) error { return removeSchedule(ctx, b.Client, b.ID()) }

// PaymentPasses is the Schedule that has payments compared with the payment provider. Its id names the
// task queue.
type PaymentPasses struct {
	Client    client.Client
	TaskQueue string
}

// A pass that could not run at its time is not made up for later: the next one does what is due. One
// that takes longer than a minute keeps the next from starting.
const (
	paymentsEvery    = time.Minute
	paymentsCatchUp  = 10 * time.Second
	paymentsRunLimit = 40 * time.Minute
)

// ID is the Schedule's id.
func (p PaymentPasses) ID() string { return "payments/" + p.TaskQueue }

// Ensure makes the Schedule, or brings one that is there to this program's settings. It leaves it
// paused when somebody paused it. Repeatable.
func (p PaymentPasses) Ensure(ctx context.Context) error {
	return ensureSchedule(ctx, p.Client, paymentsEvery, paymentsCatchUp, &client.ScheduleWorkflowAction{
		ID: p.ID(), Workflow: contract.PaymentsWorkflow, TaskQueue: p.TaskQueue, WorkflowRunTimeout: paymentsRunLimit,
		StaticSummary: "compares payments with the payment provider",
	})
}

// Remove deletes the Schedule; one that is not there is no error.
func (p PaymentPasses) Remove(ctx context.Context) error {
	return removeSchedule(ctx, p.Client, p.ID())
}

// InstancePasses is the Schedule that has instances compared with their providers. Its id names the task
// queue.
type InstancePasses struct {
	Client    client.Client
	TaskQueue string
}

// A pass that could not run at its time is not made up for later. One that takes longer than a minute
// keeps the next from starting.
const (
	instancesEvery    = time.Minute
	instancesCatchUp  = 10 * time.Second
	instancesRunLimit = 30 * time.Minute
)

// ID is the Schedule's id.
func (p InstancePasses) ID() string { return "instances/" + p.TaskQueue }

// Ensure makes the Schedule, or brings one that is there to this program's settings. It leaves it
// paused when somebody paused it. Repeatable.
func (p InstancePasses) Ensure(ctx context.Context) error {
	return ensureSchedule(ctx, p.Client, instancesEvery, instancesCatchUp, &client.ScheduleWorkflowAction{
		ID: p.ID(), Workflow: contract.InstancesWorkflow, TaskQueue: p.TaskQueue, WorkflowRunTimeout: instancesRunLimit,
		StaticSummary: "compares instances with their providers",
	})
}

// Remove deletes the Schedule; one that is not there is no error.
func (p InstancePasses) Remove(ctx context.Context) error {
	return removeSchedule(ctx, p.Client, p.ID())
}

// ensureSchedule makes the Schedule that is called like its workflow, or brings
// it to these settings. A run that is still at work keeps the next from starting.
func ensureSchedule(ctx context.Context, c client.Client, every, catchUp time.Duration, action *client.ScheduleWorkflowAction) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: action.ID, Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: catchUp,
		TriggerImmediately: true,
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("make schedule %s: %w", action.ID, err)
	}
	err = c.ScheduleClient().GetHandle(ctx, action.ID).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			there := in.Description.Schedule
			there.Spec, there.Action = &spec, action
			there.Policy = &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: catchUp}
			return &client.ScheduleUpdate{Schedule: &there}, nil
		},
	})
	if err != nil {
		return fmt.Errorf("update schedule %s: %w", action.ID, err)
	}
	return nil
}

// Remove deletes the Schedule; one that is not there is no error. A dev stack
// does so when it ends, an installation when it moves to another task queue.
func (s Sweeps) Remove(ctx context.Context) error { return removeSchedule(ctx, s.Client, s.ID()) }

func removeSchedule(ctx context.Context, c client.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	err := c.ScheduleClient().GetHandle(ctx, id).Delete(ctx)
	var gone *serviceerror.NotFound
	if err == nil || errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("delete schedule %s: %w", id, err)
}
