package paymentjob_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/stripeaccount"
	"github.com/slipway-cloud/slipway/workflows/paymentjob"
)

const asked = 2500

// fixture is a payment session with the workflow, the activities and the database of the product,
// and a simulated account at Stripe.
type fixture struct {
	*testing.T
	store   *db.Store
	owner   *pgx.Conn
	sim     *stripesim.Server
	sync    *paymentsync.Syncer
	project tenancydb.Project
	row     paymentsdb.Session
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dsn := dbtest.Database(t)
	f := &fixture{T: t, store: dbtest.Open(t, dsn), owner: dbtest.Owner(t, dsn)}
	f.sim, f.sync = stripeaccount.Open(t, f.store, "portal.example.com")
	f.project = dbtest.Project(t, f.store)
	var err error
	f.row, err = f.sync.CreateCheckout(t.Context(), payments.Request{
		ProjectID: f.project.ID, AmountMinor: asked, SuccessURL: "https://portal.example.com/", CancelURL: "https://portal.example.com/", Key: "k",
		Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"},
	})
	require.NoError(t, err)
	return f
}

func (f *fixture) payPage() {
	f.Helper()
	require.NoError(f, f.sim.Pay(*f.row.StripeCheckoutSessionID))
}

func (f *fixture) addFault(x stripesim.Fault) {
	f.Helper()
	_, err := f.sim.AddFault(x)
	require.NoError(f, err)
}

func (f *fixture) alterRows(sql string, args ...any) {
	f.Helper()
	_, err := f.owner.Exec(f.Context(), sql, args...)
	require.NoError(f, err, sql)
}

func (f *fixture) session() paymentsdb.Session {
	f.Helper()
	s, err := paymentsdb.Get(f.Context(), f.store, f.row.ID)
	require.NoError(f, err)
	return s
}

func (f *fixture) balances() map[string]int64 {
	f.Helper()
	accounts, err := ledgerdb.ListAccounts(f.Context(), f.store, f.project.BillingAccountID)
	require.NoError(f, err)
	out := map[string]int64{}
	for _, a := range accounts {
		if a.BalanceMinor != 0 {
			out[a.Code] = a.BalanceMinor
		}
	}
	return out
}

func (f *fixture) startJob() db.Job {
	f.Helper()
	var job db.Job
	require.NoError(f, f.store.Tx(f.Context(), func(tx *db.Tx) (err error) {
		job, err = payments.Reconcile(f.Context(), tx, f.sync.Policy, f.row.ID, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "op"})
		return err
	}))
	return job
}

// step is what an operator does to a parked job. before is called first, and after with the answer.
type step struct {
	action     lifecycle.Action
	resolution lifecycle.Resolution
	before     func()
	refused    string // a part of the refusal, "" where it is taken
}

// runJob runs a job on its workflow to its end. The steps follow each other, ten hours apart.
func (f *fixture) runJob(job db.Job, steps ...step) db.Job {
	f.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: []interceptor.WorkerInterceptor{&temporalx.Heartbeats{}}})
	env.RegisterActivity(&projection.Activities{Store: projection.NewDatabase(f.store), PublicURL: "https://slipway.example"})
	env.RegisterActivity(&paymentsact.Activities{
		Sync: f.sync, Log: slog.New(slog.DiscardHandler),
		Ask: func(context.Context, contract.JobKind, string, lifecycle.Action, string, string) error { return nil },
	})
	env.RegisterWorkflow(paymentjob.PaymentReconcile)
	for i, s := range steps {
		env.RegisterDelayedCallback(func() {
			parked, err := f.store.Job(f.Context(), job.ID)
			require.NoError(f, err)
			require.True(f, parked.Status.Parked(), "step %d: the job is %s", i, parked.Status)
			if s.before != nil {
				s.before()
			}
			answered := func(err error) {
				if s.refused == "" {
					require.NoError(f, err)
				} else {
					require.ErrorContains(f, err, s.refused)
				}
			}
			env.UpdateWorkflow(string(s.action), "", &testsuite.TestUpdateCallback{
				OnAccept: func() {}, OnReject: answered, OnComplete: func(_ any, err error) { answered(err) },
			}, contract.ActionRequest{Actor: "op", Reason: "checked with finance", Resolution: s.resolution})
		}, time.Duration(i+1)*10*time.Hour)
	}
	env.ExecuteWorkflow(paymentjob.PaymentReconcile, contract.JobInput{JobID: job.ID, Kind: contract.KindPaymentReconcile, ResourceID: f.row.ID})
	require.True(f, env.IsWorkflowCompleted())
	require.NoError(f, env.GetWorkflowError())
	ended, err := f.store.Job(f.Context(), job.ID)
	require.NoError(f, err)
	return ended
}

// otherAmount has Stripe say that 7 minor units more were paid.
func (f *fixture) otherAmount() {
	f.Helper()
	f.addFault(stripesim.Fault{Name: stripesim.FaultAmount, Count: -1, Params: map[string]string{"by": "7"}})
}

var (
	credited = map[string]int64{"prepaid": asked, "clearing": -asked}
	suspense = map[string]int64{"suspense": asked + 7, "clearing": -asked - 7}
)

// TestReconcile_Credits: what is paid is credited once, and a job of what is not paid ends without
// a credit and leaves the session as it is.
func TestReconcile_Credits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, lifecycle.JobCompleted, f.runJob(f.startJob()).Status)
	require.Equal(t, lifecycle.PaymentInitiated, f.session().Status)
	require.Empty(t, f.balances())
	f.payPage()
	require.Equal(t, lifecycle.JobCompleted, f.runJob(f.startJob()).Status)
	require.Equal(t, lifecycle.PaymentCredited, f.session().Status)
	require.Equal(t, credited, f.balances())
}

// TestReconcile_WaitsForStripe: a job tries for over an hour while Stripe does not answer, and
// credits then without an operator.
func TestReconcile_WaitsForStripe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payPage()
	f.addFault(stripesim.Fault{Name: stripesim.FaultUnavailable, Count: 150, Params: map[string]string{"retry_after": "0"}})
	require.Equal(t, lifecycle.JobCompleted, f.runJob(f.startJob()).Status)
	require.Equal(t, credited, f.balances())
}

// TestReconcile_Adopts: an operator who adopts what Stripe shows says what becomes of the money,
// and it moves once.
func TestReconcile_Adopts(t *testing.T) {
	t.Parallel()
	for resolution, c := range map[lifecycle.Resolution]struct {
		status   lifecycle.PaymentStatus
		resolved lifecycle.Resolution
		balances map[string]int64
	}{
		lifecycle.ResolveCredit:   {lifecycle.PaymentCredited, lifecycle.ResolveCredit, map[string]int64{"prepaid": asked + 7, "clearing": -asked - 7}},
		lifecycle.ResolveSuspense: {lifecycle.PaymentFailedReconcile, "", suspense},
		lifecycle.ResolveWriteOff: {lifecycle.PaymentFailedReconcile, lifecycle.ResolveWriteOff, map[string]int64{"write_off": asked + 7, "clearing": -asked - 7}},
	} {
		t.Run(string(resolution), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.otherAmount()
			f.payPage()
			job := f.startJob()
			ended := f.runJob(job,
				step{action: lifecycle.ActionRetryStage, before: func() {
					require.Equal(t, lifecycle.PaymentFailedReconcile, f.session().Status)
					require.Equal(t, suspense, f.balances())
				}},
				step{action: lifecycle.ActionAdopt, refused: "pass resolution credit, suspense or write_off"},
				step{action: lifecycle.ActionRestartClean, refused: "never undone"},
				step{action: lifecycle.ActionAdopt, resolution: resolution},
			)
			require.Equal(t, lifecycle.JobReconciled, ended.Status)
			s := f.session()
			require.Equal(t, []any{c.status, c.resolved}, []any{s.Status, s.Resolution})
			require.Equal(t, c.balances, f.balances())
			var actors []string
			rows, err := f.store.DBTX().Query(t.Context(), "SELECT actor_id FROM audit_log WHERE resource_id = $1 AND name IN ('resolve', 'resolve_payment')", s.ID)
			require.NoError(t, err)
			actors, err = pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, []string{"engine (claimed: op)"}, actors, "the action came without a proof")
		})
	}
}

// TestReconcile_LedgerRefuses: a credit that the ledger does not take is tried as often as the
// setting says and parks; it is credited when an operator has it tried again, and booked to
// suspense when the operator decides so.
func TestReconcile_LedgerRefuses(t *testing.T) {
	t.Parallel()
	refuses := func(t *testing.T) *fixture {
		f := newFixture(t)
		f.alterRows(`CREATE FUNCTION refuse_credit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused for the test'; END $$`)
		f.alterRows("CREATE TRIGGER refuse_credits BEFORE INSERT ON ledger_transactions FOR EACH ROW WHEN (NEW.kind = 'topup') EXECUTE FUNCTION refuse_credit()")
		f.payPage()
		return f
	}
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		f := refuses(t)
		ended := f.runJob(f.startJob(), step{action: lifecycle.ActionRetryStage, before: func() {
			s := f.session()
			require.Equal(t, []any{lifecycle.PaymentFailedReconcile, lifecycle.PaymentCreditFailed, 3}, []any{s.Status, s.FailureCode, s.CreditAttempts})
			require.Empty(t, f.balances())
			f.alterRows("DROP TRIGGER refuse_credits ON ledger_transactions")
		}})
		require.Equal(t, lifecycle.JobCompleted, ended.Status)
		require.Equal(t, lifecycle.PaymentCredited, f.session().Status)
		require.Equal(t, credited, f.balances())
	})
	t.Run("suspense", func(t *testing.T) {
		t.Parallel()
		f := refuses(t)
		ended := f.runJob(f.startJob(), step{action: lifecycle.ActionAdopt, resolution: lifecycle.ResolveSuspense})
		require.Equal(t, lifecycle.JobReconciled, ended.Status)
		require.Equal(t, map[string]int64{"suspense": asked, "clearing": -asked}, f.balances())
	})
}

// TestReconcile_CancelExpiresNothing: a cancelled job leaves what was paid to an operator, and a
// new job goes on with it.
func TestReconcile_CancelExpiresNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payPage()
	_, err := f.sync.Look(t.Context(), f.row.ID)
	require.NoError(t, err)
	f.addFault(stripesim.Fault{Name: stripesim.FaultUnauthorized, Count: -1})
	ended := f.runJob(f.startJob(), step{action: lifecycle.ActionCancel})
	require.Equal(t, lifecycle.JobCancelled, ended.Status)
	require.Equal(t, lifecycle.PaymentFailedReconcile, f.session().Status)
	var raised int
	require.NoError(t, f.owner.QueryRow(t.Context(), "SELECT count(*) FROM payment_attention WHERE kind = 'payment_mismatch'").Scan(&raised))
	require.Equal(t, 1, raised)
	f.sim.ClearFaults(0)
	require.Equal(t, lifecycle.JobCompleted, f.runJob(f.startJob()).Status)
	require.Equal(t, credited, f.balances())
}

// TestReconcile_OldAndNewTogether: while a rolling upgrade runs, a build that credits in its
// handlers and the job of this build post the same credit: the ledger has one.
func TestReconcile_OldAndNewTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payPage()
	job := f.startJob()
	acts := &paymentsact.Activities{Sync: f.sync, Log: slog.New(slog.DiscardHandler)}
	ref := contract.JobRef{JobID: job.ID, ResourceID: f.row.ID}
	_, err := acts.ReadPayment(t.Context(), ref)
	require.NoError(t, err)
	both := make(chan error, 2)
	go func() { // the build before: Credit in a transaction of a handler
		both <- f.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := payments.Credit(t.Context(), tx, f.row.ID, payments.Actor)
			return err
		})
	}()
	go func() {
		_, err := acts.CreditPayment(t.Context(), ref)
		both <- err
	}()
	require.NoError(t, <-both)
	require.NoError(t, <-both)
	require.Equal(t, credited, f.balances())
	require.Equal(t, lifecycle.JobCompleted, f.runJob(job).Status)
	require.Equal(t, credited, f.balances())
	// The key is the guard also where the row were wrong: the same posting again books nothing.
	err = f.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, isNew, err := ledgerdb.Post(t.Context(), tx, ledgerdb.Posting{
			Key: "topup:" + f.row.ID, Kind: ledgerdb.KindTopup, BillingAccountID: f.project.BillingAccountID, Actor: payments.Actor.ID,
			Legs: []ledgerdb.Leg{{Code: ledgerdb.CodePrepaid, AmountMinor: asked}, {Code: ledgerdb.CodeClearing, AmountMinor: -asked}},
		})
		require.False(t, isNew)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, credited, f.balances())
}

// TestStages_AreThoseOfTheKind: the stages are those that the table of kinds names, and those that
// can be adopted are the observed ones.
func TestStages_AreThoseOfTheKind(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range paymentjob.ReconcileJob(contract.JobInput{}).Stages {
		names = append(names, s.Name)
		require.Equal(t, s.Observe != nil, lifecycle.UnobservedStage(s.Name) == "", s.Name)
	}
	require.Equal(t, contract.Stages(contract.KindPaymentReconcile), names)
}
