package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/bench/noop"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// always must be in no history of any release, whoever recorded it.
func always() []string {
	return append(noop.Values(), secretscan.PrivateKeyMark, "#cloud-config")
}

// leaked lists what a run would have leaked, had it leaked anything: every
// secret that was stored or read, and the enrolment tokens inside the sealed
// user-data; some says whether there must be such tokens.
func leaked(t *testing.T, r *rig.Rig, some bool) []string {
	t.Helper()
	values := r.Revealed()
	var tokens []string
	for _, v := range values {
		tokens = append(tokens, secretscan.Tokens([]byte(v))...)
	}
	require.Equal(t, some, len(tokens) > 0, "enrolment tokens in the sealed user-data")
	return slices.Concat(values, tokens, always())
}

// noSecrets searches every event of a history for secrets, in all encodings. It returns an error
// for one that is too short to be searched for.
func noSecrets(_ context.Context, h *historypb.History, values []string) error {
	var secrets []secretscan.Secret
	for _, v := range values {
		secrets = append(secrets, secretscan.Secret{Kind: fmt.Sprintf("a secret of %d bytes", len(v)), Value: v})
	}
	s := secretscan.New(secrets, nil)
	s.History("the history", h)
	var errs []error
	for _, left := range s.LeftOut {
		errs = append(errs, fmt.Errorf("%s is not searched for: make it longer", left.Kind))
	}
	for _, f := range s.Findings() {
		errs = append(errs, fmt.Errorf("%s; it must travel by reference", f))
	}
	return errors.Join(errs...)
}

func TestASecretInAHistoryIsFound(t *testing.T) {
	t.Parallel()
	key, _, err := cloudinit.NewHostKey()
	require.NoError(t, err)
	const text = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
	document, err := cloudinit.Render(cloudinit.Input{
		Hostname: "gpu-1", HostKey: key,
		Agent: cloudinit.Agent{ServerURL: "https://127.0.0.1:8443", CAPEM: rig.AgentCA(), NodeID: "node-1", Token: providers.NewSecret(text)},
	})
	require.NoError(t, err)
	require.Equal(t, []string{text}, secretscan.Tokens(document))

	in, err := converter.GetDefaultDataConverter().ToPayloads(map[string]string{"token": text})
	require.NoError(t, err)
	h := &historypb.History{Events: []*historypb.HistoryEvent{{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{Input: in},
		},
	}}}
	require.NoError(t, noSecrets(t.Context(), h, []string{"another text"}))
	require.Error(t, noSecrets(t.Context(), h, []string{"another text", text}))
	require.ErrorContains(t, noSecrets(t.Context(), h, []string{"short"}), "is not searched for")
}
