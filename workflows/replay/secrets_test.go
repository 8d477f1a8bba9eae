package replay_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slipway-cloud/slipway/internal/bench/noop"
	"github.com/slipway-cloud/slipway/internal/bench/rig"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// always must be in no history of any release, whoever recorded it.
func always() []string { return append(noop.Values(), "PRIVATE KEY", "#cloud-config") }

// leaked lists what a run would have leaked, had it leaked anything: every
// secret that was stored or read, and the enrolment tokens inside the sealed
// user-data; some says whether there must be such tokens.
func leaked(t *testing.T, r *rig.Rig, some bool) []string {
	t.Helper()
	values := r.Revealed()
	var tokens []string
	for _, v := range values {
		tokens = append(tokens, tokensIn([]byte(v))...)
	}
	require.Equal(t, some, len(tokens) > 0, "enrolment tokens in the sealed user-data")
	return slices.Concat(values, tokens, always())
}

var (
	encoded = regexp.MustCompile(`[A-Za-z0-9+/\n]{40,}={0,2}`)
	token   = regexp.MustCompile(`^[A-Za-z0-9_-]{43}\n$`)
)

// tokensIn looks through the layers of base64 of a user-data document.
func tokensIn(raw []byte) (tokens []string) {
	if token.Match(raw) {
		return []string{string(bytes.TrimSpace(raw))}
	}
	for _, block := range encoded.FindAll(raw, -1) {
		inner, err := base64.StdEncoding.DecodeString(string(bytes.ReplaceAll(block, []byte("\n"), nil)))
		if err == nil {
			tokens = append(tokens, tokensIn(inner)...)
		}
	}
	return tokens
}

// noSecrets looks into the text of a history and into every payload, for the
// secrets as they are, inside JSON, and in base64.
func noSecrets(ctx context.Context, h *historypb.History, secrets []string) error {
	text, err := protojson.Marshal(h)
	if err != nil {
		return err
	}
	parts := [][]byte{text}
	err = proxy.VisitPayloads(ctx, h, proxy.VisitPayloadsOptions{
		Visitor: func(_ *proxy.VisitPayloadsContext, ps []*commonpb.Payload) ([]*commonpb.Payload, error) {
			for _, p := range ps {
				parts = append(parts, p.GetData())
			}
			return ps, nil
		},
	})
	if err != nil {
		return err
	}
	for _, s := range secrets {
		quoted, err := json.Marshal(s)
		if err != nil {
			return err
		}
		for _, form := range [][]byte{[]byte(s), bytes.Trim(quoted, `"`), []byte(base64.StdEncoding.EncodeToString([]byte(s)))} {
			if slices.ContainsFunc(parts, func(p []byte) bool { return bytes.Contains(p, form) }) {
				return fmt.Errorf("a secret of %d bytes stands in the history; it must travel by reference", len(s))
			}
		}
	}
	return nil
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
	require.Equal(t, []string{text}, tokensIn(document))

	in, err := converter.GetDefaultDataConverter().ToPayloads(map[string]string{"token": text})
	require.NoError(t, err)
	h := &historypb.History{Events: []*historypb.HistoryEvent{{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{Input: in},
		},
	}}}
	require.NoError(t, noSecrets(t.Context(), h, []string{"another"}))
	require.Error(t, noSecrets(t.Context(), h, []string{"another", text}))
}
