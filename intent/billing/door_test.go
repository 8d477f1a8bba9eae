package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/billing"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// setThresholds replaces the thresholds of the account.
func (s *shop) setThresholds(t ledgerdb.Thresholds) {
	s.Helper()
	b := s.balance()
	require.NoError(s, s.tx(func(tx *db.Tx) error { return ledgerdb.SetThresholds(s.Context(), tx, s.account, b.Version, t) }))
}

// tickAt charges up to a moment, also when the minute changes meanwhile.
func (s *shop) tickAt(boundary time.Time) ledgerdb.TickReport {
	s.Helper()
	r, err := ledgerdb.Tick(s.Context(), s.store, ledgerdb.TickInput{Boundary: boundary})
	require.NoError(s, err)
	return r
}

// TestCreate_CreditLine claims on a credit line, with an account to which nothing was posted, until
// what is held back has used the line up.
func TestCreate_CreditLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(500)
	s.freeNodes(3)
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	_, err := s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	line := int64(-1001)
	s.setThresholds(ledgerdb.Thresholds{DepletedMinor: &line})
	require.Equal(t, int64(1001), s.balance().AvailableMinor())
	require.Equal(t, string(lifecycle.BalanceLow), s.balance().State, "the state is not that of before the line")
	for range 2 {
		_, err = s.create(nil)
		require.NoError(t, err)
	}
	require.Equal(t, int64(1), s.balance().AvailableMinor())
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	require.NotContains(t, err.Error(), "0.01", "members may claim, and do not read money")
	dbtest.Credit(t, s.store, s.account, -1001)
	s.price(0)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
}

// TestCreate_ReserveIsNotSpent: a threshold of depleted above zero does not refuse what is above
// it.
func TestCreate_ReserveIsNotSpent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(500)
	s.freeNodes(1)
	reserve := int64(800)
	s.setThresholds(ledgerdb.Thresholds{DepletedMinor: &reserve})
	dbtest.Credit(t, s.store, s.account, 800)
	_, err := s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	dbtest.Credit(t, s.store, s.account, 1)
	_, err = s.create(nil)
	require.NoError(t, err)
}

// TestCreate_FreeNodeOfADepletedAccount: it would be released at once, so that it is refused. An
// account to which nothing was posted may have it.
func TestCreate_FreeNodeOfADepletedAccount(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(0)
	s.freeNodes(3)
	_, err := s.create(nil)
	require.NoError(t, err)
	s.tick()
	require.Empty(t, s.enforce().Released)
	dbtest.Credit(t, s.store, s.account, -1)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	dbtest.Credit(t, s.store, s.account, 2)
	_, err = s.create(nil)
	require.NoError(t, err)
}

// TestCreate_PriceOfLater: a price that begins later refuses nobody now, and asks for a
// confirmation when it is far ahead.
func TestCreate_PriceOfLater(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.freeNodes(2)
	set := func(r billing.PriceRequest) error {
		r.SKUID, r.Currency, r.Actor = dbtest.SKU(t, s.store).ID, "USD", operator
		return s.tx(func(tx *db.Tx) error {
			plan, err := billing.PlanPrice(t.Context(), tx, r)
			if err != nil {
				return err
			}
			r.PlanHash = plan.Hash
			_, err = billing.SetPrice(t.Context(), tx, r)
			return err
		})
	}
	require.NoError(t, set(billing.PriceRequest{RateMinorPerHour: 100, ValidFrom: s.now().Add(30 * 24 * time.Hour)}))
	require.False(t, s.balance().Charging)
	_, err := s.create(nil)
	require.NoError(t, err)
	far := billing.PriceRequest{RateMinorPerHour: 100, ValidFrom: s.now().Add(32 * 24 * time.Hour)}
	s.requireRefusal(set(far), intent.Invalid, "31 days ahead")
	far.Confirm = true
	require.NoError(t, set(far))
	require.NoError(t, set(billing.PriceRequest{RateMinorPerHour: 100}))
	require.True(t, s.balance().Charging)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "has no price in USD")
}

// TestEnforce_AJumpReleasesNobody: a clock that is a day ahead on one host differs from no other.
// Its charges stay, and nothing is released until an operator has looked.
func TestEnforce_AJumpReleasesNobody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	dbtest.Credit(t, s.store, s.account, 100_000)
	now := s.now()
	id := s.runSince(s.project.ID, now.Add(-26*time.Hour))
	s.tickAt(now.Add(-24 * time.Hour))
	require.Empty(t, s.enforce().Stopped)
	require.Contains(t, s.tickAt(now).EnforcementStopped, "24 hours at once")
	require.Equal(t, int64(100_000-26*6000), s.balance().BalanceMinor, "it is charged")
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	r := s.enforce()
	require.Empty(t, r.Released)
	require.Zero(t, r.Told)
	require.Contains(t, r.Stopped, "looked at the clocks")
	s.tick()
	require.Empty(t, s.enforce().Released, "it stays stopped")
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }))
	s.tick()
	require.Equal(t, []string{id}, s.enforce().Released)
}

// TestReleaseExpired_AfterAJump: all clocks are ten hours ahead, and an allocation expires in that
// time. It is not released before the tick, nor after it, until an operator has looked at the
// clocks.
func TestReleaseExpired_AfterAJump(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(60)
	dbtest.Credit(t, s.store, s.account, 100_000)
	s.runSince(s.project.ID, s.now().Add(-11*time.Hour))
	s.tickAt(s.now().Add(-10 * time.Hour))
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "SET session_replication_role = replica; UPDATE allocations SET expires_at = now() - interval '1 hour'")
	require.NoError(t, err)
	expired := func() int {
		n, err := allocation.ReleaseExpired(t.Context(), s.store, time.Now(), 10)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, expired(), "before the tick")
	require.Contains(t, s.tick().EnforcementStopped, "10 hours at once")
	require.Zero(t, expired(), "after it")
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }))
	require.Equal(t, 1, expired())
}

// TestEnforce_WhileClocksDisagree: the database's clock is a day ahead of the worker's for a
// minute, of an account that was used up before. Nothing is charged, released or told, no expiry is
// past, and all is exact when the clocks agree again.
func TestEnforce_WhileClocksDisagree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	dbtest.Credit(t, s.store, s.account, 1000)
	id := s.runSince(s.project.ID, s.now().Add(-10*time.Minute))
	worker := s.now().Add(-24 * time.Hour)
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "SET session_replication_role = replica; UPDATE allocations SET expires_at = now() - interval '1 hour'")
	require.NoError(t, err)
	for range 2 {
		r, err := ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{Worker: worker, Scheduled: worker})
		require.NoError(t, err)
		require.NotEmpty(t, r.ClockDisagrees)
		dbtest.Credit(t, s.store, s.account, -500)
		e := s.enforce()
		require.Empty(t, e.Released)
		require.Zero(t, e.Told)
		require.NotEmpty(t, e.Stopped)
		for _, clock := range []time.Time{worker, time.Now()} {
			n, err := allocation.ReleaseExpired(t.Context(), s.store, clock, 10)
			require.NoError(t, err)
			require.Zero(t, n)
		}
	}
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	require.Zero(t, s.balance().BalanceMinor, "nothing was charged")
	s.tick()
	require.Equal(t, int64(-1000), s.balance().BalanceMinor, "ten minutes, and not a day")
	require.Equal(t, []string{id}, s.enforce().Released)
}

// TestTick_StopsAfterOverAnHour: an hour is caught up without an operator, and so is any time in
// which nothing ran.
func TestTick_StopsAfterOverAnHour(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(60)
	now := s.now()
	tick := func(ago time.Duration) string { return s.tickAt(now.Add(-ago)).EnforcementStopped }
	require.Empty(t, tick(48*time.Hour))
	require.Empty(t, tick(5*time.Hour), "nothing ran")
	s.runSince(s.project.ID, now.Add(-5*time.Hour))
	require.Empty(t, tick(4*time.Hour+time.Minute), "59 minutes")
	require.NotEmpty(t, tick(3*time.Hour-time.Minute), "62 minutes")
}

// TestEnforce_TellsWhenItReleases: a notice during the grace says when the release comes, and one
// after it that it has.
func TestEnforce_TellsWhenItReleases(t *testing.T) {
	t.Parallel()
	for _, grace := range []int{0, 3600} {
		s := newShop(t)
		s.setThresholds(ledgerdb.Thresholds{GraceSeconds: grace})
		dbtest.Credit(t, s.store, s.account, 5)
		dbtest.Credit(t, s.store, s.account, -5)
		s.enforce()
		var message string
		require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT message FROM notices WHERE kind = 'depleted'").Scan(&message))
		if grace == 0 {
			require.Contains(t, message, "are being released")
			continue
		}
		require.Contains(t, message, "are released at "+s.balance().GraceEndsAt().UTC().Format("2006-01-02 15:04 UTC"))
		require.NotContains(t, message, "being released")
	}
}

// TestEnforce_BudgetSetAgain: a budget that was deleted and set again is told again.
func TestEnforce_BudgetSetAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	dbtest.Credit(t, s.store, s.account, 1_000_000)
	s.runSince(s.project.ID, s.now().Add(-10*time.Minute))
	s.tick()
	for range 2 {
		_, err := ledgerdb.PutBudget(t.Context(), s.store, s.project.ID, 1, 80)
		require.NoError(t, err)
		require.Equal(t, 1, s.enforce().Budgets)
		require.Zero(t, s.enforce().Budgets, "once")
		require.NoError(t, ledgerdb.DeleteBudget(t.Context(), s.store, s.project.ID))
	}
}
