package server

import (
	"context"
	"sync"
	"time"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
)

// PaymentPolicy returns what the settings say of payments.
func PaymentPolicy(c config.Config) payments.Policy {
	p := c.Payment
	return payments.Policy{
		Enabled: p.Enabled(), Live: p.StripeLive, SessionTTL: p.SessionTTL(), CreditMaxAttempts: p.CreditMaxAttempts, MinAmount: int64(p.MinAmount),
		MaxAmount: int64(p.MaxAmount), SessionsPerHour: p.SessionsPerHour,
		AccountSessionsPerHour: p.AccountSessionsPerHour, RedirectHosts: p.Hosts(c.API.PublicURL),
	}
}

// clientLife is how long a client of the payment provider is used: a rotated key is used after
// that.
const clientLife = time.Minute

// paymentClient keeps a client of the payment provider for a while, with its connections.
type paymentClient struct {
	connect func(context.Context) (providers.Payments, error)
	mu      sync.Mutex
	client  providers.Payments
	until   time.Time
}

func (p *paymentClient) get(ctx context.Context) (providers.Payments, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil && time.Now().Before(p.until) {
		return p.client, nil
	}
	client, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	p.client, p.until = client, time.Now().Add(clientLife)
	return client, nil
}

// The limits, in each process, of questions to the payment provider for those who wait for their
// payments: a billing account once a second, and all of them ten times a second. The provider
// answers 100 requests a second.
const (
	asksOfAccount, burstOfAccount = 1, 30
	asksOfAll, burstOfAll         = 10, 60
)

// mayAsk returns what bounds the questions for those who wait for their payments.
func mayAsk(now func() time.Time) func(accountID string) bool {
	account, all := ratelimit.New(asksOfAccount, burstOfAccount, now), ratelimit.New(asksOfAll, burstOfAll, now)
	return func(accountID string) bool {
		ok, _ := account.AllowName(accountID)
		if ok {
			ok, _ = all.AllowAll()
		}
		return ok
	}
}

// Payments returns what keeps payments in step with the payment provider.
func (a *App) Payments() *paymentsync.Syncer {
	p := a.Config.Payment
	client := &paymentClient{connect: func(ctx context.Context) (providers.Payments, error) {
		return stripe.Opener{}.Connect(ctx, a.Secrets, stripe.Settings{URL: p.StripeURL, KeyRef: p.StripeKeyRef, Live: p.StripeLive})
	}}
	return &paymentsync.Syncer{Store: a.Store, Connect: client.get, Policy: PaymentPolicy(a.Config), Log: a.Log, MayAsk: mayAsk(time.Now)}
}

// paymentActivities reconcile payments, and compare them with the payment provider.
func (a *App) paymentActivities() *paymentsact.Activities {
	jobs := temporalx.Jobs{Client: a.Temporal, TaskQueue: a.Config.Temporal.TaskQueue}
	return &paymentsact.Activities{Sync: a.Payments(), Log: a.Log, Ask: jobs.Ask}
}
