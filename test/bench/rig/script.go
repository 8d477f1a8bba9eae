package rig

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
)

// Script returns what an activity answers to its input. It returns false for one that is to run.
type Script func(ctx context.Context, activity string, in []any) (answer any, answered bool, err error)

// scripted answers activities by a script.
type scripted struct {
	interceptor.WorkerInterceptorBase
	script Script
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (s *scripted) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &scriptedActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, s.script}
}

type scriptedActivity struct {
	interceptor.ActivityInboundInterceptorBase
	script Script
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (a *scriptedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if answer, answered, err := a.script(ctx, activity.GetInfo(ctx).ActivityType.Name, in.Args); answered {
		return answer, err
	}
	return a.Next.ExecuteActivity(ctx, in)
}
