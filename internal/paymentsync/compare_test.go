package paymentsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// narrow is a payment provider that lists one session at a time and keeps the cursors it was asked with.
type narrow struct {
	providers.Payments
	asked   []string
	listed  func()
	refunds error
}

func (c *narrow) Sessions(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentSession], error) {
	q.Limit, c.asked = 1, append(c.asked, q.Before)
	page, err := c.Payments.Sessions(ctx, q)
	c.listed()
	return page, err
}

func (c *narrow) Refunds(ctx context.Context, payment string, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
	if c.refunds != nil {
		return providers.PaymentPage[providers.PaymentRefund]{}, c.refunds
	}
	return c.Payments.Refunds(ctx, payment, q)
}

// TestCompare_GoesOnWhereItStopped: a comparison whose time is over, or that fails at a page, keeps its
// place, so that a list of any length comes to its end.
func TestCompare_GoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(c *narrow, cancel func()){
		"the time of the pass is over": func(_ *narrow, cancel func()) { cancel() },
		"the provider has no refunds of a payment": func(c *narrow, _ func()) {
			c.refunds = &providers.Error{Kind: providers.KindNotFound, Op: "stripe.refunds", Message: "no such payment"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var pages []paymentsdb.Session
			for _, key := range []string{"1", "2", "3"} {
				s := r.open(key)
				require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
				pages = append(pages, s)
			}
			client := &narrow{Payments: r.client}
			r.sync.Connect = func(context.Context) (providers.Payments, error) { return client, nil }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client.listed = func() {
				if len(client.asked) == 2 {
					stop(client, cancel)
				}
			}
			_, err := r.sync.CompareSessions(ctx)
			require.Error(t, err)
			control, err := paymentsdb.ReadControl(t.Context(), r.store)
			require.NoError(t, err)
			require.NotNil(t, control.SessionsUntil)
			require.Equal(t, *pages[2].StripeCheckoutSessionID, control.SessionsPage, "the newest was compared")
			client.asked, client.refunds, client.listed = nil, nil, func() {}
			r.alter("UPDATE payment_sessions SET next_look_at = now() WHERE next_look_at IS NOT NULL")
			_, err = r.sync.CompareSessions(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{*pages[2].StripeCheckoutSessionID, *pages[1].StripeCheckoutSessionID}, client.asked, "it went on there")
			for _, s := range pages {
				require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
			}
			control, err = paymentsdb.ReadControl(t.Context(), r.store)
			require.NoError(t, err)
			require.Nil(t, control.SessionsUntil, "the list came to its end")
		})
	}
}

// TestCompare_StopsBeforeItsDeadline: a pass that has little time left takes nothing more, does not fail,
// and is due again.
func TestCompare_StopsBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open("k")
	require.NoError(t, r.sim.Pay(*s.StripeCheckoutSessionID))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	n, err := r.sync.CompareSessions(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	control, err := paymentsdb.ReadControl(t.Context(), r.store)
	require.NoError(t, err)
	require.NotNil(t, control.SessionsUntil)
	require.Empty(t, r.compare())
	require.Equal(t, lifecycle.PaymentCredited, r.get(s.ID).Status)
}
