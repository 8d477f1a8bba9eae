package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestCodecServer_DecodesForOperatorsOnly starts a workflow as Slipway does, reads its input as
// somebody who has Temporal alone, and has the codec server decode it.
func TestCodecServer_DecodesForOperatorsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	const text = "the-text-of-the-input"
	id := "codec/" + db.NewID("run")
	// No worker takes this task queue: the workflow stays at its first event.
	_, err := w.App.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: id, WorkflowExecutionTimeout: time.Minute,
	}, "Input", map[string]string{"text": text})
	require.NoError(t, err)

	theirs, err := w.Temporal.Dial(t.Context(), w.Config.Temporal.Namespace)
	require.NoError(t, err)
	t.Cleanup(theirs.Close)
	first, err := theirs.GetWorkflowHistory(t.Context(), id, "", false, 1).Next()
	require.NoError(t, err)
	raw, err := first.Marshal()
	require.NoError(t, err)
	require.NotContains(t, string(raw), text)
	input := first.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
	require.Len(t, input, 1)

	decode := func(token string) ([]*commonpb.Payload, error) {
		return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
			Endpoint: w.Config.API.PublicURL + "/codec", ModifyRequest: func(r *http.Request) error {
				r.Header.Set("Authorization", "Bearer "+token)
				return nil
			},
		}).Decode(input)
	}
	for role, allowed := range map[string]bool{"admin": true, "operator": true, "viewer": false} {
		token, err := op.CreateToken(t.Context(), w.App.Store, "codec-"+role, []string{role}, time.Hour)
		require.NoError(t, err)
		got, err := decode(token)
		if !allowed {
			require.ErrorContains(t, err, "needs role operator")
			continue
		}
		require.NoError(t, err, role)
		require.Contains(t, string(got[0].GetData()), text, role)
	}
	_, err = decode("nobody's")
	require.ErrorContains(t, err, "The token is unknown")
}
