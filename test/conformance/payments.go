package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// PaymentsFixture is one account at a payment provider, in its test mode.
type PaymentsFixture struct {
	Opener  providers.PaymentsOpener
	Account providers.PaymentsAccount
	// WrongKey has the form of a key of the account's mode and is none of its.
	WrongKey providers.Secret
	// Pay plays the payer on the page of a session; nil where nobody does.
	Pay func(t *testing.T, sessionID string)
	// Now is the provider's clock; nil is that of the process.
	Now func() time.Time
	// CallTimeout bounds one call; 0 is one minute.
	CallTimeout time.Duration
	// Settle polls cond until it holds and fails the test after the fixture's own patience.
	Settle func(t *testing.T, what string, cond func() bool)
}

// ExercisePayments takes sessions through their life at a payment provider, through
// providers.Payments only. It holds for the simulator, and for Stripe's test mode as far as nobody
// has to use a page. open is called once a test.
func ExercisePayments(t *testing.T, open func(t *testing.T) PaymentsFixture) {
	t.Helper()
	t.Run("session", func(t *testing.T) { newPaymentsRun(t, open(t)).session() })
	t.Run("keys", func(t *testing.T) { newPaymentsRun(t, open(t)).keys() })
	t.Run("unknown", func(t *testing.T) { newPaymentsRun(t, open(t)).unknown() })
	t.Run("wrong key", func(t *testing.T) { newPaymentsRun(t, open(t)).wrongKey() })
	t.Run("paid", func(t *testing.T) {
		f := open(t)
		if f.Pay == nil {
			t.Log("nobody uses the page of this account: what follows a payment is not checked")
			return
		}
		newPaymentsRun(t, f).paid()
	})
}

type paymentsRun struct {
	t     *testing.T
	f     PaymentsFixture
	p     providers.Payments
	began time.Time
	count int
}

func newPaymentsRun(t *testing.T, f PaymentsFixture) *paymentsRun {
	t.Helper()
	require.NotNil(t, f.Settle, "the fixture needs a way to wait")
	if f.CallTimeout == 0 {
		f.CallTimeout = time.Minute
	}
	if f.Now == nil {
		f.Now = time.Now
	}
	p, err := f.Opener.OpenPayments(f.Account)
	require.NoError(t, err)
	return &paymentsRun{t: t, f: f, p: p, began: f.Now()}
}

func (r *paymentsRun) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), r.f.CallTimeout)
	r.t.Cleanup(cancel)
	return ctx
}

// wish is a valid session with a key of its own.
func (r *paymentsRun) wish() providers.SessionCreate {
	r.count++
	id := fmt.Sprintf("conformance-%d-%d", time.Now().UnixNano(), r.count)
	return providers.SessionCreate{
		Key: id + ":0", Reference: id, Installation: "conformance", Amount: 2500, Currency: "USD", Product: "Prepaid balance <&> \"quoted\"",
		SuccessURL: "https://slipway.example/paid?session={CHECKOUT_SESSION_ID}", CancelURL: "https://slipway.example/cancelled",
		Expires: r.f.Now().Add(time.Hour),
	}
}

func (r *paymentsRun) session() {
	t, in := r.t, r.wish()
	made, err := r.p.CreateSession(r.ctx(), in)
	require.NoError(t, err)
	require.Equal(t, providers.SessionOpen, made.Status)
	require.False(t, made.Paid)
	require.NotEmpty(t, made.URL)
	require.Equal(t, in.Amount, made.Amount)
	require.Equal(t, in.Currency, made.Currency)
	require.Equal(t, in.Reference, made.Reference)
	require.Equal(t, in.Installation, made.Installation)
	require.Equal(t, r.f.Account.Live, made.Live)
	require.Equal(t, in.Expires.Unix(), made.Expires.Unix())

	again, err := r.p.Session(r.ctx(), made.ID)
	require.NoError(t, err)
	require.Equal(t, made, again)

	found, err := r.p.Sessions(r.ctx(), providers.PaymentQuery{From: r.began.Add(-time.Minute)})
	require.NoError(t, err)
	require.Contains(t, found.Items, made, "a session is found by its time: that is how a lost answer is repaired")

	closed, err := r.p.ExpireSession(r.ctx(), made.ID)
	require.NoError(t, err)
	require.Equal(t, providers.SessionExpired, closed.Status)
	require.Empty(t, closed.URL)
	// The same call once more has the same key, and therefore the same answer.
	again, err = r.p.ExpireSession(r.ctx(), made.ID)
	require.NoError(t, err)
	require.Equal(t, closed.ID, again.ID)

	r.f.Settle(t, "the event of the expiry", func() bool {
		page, err := r.p.Events(r.ctx(), providers.EventQuery{
			PaymentQuery: providers.PaymentQuery{From: r.began.Add(-time.Minute)}, Types: []string{"checkout.session.expired"},
		})
		require.NoError(t, err)
		for _, e := range page.Items {
			if e.ObjectID == made.ID {
				require.Equal(t, "checkout.session", e.ObjectKind)
				require.True(t, e.KnownRelease, "the account's release is %s", e.Release)
				return true
			}
		}
		return false
	})
}

// keys shows that a key makes one session, and that it cannot make another.
func (r *paymentsRun) keys() {
	t, in := r.t, r.wish()
	first, err := r.p.CreateSession(r.ctx(), in)
	require.NoError(t, err)
	again, err := r.p.CreateSession(r.ctx(), in)
	require.NoError(t, err)
	require.Equal(t, first, again)

	other := in
	other.Amount++
	_, err = r.p.CreateSession(r.ctx(), other)
	requireKind(t, providers.KindInvalid, "the same key for another amount", err)
	require.True(t, providers.IsKeySpent(err), "%v", err)

	other.Key = in.Key + "1"
	second, err := r.p.CreateSession(r.ctx(), other)
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)

	tooSmall := r.wish()
	tooSmall.Amount = 1
	_, err = r.p.CreateSession(r.ctx(), tooSmall)
	requireKind(t, providers.KindInvalid, "one cent", err)
	require.False(t, providers.IsKeySpent(err), "a refusal of the parameters does not spend the key")
}

func (r *paymentsRun) unknown() {
	t := r.t
	_, err := r.p.Session(r.ctx(), "cs_test_a1doesnotexist")
	requireKind(t, providers.KindNotFound, "an unknown session", err)
	_, err = r.p.ExpireSession(r.ctx(), "cs_test_a1doesnotexist")
	requireKind(t, providers.KindNotFound, "to expire an unknown session", err)
	_, err = r.p.Refund(r.ctx(), "re_doesnotexist")
	requireKind(t, providers.KindNotFound, "an unknown refund", err)
	_, err = r.p.Dispute(r.ctx(), "du_doesnotexist")
	requireKind(t, providers.KindNotFound, "an unknown dispute", err)
	_, err = r.p.Events(r.ctx(), providers.EventQuery{PaymentQuery: providers.PaymentQuery{After: "evt_doesnotexist"}})
	requireKind(t, providers.KindNotFound, "a cursor that is too old", err)
	_, err = r.p.CreateRefund(r.ctx(), providers.RefundCreate{Key: r.wish().Key, PaymentID: "pi_doesnotexist", Reference: "refund_1", Amount: 100})
	requireKind(t, providers.KindNotFound, "a refund of an unknown payment", err)
	_, err = r.p.Session(r.ctx(), "../v1/charges")
	requireKind(t, providers.KindInvalid, "an id that is a path", err)
}

func (r *paymentsRun) wrongKey() {
	account := r.f.Account
	account.Key = r.f.WrongKey
	p, err := r.f.Opener.OpenPayments(account)
	require.NoError(r.t, err)
	_, err = p.Sessions(r.ctx(), providers.PaymentQuery{})
	requireKind(r.t, providers.KindUnauthorized, "a wrong key", err)
	require.NotContains(r.t, err.Error(), account.Key.Reveal())
}

// paid checks what follows a payment: the paid session, its movement, and refunds.
func (r *paymentsRun) paid() {
	t, in := r.t, r.wish()
	made, err := r.p.CreateSession(r.ctx(), in)
	require.NoError(t, err)
	r.f.Pay(t, made.ID)
	var done providers.PaymentSession
	r.f.Settle(t, "the payment", func() bool {
		done, err = r.p.Session(r.ctx(), made.ID)
		require.NoError(t, err)
		return done.Paid
	})
	require.Equal(t, providers.SessionComplete, done.Status)
	require.NotEmpty(t, done.PaymentID)
	_, err = r.p.ExpireSession(r.ctx(), made.ID)
	requireKind(t, providers.KindStateConflict, "to expire a paid session", err)

	page, err := r.p.Movements(r.ctx(), providers.PaymentQuery{From: r.began.Add(-time.Minute)})
	require.NoError(t, err)
	require.NotEmpty(t, page.Items)
	require.Equal(t, in.Amount, page.Items[0].Amount)
	require.Equal(t, in.Currency, page.Items[0].Currency)

	part := providers.RefundCreate{Key: in.Key + ":refund", PaymentID: done.PaymentID, Reference: "refund-1", Amount: 900}
	refund, err := r.p.CreateRefund(r.ctx(), part)
	require.NoError(t, err)
	require.Equal(t, part.Amount, refund.Amount)
	require.Equal(t, part.Reference, refund.Reference)
	again, err := r.p.CreateRefund(r.ctx(), part)
	require.NoError(t, err)
	require.Equal(t, refund.ID, again.ID, "the key of a refund returns the money once")
	read, err := r.p.Refund(r.ctx(), refund.ID)
	require.NoError(t, err)
	require.Equal(t, refund, read)

	rest := part
	rest.Key, rest.Amount = in.Key+":more", in.Amount
	_, err = r.p.CreateRefund(r.ctx(), rest)
	requireKind(t, providers.KindStateConflict, "to refund more than is left", err)
	all, err := r.p.Refunds(r.ctx(), done.PaymentID, providers.PaymentQuery{})
	require.NoError(t, err)
	require.Len(t, all.Items, 1)

	r.cursor(made.ID)
}

// cursor reads the events after one of them: each newer one, in the order of their making.
func (r *paymentsRun) cursor(sessionID string) {
	t := r.t
	newest, err := r.p.Events(r.ctx(), providers.EventQuery{PaymentQuery: providers.PaymentQuery{From: r.began.Add(-time.Minute)}})
	require.NoError(t, err)
	require.False(t, newest.More)
	oldest := newest.Items[len(newest.Items)-1]
	var after []string
	completed := 0
	for cursor := oldest.ID; ; {
		page, err := r.p.Events(r.ctx(), providers.EventQuery{PaymentQuery: providers.PaymentQuery{After: cursor, Limit: 2}})
		require.NoError(t, err)
		for _, e := range page.Items {
			after = append(after, e.ID)
			completed += map[bool]int{true: 1}[e.Type == "checkout.session.completed" && e.ObjectID == sessionID]
		}
		if !page.More {
			break
		}
		cursor = page.Items[len(page.Items)-1].ID
	}
	require.Equal(t, 1, completed)
	require.Len(t, after, len(newest.Items)-1)
	for i, id := range after {
		require.Equal(t, newest.Items[len(newest.Items)-2-i].ID, id, "the events after a cursor come in the order of their making")
	}
}
