package temporalx_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	devtemporal "github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// newCodec returns the codec of an installation of its own.
func newCodec(t *testing.T) *payloadcodec.Codec {
	t.Helper()
	store, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	c, err := payloadcodec.Open(t.Context(), store, slog.New(slog.DiscardHandler), false)
	require.NoError(t, err)
	return c
}

func dial(t *testing.T, codec *payloadcodec.Codec) client.Client {
	t.Helper()
	srv, err := engine()
	require.NoError(t, err, "a Temporal server for the tests")
	c, err := temporalx.Dial(temporalx.ClientOptions{
		Address: srv.Address(), Namespace: devtemporal.Namespace, Identity: "payload-test", Payloads: codec,
		Log: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// hidden is a text that stands wherever a workflow can put one.
const hidden = "the-hidden-text-of-this-test"

type document struct{ Text string }

// everywhere is a workflow that puts the hidden text into every kind of payload.
func everywhere(ctx workflow.Context, in document) (document, error) {
	workflow.SetCurrentDetails(ctx, "stage two of two")
	_ = workflow.SetQueryHandler(ctx, "query", func() (document, error) { return in, nil })
	_ = workflow.SetUpdateHandler(ctx, "update", func(_ workflow.Context, d document) (document, error) {
		return d, temporal.NewNonRetryableApplicationError("refused: "+d.Text, "refused", nil, d)
	})
	_ = workflow.SideEffect(ctx, func(workflow.Context) any { return in }).Get(&in)
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
	if err := workflow.ExecuteLocalActivity(local, "repeat", in).Get(ctx, &in); err != nil {
		return in, err
	}
	ao := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, HeartbeatTimeout: time.Minute, Summary: "repeats a text", RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	if err := workflow.ExecuteActivity(ao, "repeat", in).Get(ctx, &in); err != nil {
		return in, err
	}
	if err := workflow.ExecuteActivity(ao, "fail", in).Get(ctx, nil); !temporal.IsApplicationError(err) {
		return in, temporal.NewApplicationError("the failure is lost", "test")
	}
	workflow.GetSignalChannel(ctx, "signal").Receive(ctx, &in)
	return in, temporal.NewApplicationError("ended: "+in.Text, "test", in)
}

func repeat(ctx context.Context, in document) (document, error) {
	if !activity.GetInfo(ctx).IsLocalActivity {
		activity.RecordHeartbeat(ctx, in)
	}
	return in, nil
}

func fail(_ context.Context, in document) error {
	return temporal.NewApplicationError("failed: "+in.Text, "test", in)
}

func startWorker(t *testing.T, c client.Client, queue string) worker.Worker {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(everywhere, workflow.RegisterOptions{Name: "everywhere"})
	w.RegisterActivityWithOptions(repeat, activity.RegisterOptions{Name: "repeat"})
	w.RegisterActivityWithOptions(fail, activity.RegisterOptions{Name: "fail"})
	require.NoError(t, w.Start())
	return w
}

// TestPayloads_TemporalStoresNoText runs a workflow that puts a text everywhere and searches for it
// as somebody who has Temporal and no key.
func TestPayloads_TemporalStoresNoText(t *testing.T) {
	t.Parallel()
	codec := newCodec(t)
	ours, theirs := dial(t, codec), dial(t, nil)
	queue := "payloads-" + db.NewID("q")
	t.Cleanup(startWorker(t, ours, queue).Stop)
	in := document{hidden}
	run, err := ours.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: queue, TaskQueue: queue, StaticSummary: "hides a text", Memo: map[string]any{"memo": in},
	}, "everywhere", in)
	require.NoError(t, err)

	update, err := ours.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: queue, UpdateName: "update", Args: []any{in}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	var refused *temporal.ApplicationError
	require.ErrorAs(t, update.Get(t.Context(), nil), &refused)
	require.Equal(t, "refused: "+hidden, refused.Message())
	answer, err := ours.QueryWorkflow(t.Context(), queue, "", "query")
	require.NoError(t, err)
	require.NoError(t, answer.Get(&in))

	answer, err = theirs.QueryWorkflow(t.Context(), queue, "", "__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&metadata), "operators read the current details without a key")
	require.Equal(t, "stage two of two", metadata.GetCurrentDetails())

	// An operator's plain JSON, as Temporal's command line sends it.
	require.NoError(t, theirs.SignalWorkflow(t.Context(), queue, "", "signal", document{"plain"}))
	var ended *temporal.ApplicationError
	require.ErrorAs(t, run.Get(t.Context(), nil), &ended)
	require.Equal(t, "ended: plain", ended.Message())

	h := fetchHistory(t, theirs, queue)
	scan := secretscan.New([]secretscan.Secret{{Kind: "text", Value: hidden}}, nil)
	scan.History("raw", h)
	require.Empty(t, scan.Findings())
	require.Contains(t, h.String(), "hides a text", "operators read summaries without a key")
	require.Contains(t, h.String(), "repeats a text")
	message, err := temporalx.Watch{Client: ours, Payloads: codec}.Ending(t.Context(), queue, run.GetRunID())
	require.NoError(t, err)
	require.Equal(t, "failed: ended: plain", message)

	scan.Payloads = codec
	scan.History("decrypted", h)
	require.Greater(t, len(scan.Findings()), 8)
	require.NoError(t, codec.DecodeHistory(t.Context(), h))
	require.NotContains(t, h.String(), "binary/encrypted")
	require.Contains(t, h.String(), "failed: "+hidden)
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(everywhere, workflow.RegisterOptions{Name: "everywhere"})
	require.NoError(t, replayer.ReplayWorkflowHistory(nil, h), "a decrypted history replays without a key")
}

func fetchHistory(t *testing.T, c client.Client, id string) *historypb.History {
	t.Helper()
	h := &historypb.History{}
	for it := c.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(t, err)
		h.Events = append(h.Events, e)
	}
	return h
}

// TestPayloads_WorkflowWaitsForItsKey has a worker without the key take a workflow: the workflow
// does not fail, and goes on when a worker has the key.
func TestPayloads_WorkflowWaitsForItsKey(t *testing.T) {
	t.Parallel()
	right, wrong := newCodec(t), newCodec(t)
	ours, other := dial(t, right), dial(t, wrong)
	queue := "payloads-" + db.NewID("q")
	run, err := ours.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: queue, TaskQueue: queue}, "everywhere", document{hidden})
	require.NoError(t, err)
	require.NoError(t, ours.SignalWorkflow(t.Context(), queue, "", "signal", document{"go on"}))

	w := startWorker(t, other, queue)
	watch := temporalx.Watch{Client: other, Namespace: devtemporal.Namespace, TaskQueue: queue, Payloads: wrong}
	var failure string
	require.Eventually(t, func() bool {
		failure, err = watch.TaskFailure(t.Context(), queue, run.GetRunID())
		return err == nil && failure != ""
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
	require.Contains(t, failure, "a payload cannot be decrypted: it does not open with key slipway/temporal-payload-key@1")
	w.Stop()
	e, err := watch.Look(t.Context(), queue)
	require.NoError(t, err)
	require.True(t, e.Running)

	t.Cleanup(startWorker(t, ours, queue).Stop)
	require.ErrorContains(t, run.Get(t.Context(), nil), "ended: go on")
}
