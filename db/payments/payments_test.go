package paymentsdb_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var customer = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}

func newSession(t *testing.T, store *db.Store) paymentsdb.Session {
	t.Helper()
	p := dbtest.Project(t, store)
	var s paymentsdb.Session
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		s, err = paymentsdb.Create(t.Context(), tx, paymentsdb.New{
			ID: db.NewID("pay"), BillingAccountID: p.BillingAccountID, ProjectID: p.ID, RequestedBy: customer.ID, Key: db.NewID("key"), RequestHash: []byte("h"),
			AmountMinor: 2500, Currency: "USD", SuccessURL: "https://x.example/", CancelURL: "https://x.example/", ExpiresAt: time.Now().Add(time.Hour),
			NextLook: time.Now(), Actor: customer,
		})
		return err
	}))
	return s
}

// TestEdges_AreThoseOfTheDatabase compares every pair of states with the machine: the database
// itself refuses what the lifecycle does not have.
func TestEdges_AreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	s := newSession(t, store)
	const page = "stripe_checkout_session_id = 'cs_1', completed_at = now()"
	columns := map[lifecycle.PaymentStatus]string{
		lifecycle.PaymentInitiated: "url = ''", lifecycle.PaymentCheckoutCompleted: page, lifecycle.PaymentExpired: "url = ''",
		lifecycle.PaymentFailedReconcile: page + ", failure_code = 'credit_failed'",
		lifecycle.PaymentCredited:        page + ", payment_status = 'paid', received_minor = 2500, received_currency = 'USD', credited_amount_minor = 2500, ledger_entry_id = 1",
	}
	refused := func(from, to lifecycle.PaymentStatus) bool {
		tx, err := owner.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		for _, sql := range []string{
			"SET LOCAL session_replication_role = replica", "UPDATE payment_sessions SET status = '" + string(from) + "', " + columns[from] + " WHERE id = '" + s.ID + "'",
			"SET LOCAL session_replication_role = origin",
		} {
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		_, err = tx.Exec(t.Context(), "UPDATE payment_sessions SET version = version + 1, status = $2 WHERE id = $1", s.ID, to)
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "SW001"
	}
	edges := lifecycle.Payment.Edges()
	for _, from := range lifecycle.Payment.States {
		for _, to := range lifecycle.Payment.States {
			if from.State != to.State {
				legal := slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == string(from.State) && e.To == string(to.State) })
				require.Equal(t, legal, !refused(from.State, to.State), "%s to %s", from.State, to.State)
			}
		}
	}
}

// TestSessions_KeepTheirFacts: what was asked for and booked cannot change, a status needs an audit
// row, and no status says more than the columns do, whatever a program does.
func TestSessions_KeepTheirFacts(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	s := newSession(t, store)
	for sql, code := range map[string]string{
		"UPDATE payment_sessions SET requested_amount_minor = 1":                           "SW001",
		"UPDATE payment_sessions SET live = true":                                          "SW001",
		"UPDATE payment_sessions SET expires_at = now() + interval '9 days'":               "SW001",
		"UPDATE payment_sessions SET status = 'expired'":                                   "SW001",
		"UPDATE payment_sessions SET status = 'expired', version = version + 1":            "SW002",
		"UPDATE payment_sessions SET status = 'credited', version = version + 1":           "SW001",
		"UPDATE payment_sessions SET status = 'checkout_completed', version = version + 1": "23514",
		"UPDATE payment_sessions SET ledger_entry_id = 7":                                  "23514",
		"UPDATE payment_sessions SET resolution = 'credit'":                                "23514",
		"DELETE FROM payment_sessions":                                                     "42501",
		"DELETE FROM payment_refunds":                                                      "42501",
		"DELETE FROM payment_movements":                                                    "42501",
		"INSERT INTO payment_control DEFAULT VALUES":                                       "42501",
		"INSERT INTO payment_disputes (id, session_id, billing_account_id, source, amount_minor, currency, state) VALUES ('du', '" + s.ID + "', '" + s.BillingAccountID + "', 'revenue', 1, 'USD', 'open')": "23514",
	} {
		_, err := store.DBTX().Exec(t.Context(), sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		require.Equal(t, code, pg.Code, sql)
	}
	err := store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := paymentsdb.Create(t.Context(), tx, paymentsdb.New{
			ID: db.NewID("pay"), BillingAccountID: s.BillingAccountID, ProjectID: s.ProjectID, RequestedBy: s.RequestedBy, Key: s.IdempotencyKey, RequestHash: []byte("h"),
			AmountMinor: 2500, Currency: "USD", SuccessURL: "x", CancelURL: "x", ExpiresAt: time.Now(), NextLook: time.Now(), Actor: customer,
		})
		return err
	})
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict, "one session for a user and a key")
}

// TestSessions_AreSeenByTheirProject: a member of another project sees none of them, and nothing
// else of payments.
func TestSessions_AreSeenByTheirProject(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	s, other := newSession(t, store), newSession(t, store)
	require.NoError(t, store.ForProject(t.Context(), s.ProjectID, func(tx *db.ProjectTx) error {
		rows, err := paymentsdb.List(t.Context(), tx, paymentsdb.Filter{}, "", 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, s.ID, rows[0].ID)
		_, err = paymentsdb.GetOfProject(t.Context(), tx, s.ProjectID, other.ID)
		require.ErrorIs(t, err, db.ErrNotFound)
		return nil
	}))
	for _, table := range []string{"stripe_events", "payment_refunds", "payment_disputes", "payment_control", "payment_movements", "payment_differences"} {
		err := store.ForProject(t.Context(), s.ProjectID, func(tx *db.ProjectTx) error {
			_, err := tx.DBTX().Exec(t.Context(), "SELECT 1 FROM "+table)
			return err
		})
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, table)
		require.Equal(t, "42501", pg.Code, table)
	}
}

// TestEvents_AreClaimedOnce: an event that one process has is not given to another until its lease
// ends, and one that comes again is known.
func TestEvents_AreClaimedOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	put := func(id string) (isNew bool) {
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			isNew, err = paymentsdb.StoreEvent(t.Context(), tx, paymentsdb.NewEvent{
				ID: id, Type: "x", Source: paymentsdb.FromWebhook, Body: []byte("{}"), At: time.Now(), State: paymentsdb.EventPending,
			})
			return err
		}))
		return isNew
	}
	require.True(t, put("evt_1"))
	require.False(t, put("evt_1"))
	put("evt_2")
	claim := func(lease time.Duration) int {
		events, err := paymentsdb.ClaimEvents(t.Context(), store, 10, lease)
		require.NoError(t, err)
		return len(events)
	}
	require.Equal(t, 2, claim(0))
	require.Equal(t, 2, claim(time.Hour), "the lease has ended")
	require.Zero(t, claim(time.Hour))
	require.NoError(t, paymentsdb.FinishEvent(t.Context(), store, "evt_1", paymentsdb.EventProcessed, "", ""))
	require.NoError(t, paymentsdb.PostponeEvent(t.Context(), store, "evt_2", 0, "again"))
	require.Equal(t, 1, claim(0))
	counts, err := paymentsdb.CountEvents(t.Context(), store)
	require.NoError(t, err)
	require.Equal(t, map[paymentsdb.EventState]int64{paymentsdb.EventPending: 1, paymentsdb.EventProcessed: 1}, counts)
	prune := func(before time.Time) int64 {
		n, err := paymentsdb.PruneEvents(t.Context(), store, before)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, prune(time.Now().Add(-time.Hour)))
	require.Equal(t, int64(2), prune(time.Now().Add(time.Hour)), "an event goes at its age, whatever became of it")
}
