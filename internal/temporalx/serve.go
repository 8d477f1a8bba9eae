package temporalx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slipway-cloud/slipway/internal/poll"
)

// startRetry is the time between two tries to start a worker.
const startRetry = 2 * time.Second

// StartWorker starts what build returns and repeats that until it succeeds or ctx ends: a worker
// that gave up would have to be started again by hand after an outage. Each try takes a new worker,
// since the SDK answers every later Start of a worker with the error of the first. It tells failed
// of each failure.
func StartWorker(ctx context.Context, build func() worker.Worker, failed func(error)) (worker.Worker, error) {
	for {
		w := build()
		err := w.Start()
		if err == nil {
			return w, nil
		}
		failed(err)
		if err := poll.Sleep(ctx, startRetry); err != nil {
			return nil, err
		}
	}
}

// KeepWorker starts what build returns and calls serve until ctx ends. When the server turns the
// worker away, which the worker tells ended, the context of serve ends, and after a pause another
// worker is started. It tells failed of each failure.
func KeepWorker(ctx context.Context, pause time.Duration, build func(ended func(error)) worker.Worker, failed func(error), serve func(context.Context)) {
	for ctx.Err() == nil {
		if err := keepOnce(ctx, build, failed, serve); err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("the Temporal worker stopped: %w", err))
		}
		if poll.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func keepOnce(ctx context.Context, build func(ended func(error)) worker.Worker, failed func(error), serve func(context.Context)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w, err := StartWorker(ctx, func() worker.Worker { return build(end) }, failed)
	if err != nil {
		return err
	}
	defer w.Stop()
	serve(ctx)
	return context.Cause(ctx)
}

// namespaceRetention is how long a namespace that RegisterNamespace makes keeps what has ended.
const namespaceRetention = 3 * 24 * time.Hour

// RegisterNamespace registers a namespace. A namespace that exists already is no error.
func RegisterNamespace(ctx context.Context, c client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleMethod)
	defer cancel()
	_, err := c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(namespaceRetention),
		Description: "Slipway's passes over what it manages",
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err == nil || errors.As(err, &exists) {
		return nil
	}
	return fmt.Errorf("register namespace %s: %w", name, err)
}

// IsNamespaceMissing tells whether an error says that the namespace does not exist.
func IsNamespaceMissing(err error) bool {
	var missing *serviceerror.NamespaceNotFound
	return errors.As(err, &missing)
}
