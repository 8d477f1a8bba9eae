// Package temporalx is the plumbing between Slipway and the Temporal SDK: the
// client, worker options and the interceptors every activity gets.
package temporalx

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
)

// Heartbeats makes every remote activity heartbeat by itself at a third of its
// heartbeat timeout, so that a dead worker is noticed in seconds whatever the
// activity does, and so that a cancellation reaches it.
type Heartbeats struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*Heartbeats) InterceptActivity(ctx context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &heartbeatInterceptor{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type heartbeatInterceptor struct {
	interceptor.ActivityInboundInterceptorBase
}

func (b *heartbeatInterceptor) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	if info.IsLocalActivity || info.HeartbeatTimeout <= 0 {
		return b.Next.ExecuteActivity(ctx, in)
	}
	done := make(chan struct{})
	defer close(done)
	go sendHeartbeats(ctx, info.HeartbeatTimeout/3, done)
	return b.Next.ExecuteActivity(ctx, in)
}

func sendHeartbeats(ctx context.Context, every time.Duration, done <-chan struct{}) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-t.C:
			activity.RecordHeartbeat(ctx)
		}
	}
}
