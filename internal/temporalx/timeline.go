package temporalx

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
)

// Call is one activity as the node's timeline shows it: what was asked of the
// outside world, and how it ended. It holds names and outcomes, never payloads.
type Call struct {
	Ref        contract.JobRef
	Activity   string
	Attempt    int32
	WorkflowID string
	Took       time.Duration
	Outcome    string // done, waits (for another to end it), or the failure class
	Message    string
	Note       string
}

// Recorder keeps calls.
type Recorder interface {
	RecordCall(ctx context.Context, c Call) error
}

// Timeline records every remote activity of a job on its node's timeline; of a
// job without a node, on the job's own. A record that cannot be written is
// logged and never fails the activity.
type Timeline struct {
	interceptor.WorkerInterceptorBase
	Recorder Recorder
	Log      *slog.Logger
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (t *Timeline) InterceptActivity(ctx context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &recording{interceptor.ActivityInboundInterceptorBase{Next: next}, t}
}

type recording struct {
	interceptor.ActivityInboundInterceptorBase
	t *Timeline
}

const recordTimeout = 5 * time.Second

func (r *recording) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	ref, ok := refOf(in.Args)
	if info.IsLocalActivity || !ok {
		return r.Next.ExecuteActivity(ctx, in)
	}
	start := time.Now()
	out, err := r.Next.ExecuteActivity(ctx, in)
	waits := errors.Is(err, activity.ErrResultPending)
	if waits && info.Attempt > 1 {
		return out, err // it asks now and then whether its wait is known
	}
	c := Call{
		Ref: ref, Activity: info.ActivityType.Name, Attempt: info.Attempt, WorkflowID: info.WorkflowExecution.ID,
		Took: time.Since(start), Outcome: "done", Note: noteOf(out),
	}
	var app *temporal.ApplicationError
	switch {
	case errors.As(err, &app):
		c.Outcome, c.Message = app.Type(), app.Message()
	case waits:
		c.Outcome = "waits"
	case err != nil:
		c.Outcome = "interrupted"
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if rerr := r.t.Recorder.RecordCall(rctx, c); rerr != nil {
		r.t.Log.Warn("timeline entry not written", "activity", c.Activity, "node", ref.NodeID, "error", rerr)
	}
	return out, err
}

func refOf(args []any) (contract.JobRef, bool) {
	if len(args) == 0 {
		return contract.JobRef{}, false
	}
	r, ok := args[0].(interface{ Ref() contract.JobRef })
	if !ok {
		return contract.JobRef{}, false
	}
	ref := r.Ref()
	return ref, ref.NodeID != "" || ref.JobID != ""
}

func noteOf(out any) string {
	if n, ok := out.(interface{ TimelineNote() string }); ok {
		return n.TimelineNote()
	}
	return ""
}
