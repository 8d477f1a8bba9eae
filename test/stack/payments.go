package stack

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// The secrets of the simulated account at Stripe.
const (
	stripeKeySecret     = "sim/stripe-key"
	stripeWebhookSecret = "sim/stripe-webhook"
)

// account is what Slipway needs to use the simulated account at Stripe.
type account struct{ key, webhookSecret string }

// startPayments starts a simulated account at Stripe, which sends its webhooks to the API, and
// makes Slipway use it.
func (s *Stack) startPayments(cfg *config.Config) error {
	s.stripe = account{key: "sk_test_sim" + randomHex(16), webhookSecret: "whsec_" + randomHex(16)}
	var err error
	s.Stripe, err = stripesim.New(stripesim.Options{Key: s.stripe.key, Endpoints: []stripesim.Endpoint{
		{URL: cfg.API.PublicURL + "/api/v1/webhooks/stripe", Secrets: []string{s.stripe.webhookSecret}},
	}})
	if err != nil {
		return err
	}
	at, stop, err := s.Stripe.Start(s.ctx, loopback(s.Options.PaymentPort), "")
	if err != nil {
		return err
	}
	s.onClose(stop)
	cfg.Payment.StripeURL, cfg.Payment.StripeKeyRef, cfg.Payment.WebhookSecretRefs = at.URL(), stripeKeySecret, stripeWebhookSecret
	return nil
}

// seedPayments stores the secrets of the simulated account. It may be repeated.
func (s *Stack) seedPayments(ctx context.Context) error {
	if s.Stripe == nil {
		return nil
	}
	for _, secret := range []struct {
		kind        spec.SecretKind
		name, value string
	}{{spec.SecretStripeKey, stripeKeySecret, s.stripe.key}, {spec.SecretStripeWebhook, stripeWebhookSecret, s.stripe.webhookSecret}} {
		if _, err := s.App.Store.SetSecretUse(ctx, secret.name, simulatedUse(secret.kind)); err != nil {
			return fmt.Errorf("state the use of secret %s: %w", secret.name, err)
		}
		if _, err := s.App.Secrets.Put(ctx, secret.name, providers.NewSecret(secret.value)); err != nil {
			return fmt.Errorf("store secret %s: %w", secret.name, err)
		}
	}
	return nil
}
