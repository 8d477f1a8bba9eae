package main

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/webhook"
)

// TestReceiver_AcceptsSignedEvents sends events by the product's sender, with another secret and
// with the one that the webhook has.
func TestReceiver_AcceptsSignedEvents(t *testing.T) {
	t.Parallel()
	r, err := startReceiver(t.Context())
	require.NoError(t, err)
	t.Cleanup(r.close)
	secret := webhook.NewSecret()
	require.NoError(t, r.expect(secret.Reveal()))
	session := webhook.NewSession(webhook.Options{Rule: spec.AddressRule{Also: []netip.AddrPort{r.local.Address}}, Roots: r.local.Roots})
	t.Cleanup(session.Close)
	send := func(s providers.Secret) webhook.Result {
		e := webhook.NewEvent("prj_1", "evt_1", "project.updated", "projects/prj_1", time.Now(), 7, json.RawMessage(`{}`))
		result, err := session.Send(t.Context(), webhook.Message{URL: "https://" + r.local.Address.String() + "/", Event: e, Secrets: []providers.Secret{s}})
		require.NoError(t, err)
		return result
	}
	require.Equal(t, 401, send(webhook.NewSecret()).Status)
	require.Empty(t, r.events)
	require.True(t, send(secret).Delivered())
	require.Contains(t, <-r.events, "project.updated.v1")
}
