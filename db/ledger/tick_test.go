package ledgerdb_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// now is the database's minute, and everything in these tests lies before it.
func (s *shop) now() time.Time {
	s.Helper()
	at, err := s.store.Clock(s.Context())
	require.NoError(s, err)
	return at.Truncate(time.Minute)
}

func (s *shop) prices(rates ...dbtest.Rate) {
	s.Helper()
	dbtest.SetPrices(s, s.dsn, s.sku.ID, "USD", rates...)
}

func (s *shop) tick(boundary time.Time) ledgerdb.TickReport {
	s.Helper()
	r, err := ledgerdb.Tick(s.Context(), s.store, ledgerdb.TickInput{Boundary: boundary})
	require.NoError(s, err)
	require.Empty(s, r.ClockDisagrees)
	return r
}

// cost is what a time costs, as big integers say.
func cost(rate int64, d time.Duration) int64 {
	x := new(big.Int).Mul(big.NewInt(rate), big.NewInt(d.Microseconds()))
	return x.Div(x, big.NewInt(3_600_000_000)).Int64()
}

// TestTick_ChargesWithoutDrift ticks each minute at an odd rate: the windows sum to the exact cost.
func TestTick_ChargesWithoutDrift(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	start := now.Add(-100 * time.Minute).Add(7*time.Second + 123456*time.Microsecond)
	s.prices(dbtest.Rate{From: now.Add(-time.Hour * 24), RateMinorPerHour: 1993})
	id := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, start)
	for m := 100; m >= 0; m -= 5 {
		s.tick(now.Add(-time.Duration(m) * time.Minute))
	}
	require.Equal(t, -cost(1993, now.Sub(start)), s.balance().BalanceMinor)
	require.Equal(t, int64(20), s.count("SELECT count(*) FROM usage_windows"))
	r := s.tick(now)
	require.Zero(t, r.Windows, "the same tick again")
	r = s.tick(now.Add(-30 * time.Minute))
	require.Zero(t, r.Windows, "a late one")
	end := now.Add(-time.Second * 30)
	require.Zero(t, s.count("SELECT count(*) FROM ledger_transactions t WHERE t.key !~ '^usage:usg_[^:]+:20'"))
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM usage_records WHERE closed_at IS NULL AND allocation_id = $1 AND start_time < $2", id, end))
	usage, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, "", ledgerdb.UsagePlace{}, 10)
	require.NoError(t, err)
	require.Len(t, usage, 1)
	require.Equal(t, cost(1993, now.Sub(start)), usage[0].CostMinor)
	require.True(t, now.Equal(*usage[0].LastBilledAt))
	days, err := ledgerdb.ListDayUsage(t.Context(), s.store, s.project.ID, start.Add(-time.Hour), now, 10)
	require.NoError(t, err)
	total := int64(0)
	for _, d := range days {
		total += d.AmountMinor
	}
	require.Equal(t, usage[0].CostMinor, total)
	statement, err := ledgerdb.ListStatement(t.Context(), s.store, s.project.ID, start.Add(-time.Hour), now.Add(time.Hour), ledgerdb.StatementPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, statement, 1)
	require.Equal(t, -usage[0].CostMinor, statement[0].AmountMinor)
	s.requireWhole()
}

// TestTick_CatchesUpInOneWindow charges three days at once, and ends with the charge.
func TestTick_CatchesUpInOneWindow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-240 * time.Hour), RateMinorPerHour: 1993})
	id := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-72*time.Hour))
	dbtest.EndUsage(t, s.dsn, id, now.Add(-90*time.Second))
	require.Equal(t, 1, s.tick(now).Windows)
	require.Equal(t, -cost(1993, 72*time.Hour-90*time.Second), s.balance().BalanceMinor)
	require.Zero(t, s.count("SELECT count(*) FROM usage_records WHERE closed_at IS NULL"))
	require.Zero(t, s.tick(now).Accounts)
	s.requireWhole()
}

// TestTick_PriceChangeSplitsSegments cuts a price, which counts at once, and raises it, which
// counts a week later, in one catch-up.
func TestTick_PriceChangeSplitsSegments(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{0, 24 * time.Hour} { // in one tick, and day by day
		s := newShop(t)
		now := s.now()
		day := func(n int) time.Time { return now.Add(-time.Duration(30-n) * 24 * time.Hour) }
		s.prices(dbtest.Rate{From: day(0), RateMinorPerHour: 1000}, dbtest.Rate{From: day(3), RateMinorPerHour: 700}, dbtest.Rate{From: day(5), RateMinorPerHour: 1501},
			dbtest.Rate{From: day(6), RateMinorPerHour: 1300})
		dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, day(1))
		dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, day(1)) // two of an account split at once
		for at := day(2); step > 0 && at.Before(now); at = at.Add(step) {
			s.tick(at)
		}
		s.tick(now)
		// 700 was valid until day 5, so that it counts until day 12. 1501 was valid until day 6,
		// and at day 12 the lowest of the week before is 1300.
		want := cost(1000, 48*time.Hour) + cost(700, 9*24*time.Hour) + cost(1300, 18*24*time.Hour)
		require.Equal(t, -2*want, s.balance().BalanceMinor, step)
		usage, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, "", ledgerdb.UsagePlace{}, 10)
		require.NoError(t, err)
		require.Len(t, usage, 6)
		require.True(t, usage[0].SegmentStart.Equal(day(12)), usage[0].SegmentStart)
		require.True(t, usage[1].SegmentStart.Equal(day(3)))
		require.Equal(t, []int64{1300, 700, 1000}, []int64{usage[0].RateMinorPerHour, usage[1].RateMinorPerHour, usage[2].RateMinorPerHour})
		s.requireWhole()
	}
}

// TestTick_UnpricedRunsFree: what ran before the first price is free for a week after it.
func TestTick_UnpricedRunsFree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-20*24*time.Hour))
	s.prices(dbtest.Rate{From: now.Add(-8 * 24 * time.Hour), RateMinorPerHour: 60})
	s.tick(now)
	require.Equal(t, -cost(60, 24*time.Hour), s.balance().BalanceMinor)
}

// TestTick_ClockADayAhead: nothing is charged or depleted while the clocks disagree, and all is
// exact when they agree again.
func TestTick_ClockADayAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.credit(100)
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 6000})
	dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-10*time.Minute))
	for _, in := range []ledgerdb.TickInput{
		{Worker: now.Add(-24 * time.Hour), Scheduled: now}, {Worker: now, Scheduled: now.Add(-24 * time.Hour)}, {Worker: now.Add(2*time.Minute + time.Second)},
		{Boundary: now.Add(2 * time.Minute)},
	} {
		r, err := ledgerdb.Tick(t.Context(), s.store, in)
		require.NoError(t, err)
		require.NotEmpty(t, r.ClockDisagrees)
		require.Zero(t, s.count("SELECT count(*) FROM usage_windows"))
		require.Equal(t, int64(1), s.count("SELECT count(*) FROM billing_attention WHERE kind = 'clock_disagrees'"))
	}
	require.Equal(t, int64(100), s.balance().BalanceMinor)
	clock, err := s.store.Clock(t.Context())
	require.NoError(t, err)
	r, err := ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{Worker: clock.Add(50 * time.Second), Scheduled: clock.Add(-50 * time.Second), Boundary: now})
	require.NoError(t, err)
	require.Empty(t, r.ClockDisagrees)
	require.Equal(t, 100-cost(6000, 10*time.Minute), s.balance().BalanceMinor)
	require.Zero(t, s.count("SELECT count(*) FROM billing_attention"))
	_, err = dbtest.Owner(t, s.dsn).Exec(t.Context(), "UPDATE billing_control SET boundary = now() + interval '1 hour'")
	require.NoError(t, err)
	r, err = ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{})
	require.NoError(t, err)
	require.Contains(t, r.ClockDisagrees, "has charged up to", "time ran back")
}

// TestTick_SetsOneAccountAside overflows one account of 1,000: the others are charged, and it is
// charged when it can be again.
func TestTick_SetsOneAccountAside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 600})
	const accounts = 1000
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), fmt.Sprintf(`
BEGIN; SET LOCAL session_replication_role = replica;
INSERT INTO billing_accounts (id, name) SELECT 'acc_' || i, 'a' || i FROM generate_series(1, %[1]d) i;
INSERT INTO account_balances (billing_account_id) SELECT 'acc_' || i FROM generate_series(1, %[1]d) i;
INSERT INTO projects (id, billing_account_id, name) SELECT 'prj_' || i, 'acc_' || i, 'p' FROM generate_series(1, %[1]d) i;
INSERT INTO allocations (id, project_id, sku_id, status, requested_by, node_id, start_time, access_given_at)
    SELECT 'alc_' || i, 'prj_' || i, '%[2]s', 'active', 'x', 'node_' || i, '%[3]s', now() FROM generate_series(1, %[1]d) i;
INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, start_time)
    SELECT 'prj_' || i, 'alc_' || i, 'usg_' || i, 'acc_' || i, '%[2]s', 'USD', '%[3]s' FROM generate_series(1, %[1]d) i;
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
    SELECT 'prj_' || i, 'usg_' || i, 0, 'acc_' || i, 'USD', CASE WHEN i = 777 THEN 9223372036854775807 ELSE 600 END, '%[3]s', '%[3]s' FROM generate_series(1, %[1]d) i;
COMMIT`, accounts, s.sku.ID, now.Add(-24*time.Hour).UTC().Format(time.RFC3339)))
	require.NoError(t, err)
	r := s.tick(now)
	require.Equal(t, []string{"acc_777"}, r.SetAside)
	require.Equal(t, accounts-1, r.Accounts)
	require.Equal(t, int64(accounts-1), s.count("SELECT count(*) FROM ledger_accounts WHERE code = 'prepaid' AND balance_minor = -14400"))
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM billing_attention WHERE kind = 'account_set_aside' AND message LIKE '%acc_777%'"))
	require.NotEmpty(t, r.EnforcementStopped, "all of them are depleted at once")
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM billing_attention WHERE kind = 'enforcement_stopped'"))
	_, err = dbtest.Owner(t, s.dsn).Exec(t.Context(), "SET session_replication_role = replica; UPDATE usage_segments SET rate_minor_per_hour = 600")
	require.NoError(t, err)
	r = s.tick(now)
	require.Empty(t, r.SetAside)
	require.Equal(t, 1, r.Windows)
	require.Zero(t, s.count("SELECT count(*) FROM billing_attention WHERE kind = 'account_set_aside'"))
	operator := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"}
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }))
	require.ErrorIs(t, s.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }), db.ErrStale)
}

// TestResumeEnforcement_AfterAClockAhead: a tick charged 30 days too far, and the clock is set
// right. The first resume sets the boundary back, and nothing is charged twice. The second one lets
// releases go on.
func TestResumeEnforcement_AfterAClockAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.credit(1_000_000)
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 600})
	old, ahead := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-10*time.Minute)), now.Add(30*24*time.Hour)
	s.tick(now)
	owner := dbtest.Owner(t, s.dsn)
	for sql, args := range map[string][]any{
		"SELECT bill_accounts(ARRAY[$1], $2)": {s.account, ahead},
		"UPDATE billing_control SET boundary = $1, enforcement_stopped_at = now(), enforcement_stopped = 'a tick charged 720 hours at once'": {ahead},
	} {
		_, err := owner.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	charged := cost(600, 30*24*time.Hour+10*time.Minute)
	require.Equal(t, 1_000_000-charged, s.balance().BalanceMinor)
	young := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-5*time.Minute))
	r, err := ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{})
	require.NoError(t, err)
	require.Contains(t, r.ClockDisagrees, "has charged up to")
	resume := func() error {
		return s.tx(func(tx *db.Tx) error {
			return ledgerdb.ResumeEnforcement(t.Context(), tx, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"})
		})
	}
	require.NoError(t, resume())
	for range 2 {
		r, err = ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{})
		require.NoError(t, err)
		require.Empty(t, r.ClockDisagrees)
	}
	usage := func(id string) ledgerdb.Usage {
		rows, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, id, ledgerdb.UsagePlace{}, 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0]
	}
	require.Equal(t, charged, usage(old).CostMinor, "it is charged through its 30 days already")
	require.Equal(t, cost(600, r.Boundary.Sub(now.Add(-5*time.Minute))), usage(young).CostMinor)
	require.Equal(t, 1_000_000-charged-usage(young).CostMinor, s.balance().BalanceMinor)
	control, err := ledgerdb.ReadControl(t.Context(), s.store)
	require.NoError(t, err)
	require.NotNil(t, control.EnforcementStoppedAt)
	require.Contains(t, control.EnforcementStopped, "resumes once more; before: a tick charged 720 hours at once")
	require.NoError(t, resume())
	require.ErrorIs(t, resume(), db.ErrStale)
	require.Equal(t, int64(2), s.count("SELECT count(*) FROM audit_log WHERE resource_kind = 'billing' AND name IN ('set_boundary_back', 'resume_enforcement')"))
	s.requireWhole()
}

// TestUsage_FollowsTheAllocation moves an allocation as the product does: the record is there from
// the request on, it is charged from active, and the charge ends with the proof that the access
// ended.
func TestUsage_FollowsTheAllocation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.prices(dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: 3600})
	node := dbtest.FreeNode(t, s.store, dbtest.Of(s.sku.ID))
	actor, job := db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}, db.Actor{Owner: lifecycle.OwnerJob}
	var a allocationdb.Allocation
	require.NoError(t, s.tx(func(tx *db.Tx) (err error) {
		a, err = allocationdb.Create(t.Context(), tx, allocationdb.New{ProjectID: s.project.ID, SKUID: s.sku.ID, RequestedBy: "x", Actor: actor})
		if err != nil {
			return err
		}
		return ledgerdb.PlaceHold(t.Context(), tx, s.project.ID, a.ID, 3600)
	}))
	usage := func() ledgerdb.Usage {
		t.Helper()
		rows, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, a.ID, ledgerdb.UsagePlace{}, 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0]
	}
	require.Nil(t, usage().StartTime)
	require.Equal(t, int64(3600), s.balance().HeldMinor)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, found, err := allocationdb.Claim(t.Context(), tx, a.ID, actor)
		require.True(t, found)
		return err
	}))
	require.Nil(t, usage().StartTime, "provisioning is free")
	require.NoError(t, s.tx(func(tx *db.Tx) (err error) {
		a, err = allocationdb.Activate(t.Context(), tx, a.ID, allocationdb.Connection{Host: "127.0.0.1"}, allocationdb.Image{ID: "i"}, job)
		return err
	}))
	require.True(t, usage().StartTime.Equal(*a.StartTime))
	require.Equal(t, int64(3600), usage().RateMinorPerHour)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationRelease, Actor: actor})
		return err
	}))
	require.Nil(t, usage().EndTime, "the tenant may still be logged in")
	require.Equal(t, int64(3600), s.balance().HeldMinor)
	require.NoError(t, allocationdb.EndAccess(t.Context(), s.store, a.ID, lifecycle.AccessRevoked))
	a, err := allocationdb.Get(t.Context(), s.store, a.ID)
	require.NoError(t, err)
	least := a.StartTime.Add(10 * time.Minute)
	require.True(t, usage().EndTime.Equal(least), "ten minutes are the least")
	require.Zero(t, s.balance().HeldMinor, "the hold ends with the charge")
	require.Equal(t, node.ID, *a.NodeID)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationFailRelease, Actor: job})
		return err
	}))
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationRetryRelease, Actor: job})
		return err
	}))
	require.True(t, usage().EndTime.Equal(least), "a retry opens no second record")
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM usage_records"))
	_, err = s.store.DBTX().Exec(t.Context(), "UPDATE usage_records SET end_time = now() + interval '1 day'")
	require.ErrorContains(t, err, "cannot be taken back")
	_, err = s.store.DBTX().Exec(t.Context(), "UPDATE usage_records SET end_time = now() + interval '1 second'")
	require.ErrorContains(t, err, "cannot be taken back")
}

// TestUsage_EndsOfAClockThatWasAhead: the ends that a clock a day ahead has written are charged up
// to the next tick, and not for the day.
func TestUsage_EndsOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 3600})
	gone := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-2*time.Hour))
	leaves := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-2*time.Hour))
	dbtest.EndUsage(t, s.dsn, gone, now.Add(23*time.Hour))
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "UPDATE usage_records SET end_cap = now() + interval '1 day' WHERE allocation_id = $1", leaves)
	require.NoError(t, err)
	s.tick(now)
	require.Equal(t, int64(2*-7200), s.balance().BalanceMinor)
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM usage_records WHERE closed_at IS NOT NULL AND end_time = $1", now))
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM usage_records WHERE end_cap BETWEEN now() AND now() + interval '300 seconds' AND end_time IS NULL"))
	s.tick(now)
	require.Equal(t, int64(2*-7200), s.balance().BalanceMinor)
}

// TestUsage_ReleaseIsCapped: a release that the control plane never finishes is charged for five
// minutes.
func TestUsage_ReleaseIsCapped(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 3600})
	id := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-2*time.Hour))
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "SET session_replication_role = replica; UPDATE usage_records SET end_cap = '"+
		now.Add(-time.Hour).UTC().Format(time.RFC3339)+"' WHERE allocation_id = '"+id+"'")
	require.NoError(t, err)
	s.tick(now.Add(-90 * time.Minute))
	require.Equal(t, int64(-1800), s.balance().BalanceMinor)
	s.tick(now)
	require.Equal(t, int64(-3600), s.balance().BalanceMinor)
	require.Zero(t, s.count("SELECT count(*) FROM usage_records WHERE closed_at IS NULL"))
}

// TestTick_NeverRan: a price was set and the Schedule has never made a tick.
func TestTick_NeverRan(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const silent = "SELECT count(*) FROM billing_attention WHERE kind = 'billing_silent'"
	require.Zero(t, s.count(silent), "there is no price")
	s.prices(dbtest.Rate{From: s.now().Add(-time.Hour), RateMinorPerHour: 1})
	require.Zero(t, s.count(silent))
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "SET session_replication_role = replica; UPDATE prices SET created_at = now() - interval '11 minutes'")
	require.NoError(t, err)
	require.Equal(t, int64(1), s.count(silent+" AND since < now() - interval '10 minutes'"))
	s.tick(s.now())
	require.Zero(t, s.count(silent))
}

// TestUsage_ReleasedBeforeTheProof: whoever asks for the release after the keys went in is charged
// the least, also when the allocation was never active. A provision that failed by itself is free.
func TestUsage_ReleasedBeforeTheProof(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.prices(dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: 3600})
	actor, job := db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}, db.Actor{Owner: lifecycle.OwnerJob}
	for _, c := range []struct{ access, asked, charged bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		dbtest.FreeNode(t, s.store, dbtest.Of(s.sku.ID))
		var a allocationdb.Allocation
		require.NoError(t, s.tx(func(tx *db.Tx) (err error) {
			a, err = allocationdb.Create(t.Context(), tx, allocationdb.New{ProjectID: s.project.ID, SKUID: s.sku.ID, RequestedBy: "x", Actor: actor})
			if err == nil {
				_, _, err = allocationdb.Claim(t.Context(), tx, a.ID, actor)
			}
			return err
		}))
		if c.access {
			require.NoError(t, allocationdb.GiveAccess(t.Context(), s.store, a.ID))
		}
		require.NoError(t, s.tx(func(tx *db.Tx) error {
			move := allocationdb.Move{ID: a.ID, To: lifecycle.AllocationAbort, Actor: job}
			if c.asked {
				if err := allocationdb.RequestRelease(t.Context(), tx, a.ID, "done"); err != nil {
					return err
				}
			} else {
				move.Reason, move.FailureCode = lifecycle.FailureProvision, lifecycle.FailureProvision
			}
			_, err := allocationdb.MoveTo(t.Context(), tx, move)
			return err
		}))
		require.NoError(t, allocationdb.EndAccess(t.Context(), s.store, a.ID, lifecycle.AccessRevoked))
		rows, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, a.ID, ledgerdb.UsagePlace{}, 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		if !c.charged {
			require.Nil(t, rows[0].StartTime, c)
			continue
		}
		a, err = allocationdb.Get(t.Context(), s.store, a.ID)
		require.NoError(t, err)
		require.True(t, rows[0].StartTime.Equal(*a.AccessGivenAt))
		require.True(t, rows[0].EndTime.Equal(a.AccessGivenAt.Add(10*time.Minute)), "ten minutes are the least")
	}
}
