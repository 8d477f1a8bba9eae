package temporalx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ClientOptions says where Temporal is.
type ClientOptions struct {
	Address   string
	Namespace string
	TLS       *tls.Config // nil for plain text
	APIKey    string      // "" for none
	Identity  string      // "" for one of process and host
	Log       log.Logger
	Payloads  *payloadcodec.Codec // nil for plain payloads
}

// Dial makes a client that connects when it is first used: api and worker
// start, and wait, while Temporal is away.
func Dial(o ClientOptions) (client.Client, error) {
	opts := client.Options{
		HostPort: o.Address, Namespace: o.Namespace, Logger: o.Log, Identity: o.Identity,
		DataConverter: NewDataConverter(o.Payloads), FailureConverter: newFailureConverter(o.Payloads),
		ConnectionOptions: client.ConnectionOptions{TLS: o.TLS, GetSystemInfoTimeout: 5 * time.Second},
	}
	if o.APIKey != "" {
		opts.Credentials = client.NewAPIKeyStaticCredentials(o.APIKey)
	}
	c, err := client.NewLazyClient(opts)
	if err != nil {
		return nil, fmt.Errorf("temporal client for %s: %w", o.Address, err)
	}
	return c, nil
}

// Jobs starts job workflows.
type Jobs struct {
	Client    client.Client
	TaskQueue string
}

// WakeClaim tells the job of a request that a node became free. A job that does not run is told
// nothing, and that is no error: it looks for a node when it begins.
func (j Jobs) WakeClaim(ctx context.Context, jobID string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := j.Client.SignalWorkflow(ctx, contract.JobWorkflowID(contract.KindAllocationProvision, jobID), "", contract.SignalNodeFree, nil)
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return nil
	}
	return err
}

const startTimeout = 10 * time.Second

// StartJob starts a job's workflow under its deterministic id. A workflow that runs already is
// success: the call may be repeated. A run that has ended is followed by a new one, which continues
// from the projected state.
func (j Jobs) StartJob(ctx context.Context, in contract.JobInput, summary string) (runID string, err error) {
	wf := contract.WorkflowOf(in.Kind)
	if wf == "" {
		return "", fmt.Errorf("no workflow runs jobs of kind %q", in.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	options := client.StartWorkflowOptions{
		ID: contract.JobWorkflowID(in.Kind, in.JobID), TaskQueue: j.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            summary,
		TypedSearchAttributes:    contract.StartAttributes(in),
	}
	run, err := j.Client.ExecuteWorkflow(ctx, options, wf, in)
	if err != nil {
		return "", fmt.Errorf("start %s: %w", contract.JobWorkflowID(in.Kind, in.JobID), err)
	}
	return run.GetRunID(), nil
}

// Ask sends an action to a job, in the name of the system. key makes a repetition the same request.
// A job that does not run is told nothing, and that is no error: what it missed stands in the
// database, and the next pass says it again.
func (j Jobs) Ask(ctx context.Context, kind contract.JobKind, jobID string, action lifecycle.Action, reason, key string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := j.Client.SignalWorkflow(ctx, contract.JobWorkflowID(kind, jobID), "", string(action),
		contract.ActionRequest{Actor: string(lifecycle.OwnerSystem), Reason: reason, IdempotencyKey: key})
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return nil
	}
	return err
}
