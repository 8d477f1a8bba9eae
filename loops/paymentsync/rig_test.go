package paymentsync_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/paymentjobs"
)

var (
	customer = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}
	operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"}
)

const (
	paid = 2500
	host = "portal.example.com"
)

// must is the part of *testing.T that a rig needs; *rapid.T has it too.
type must interface {
	require.TestingT
	Helper()
}

// rig is an installation with one project and a simulated account at Stripe.
type rig struct {
	must
	ctx     context.Context
	store   *db.Store
	owner   *pgx.Conn
	sim     *stripesim.Server
	clock   *simhw.Clock
	client  providers.Payments
	sync    *paymentsync.Syncer
	jobs    paymentjobs.Runner
	project tenancydb.Project
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dsn := dbtest.Database(t)
	return openRig(t, t, dbtest.Open(t, dsn), dbtest.Owner(t, dsn))
}

// openRig opens an account at Stripe of its own beside a database that others use too.
func openRig(t *testing.T, m must, store *db.Store, owner *pgx.Conn) *rig {
	t.Helper()
	clock := simhw.NewClock(1)
	sim, err := stripesim.New(stripesim.Options{Key: "sk_test_simulated", Clock: clock})
	require.NoError(t, err)
	at, stop, err := sim.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	client, err := stripe.Opener{Options: stripe.Options{Wait: time.Millisecond}}.OpenPayments(providers.PaymentsAccount{
		Rule: providers.SimulatedAddresses(), URL: at.URL(), Key: providers.NewSecret("sk_test_simulated"),
	})
	require.NoError(t, err)
	r := &rig{must: m, ctx: t.Context(), store: store, owner: owner, sim: sim, clock: clock, client: client, project: dbtest.Project(t, store)}
	r.sync = &paymentsync.Syncer{
		Store: store, Connect: func(context.Context) (providers.Payments, error) { return client, nil }, Log: slog.New(slog.DiscardHandler),
		Policy: payments.Policy{
			Enabled: true, SessionTTL: 24 * time.Hour, CreditMaxAttempts: 3, MinAmount: 5, MaxAmount: 10000, SessionsPerHour: 10, AccountSessionsPerHour: 12, RedirectHosts: []string{host},
		},
	}
	r.jobs = paymentjobs.Runner{Store: store, Acts: &paymentsact.Activities{
		Sync: r.sync, Log: r.sync.Log, Ask: func(ctx context.Context, _ contract.JobKind, jobID string, _ lifecycle.Action, _, _ string) error {
			return r.jobs.Run(ctx, jobID)
		},
	}}
	return r
}

// fulfil has a session compared with Stripe and runs its job, if it has one.
func (r *rig) fulfil(ctx context.Context, id string) (paymentsdb.Session, error) {
	r.Helper()
	if _, err := r.sync.Look(ctx, id); err != nil {
		return paymentsdb.Session{}, err
	}
	if err := r.runJobs(ctx); err != nil {
		return paymentsdb.Session{}, err
	}
	return paymentsdb.Get(ctx, r.store, id)
}

// runJobs runs the jobs of payments that are not parked, of this rig's project alone: others may
// have an account at Stripe of their own.
func (r *rig) runJobs(ctx context.Context) error {
	rows, err := r.owner.Query(r.ctx, `SELECT j.id FROM jobs j JOIN payment_sessions s ON s.id = j.resource_id
		WHERE j.status IN ('pending', 'running') AND s.project_id = $1 ORDER BY j.id`, r.project.ID)
	require.NoError(r, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r, err)
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, r.jobs.Run(ctx, id))
	}
	return failed
}

// jobOf returns the newest job of a session.
func (r *rig) jobOf(sessionID string) db.Job {
	r.Helper()
	jobs, err := r.store.ListJobs(r.ctx, db.JobFilter{ResourceKind: paymentsdb.Resource, ResourceID: sessionID}, "", 1)
	require.NoError(r, err)
	require.Len(r, jobs, 1)
	return jobs[0]
}

func (r *rig) request(key string) payments.Request {
	return payments.Request{
		ProjectID: r.project.ID, AmountMinor: paid, SuccessURL: "https://" + host + "/paid?session={CHECKOUT_SESSION_ID}", CancelURL: "https://" + host + "/",
		Key: key, Actor: customer,
	}
}

// open returns a session whose page is open.
func (r *rig) open(key string) paymentsdb.Session {
	r.Helper()
	s, err := r.sync.CreateCheckout(r.ctx, r.request(key))
	require.NoError(r, err)
	require.Equal(r, lifecycle.PaymentInitiated, s.Status)
	require.NotNil(r, s.StripeCheckoutSessionID)
	require.NotEmpty(r, s.URL)
	return s
}

// credited returns a session that is paid and credited.
func (r *rig) credited(key string) paymentsdb.Session {
	r.Helper()
	s := r.open(key)
	require.NoError(r, r.sim.Pay(*s.StripeCheckoutSessionID))
	s, err := r.fulfil(r.ctx, s.ID)
	require.NoError(r, err)
	require.Equal(r, lifecycle.PaymentCredited, s.Status)
	return s
}

func (r *rig) get(id string) paymentsdb.Session {
	r.Helper()
	s, err := paymentsdb.Get(r.ctx, r.store, id)
	require.NoError(r, err)
	return s
}

// balances returns the balances of the ledger accounts of the billing account, without those of
// zero.
func (r *rig) balances() map[string]int64 {
	r.Helper()
	accounts, err := ledgerdb.ListAccounts(r.ctx, r.store, r.project.BillingAccountID)
	require.NoError(r, err)
	out := map[string]int64{}
	for _, a := range accounts {
		if a.BalanceMinor != 0 {
			out[a.Code] = a.BalanceMinor
		}
	}
	return out
}

// alter runs SQL as the owner of the database.
func (r *rig) alter(sql string, args ...any) {
	r.Helper()
	_, err := r.owner.Exec(r.ctx, sql, args...)
	require.NoError(r, err, sql)
}

func (r *rig) count(sql string, args ...any) (n int64) {
	r.Helper()
	require.NoError(r, r.owner.QueryRow(r.ctx, sql, args...).Scan(&n), sql)
	return n
}

func (r *rig) fault(f stripesim.Fault) {
	r.Helper()
	_, err := r.sim.AddFault(f)
	require.NoError(r, err)
}

func (r *rig) tx(fn func(*db.Tx) error) error { return r.store.Tx(r.ctx, fn) }

// events returns what Stripe would deliver, oldest first.
func (r *rig) events() []providers.PaymentEvent {
	r.Helper()
	var out []providers.PaymentEvent
	q := providers.EventQuery{}
	for {
		page, err := r.client.Events(r.ctx, q)
		require.NoError(r, err)
		out = append(out, page.Items...)
		if !page.More {
			slices.Reverse(out)
			return out
		}
		q.Before = page.Items[len(page.Items)-1].ID
	}
}

// eventsOf returns the events of a type, oldest first.
func (r *rig) eventsOf(kind string) []providers.PaymentEvent {
	r.Helper()
	return slices.DeleteFunc(r.events(), func(e providers.PaymentEvent) bool { return e.Type != kind })
}

// receive stores events as the webhook does.
func (r *rig) receive(events ...providers.PaymentEvent) {
	r.Helper()
	for _, e := range events {
		body, err := json.Marshal(map[string]any{"id": e.ID, "object": "event", "type": e.Type, "data": map[string]any{"object": e.Object}})
		require.NoError(r, err)
		require.NoError(r, r.tx(func(tx *db.Tx) error {
			_, err := payments.ReceiveEvent(r.ctx, tx, paymentsdb.NewEvent{
				ID: e.ID, Type: e.Type, ObjectKind: e.ObjectKind, ObjectID: e.ObjectID, Live: e.Live, Release: e.Release, Source: paymentsdb.FromWebhook, Body: body,
				At: e.Created,
			}, e.Live)
			return err
		}))
	}
}

// deliver stores events and processes them, one pass for each, also those that were postponed, and
// runs the jobs that they start.
func (r *rig) deliver(events ...providers.PaymentEvent) error {
	r.Helper()
	for _, e := range events {
		r.receive(e)
		if err := r.runJobs(r.ctx); err != nil {
			return err
		}
		r.alter("UPDATE stripe_events SET next_at = now() WHERE state = 'pending'")
		if _, err := r.sync.ProcessEvents(r.ctx); err != nil {
			return err
		}
		if err := r.runJobs(r.ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) eventState(id string) (state string) {
	r.Helper()
	require.NoError(r, r.owner.QueryRow(r.ctx, "SELECT state FROM stripe_events WHERE id = $1", id).Scan(&state))
	return state
}

// syncNow has everything of the project looked at that is not at its end, and runs the jobs.
func (r *rig) syncNow() error {
	r.Helper()
	r.alter("UPDATE payment_sessions SET next_look_at = now() WHERE next_look_at IS NOT NULL AND project_id = $1", r.project.ID)
	const ofProject = " SET next_look_at = now() WHERE next_look_at IS NOT NULL AND session_id IN (SELECT id FROM payment_sessions WHERE project_id = $1)"
	r.alter("UPDATE payment_refunds"+ofProject, r.project.ID)
	r.alter("UPDATE payment_disputes"+ofProject, r.project.ID)
	_, err := r.jobs.Acts.SyncPayments(r.ctx)
	return errors.Join(err, r.runJobs(r.ctx))
}

// compare reads all lists of Stripe as the nightly comparison does, and returns the differences.
func (r *rig) compare() []paymentsdb.Difference {
	r.Helper()
	_, err := r.sync.CompareSessions(r.ctx)
	require.NoError(r, err)
	require.NoError(r, r.runJobs(r.ctx))
	require.NoError(r, r.sync.CompareTotals(r.ctx))
	found, err := paymentsdb.ListDifferences(r.ctx, r.store, "", "", 100)
	require.NoError(r, err)
	return found
}

// page returns a page of an installation that is paid, and that no session of ours has.
func (r *rig) page(key, installation string) string {
	r.Helper()
	made, err := r.client.CreateSession(r.ctx, providers.SessionCreate{
		Key: key, Reference: "pay_" + key, Installation: installation, Amount: 900, Currency: "USD", Product: "x", SuccessURL: "https://" + host + "/",
		CancelURL: "https://" + host + "/", Expires: time.Now().Add(time.Hour),
	})
	require.NoError(r, err)
	require.NoError(r, r.sim.Pay(made.ID))
	return made.ID
}

// topups counts the credits of a session in the ledger.
func (r *rig) topups(id string) int64 {
	return r.count("SELECT count(*) FROM ledger_transactions WHERE key = 'topup:' || $1::text", id)
}

// spend takes from the balance as a charge does.
func (r *rig) spend(minor int64) {
	r.Helper()
	require.NoError(r, r.tx(func(tx *db.Tx) error {
		_, _, err := ledgerdb.Post(r.ctx, tx, ledgerdb.Posting{
			Key: db.NewID("spent"), Kind: ledgerdb.KindAdjustment, BillingAccountID: r.project.BillingAccountID, Reason: "spent",
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: -minor}, {Code: ledgerdb.CodeAdjustments, AmountMinor: minor}},
		})
		return err
	}))
}
