package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// TestCheckPayments_RefusesToStart: a process does not start with a key or a webhook secret that
// cannot be right, says which setting to correct, never shows a secret, and asks nobody for it.
func TestCheckPayments_RefusesToStart(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	a := &App{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Store: dbtest.Store(t)}
	var err error
	a.Secrets, err = secrets.Open(t.Context(), a.Store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Secrets.Close() })
	toStripe := spec.SecretUse{Kind: spec.SecretStripeKey, Networks: []string{"127.0.0.0/8"}}
	toNobody := spec.SecretUse{Kind: spec.SecretStripeKey, Networks: []string{"192.0.2.0/24"}}
	signing := spec.SecretUse{Kind: spec.SecretStripeWebhook, Installation: true}
	for name, s := range map[string]struct {
		use   spec.SecretUse
		value string
	}{
		"pay/test": {toStripe, "sk_test_hidden1"}, "pay/live": {toStripe, "rk_live_hidden1"}, "pay/publishable": {toStripe, "pk_test_hidden1"},
		"pay/nobody": {toNobody, "sk_test_hidden1"}, "pay/hook": {signing, "whsec_hidden1_long_enough"}, "pay/short": {signing, "whsec_1"},
		"pay/spaces": {signing, " whsec_hidden1_long_enough"}, "pay/hook2": {signing, "whsec_hidden2_long_enough"},
	} {
		_, err := a.Store.SetSecretUse(t.Context(), name, s.use)
		require.NoError(t, err, name)
		_, err = a.Secrets.Put(t.Context(), name, providers.NewSecret(s.value))
		require.NoError(t, err, name)
	}
	for name, c := range map[string]struct {
		key, hooks string
		live       bool
		setting    string // "" starts
		says       string
	}{
		"off":                              {},
		"test mode":                        {key: "pay/test", hooks: "pay/hook"},
		"live mode":                        {key: "pay/live", hooks: "pay/hook", live: true},
		"a webhook secret that is rolled":  {key: "pay/test", hooks: "pay/hook,pay/hook2"},
		"a live key in test mode":          {"pay/live", "pay/hook", false, "payment.stripe_key_ref", "the key moves real money"},
		"a test key in live mode":          {"pay/test", "pay/hook", true, "payment.stripe_key_ref", "the key is one of Stripe's test mode"},
		"a key for browsers":               {"pay/publishable", "pay/hook", false, "payment.stripe_key_ref", "must begin with sk_test_"},
		"a key that is missing":            {"pay/none", "pay/hook", false, "payment.stripe_key_ref", "pay/none"},
		"a key of another use":             {"pay/hook", "pay/hook", false, "payment.stripe_key_ref", "stripe_webhook"},
		"a key for another network":        {"pay/nobody", "pay/hook", false, "payment.stripe_key_ref", ""},
		"a webhook secret that is missing": {"pay/test", "pay/none", false, "payment.webhook_secret_refs", "pay/none"},
		"one of two that is missing":       {"pay/test", "pay/hook,pay/none", false, "payment.webhook_secret_refs", "pay/none"},
		"a webhook secret of another use":  {"pay/test", "pay/test", false, "payment.webhook_secret_refs", "stripe_key"},
		"a short webhook secret":           {"pay/test", "pay/short", false, "payment.webhook_secret_refs", "too short"},
		"a webhook secret with spaces":     {"pay/test", "pay/spaces", false, "payment.webhook_secret_refs", "has spaces around it"},
		"no webhook secret":                {"pay/test", "", false, "payment.webhook_secret_refs", "name one signing secret"},
	} {
		a.Config.Payment.StripeURL, a.Config.Payment.StripeKeyRef, a.Config.Payment.WebhookSecretRefs, a.Config.Payment.StripeLive = elsewhere.URL, c.key, c.hooks, c.live
		verifier, err := a.checkPayments(t.Context())
		if c.setting == "" {
			require.NoError(t, err, name)
			require.Equal(t, c.key != "", verifier != nil, name)
			continue
		}
		require.ErrorContains(t, err, c.setting+": ", name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "hidden", name)
		require.Nil(t, verifier, name)
	}
	require.Zero(t, asked.Load(), "no key was sent")
}
