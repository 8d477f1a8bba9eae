package chaos

import (
	"cmp"
	"context"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The product's timeouts are minutes; a harness that waits for hundreds of them
// shortens what Temporal is told, and nothing else.
const (
	heartbeatLimit = 4 * time.Second  // heartbeat timeout of every remote activity
	callLimit      = 20 * time.Second // start-to-close of what is no poll
	pollLimit      = 10 * time.Minute // what has more than this is a poll and keeps it
	localLimit     = 5 * time.Second  // start-to-close of a local activity, as in the product
	grace          = 1500 * time.Millisecond
)

// Interceptor injects into a worker's activities what an injector orders.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
	Injector Injector
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (i *Interceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &faultInterceptor{interceptor.ActivityInboundInterceptorBase{Next: next}, i.Injector}
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (*Interceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &shortTimeouts{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type shortTimeouts struct {
	interceptor.WorkflowInboundInterceptorBase
}

// Init implements interceptor.WorkflowInboundInterceptor.
func (h *shortTimeouts) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return h.Next.Init(&shortOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}})
}

type shortOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// ExecuteActivity schedules an activity with shorter timeouts.
func (s *shortOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o := workflow.GetActivityOptions(ctx)
	o.HeartbeatTimeout = min(o.HeartbeatTimeout, heartbeatLimit)
	if o.StartToCloseTimeout <= pollLimit && name != "PowerOffByMAAS" { // which has a limit of its own
		o.StartToCloseTimeout = min(o.StartToCloseTimeout, callLimit)
	}
	return s.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, args...)
}

// faultInterceptor executes activities with what was ordered for them.
type faultInterceptor struct {
	interceptor.ActivityInboundInterceptorBase
	injector Injector
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (s *faultInterceptor) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	job, at := where(ctx, in.Args)
	if job == "" {
		return s.Next.ExecuteActivity(ctx, in)
	}
	o, err := s.injector.Enter(ctx, job, at)
	defer func() { _ = s.injector.Leave(context.WithoutCancel(ctx), job, at) }()
	if err != nil || o.Kind == "" {
		return s.Next.ExecuteActivity(ctx, in)
	}
	e := &execution{
		ctx: ctx, local: at.Local,
		inject: func() { _ = s.injector.Inject(context.WithoutCancel(ctx), o) },
		run:    func() (any, error) { return s.Next.ExecuteActivity(ctx, in) },
	}
	return e.apply(o)
}

// where is the job and the point of an execution; "" for what is no job's.
func where(ctx context.Context, args []any) (string, Point) {
	if len(args) == 0 {
		return "", Point{}
	}
	info := activity.GetInfo(ctx)
	at := Point{Activity: info.ActivityType.Name, Local: info.IsLocalActivity}
	switch in := args[0].(type) {
	case contract.Projection:
		at.Stage = in.Stage
		if in.Status == lifecycle.JobCompensating || lifecycle.Job.Terminal(in.Status) {
			at.Stage = string(in.Status)
		}
		return in.JobID, at
	case contract.JobInput:
		at.Stage = "load"
		return in.JobID, at
	case interface{ Ref() contract.JobRef }:
		ref := in.Ref()
		at.Stage = cmp.Or(ref.Stage, "job") // asked for all stages
		return ref.JobID, at
	}
	return "", at
}

// execution is one execution of an activity that gets a fault.
type execution struct {
	ctx    context.Context //nolint:containedctx // of this one execution
	local  bool
	inject func()
	run    func() (any, error)
}

func (e *execution) apply(o Order) (any, error) {
	switch o.Kind {
	case CrashBefore:
		e.inject()
		return e.crash(o.Variant)
	case CrashAfter:
		_, _ = e.run()
		e.inject()
		return e.crash(o.Variant)
	case AnswerLost:
		out, err := e.run()
		e.inject()
		if o.Variant == "error" {
			return nil, lostConnection()
		}
		pause(context.WithoutCancel(e.ctx), e.limit()+grace)
		return out, err
	case AnswerTwice:
		e.inject()
		return e.twice(o.Variant)
	case Timeout:
		e.inject()
		return e.hang(o.Variant)
	case WorkerKilled, PostgresKilled, SiteCut, Cancel, ReleaseAsked:
		if o.Variant == "dies" {
			e.inject()
			return e.crash("silent")
		}
		return e.around(o.Variant)
	case AgentKilled, AgentCut:
		e.inject() // it waits for the task by itself
	}
	return e.run()
}

// limit is after how long Temporal takes the execution for lost.
func (e *execution) limit() time.Duration {
	if e.local {
		return localLimit
	}
	return heartbeatLimit
}

// crash ends an execution without an answer, or with a panic's.
func (e *execution) crash(variant string) (any, error) {
	switch variant {
	case "silent":
		return nil, activity.ErrResultPending // nobody answers; the heartbeat timeout tells
	case "panic":
		panic("chaos: the activity crashed")
	}
	return nil, lostConnection()
}

func lostConnection() error {
	return temporal.NewApplicationError("chaos: the connection was lost", "chaos")
}

func (e *execution) twice(variant string) (any, error) {
	if variant == "in_a_row" {
		_, _ = e.run()
		return e.run()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = e.run()
	}()
	out, err := e.run()
	<-done
	return out, err
}

// hang is a worker that freezes: for good as far as this execution goes, or to
// go on as if nothing had been; or a call that never returns while the worker
// lives and heartbeats.
func (e *execution) hang(variant string) (any, error) {
	switch {
	case variant == "wakes":
		pause(context.WithoutCancel(e.ctx), e.limit()+grace)
		return e.run()
	case variant == "deadline" && activity.GetInfo(e.ctx).StartToCloseTimeout <= callLimit:
		for e.ctx.Err() == nil {
			activity.RecordHeartbeat(e.ctx)
			pause(e.ctx, time.Second)
		}
	default:
		pause(e.ctx, e.limit()+grace)
	}
	if e.ctx.Err() != nil {
		return nil, e.ctx.Err()
	}
	return nil, lostConnection()
}

// inside is how long after its start an execution is injected in its midst: the
// first statement or request is out.
const inside = 3 * time.Millisecond

// around has something injected from outside before, during or after the effect.
func (e *execution) around(variant string) (any, error) {
	switch {
	case strings.HasSuffix(variant, "before"):
		e.inject()
		return e.run()
	case strings.HasSuffix(variant, "after"):
		out, err := e.run()
		e.inject()
		return out, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause(e.ctx, inside)
		e.inject()
	}()
	out, err := e.run()
	<-done
	return out, err
}

func pause(ctx context.Context, d time.Duration) { _ = poll.Sleep(ctx, d) }
