package ledgerdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

// hostUptime is how long the worker's host of these tests runs.
const hostUptime = 1000 * time.Hour

// outageShop is a shop with something to charge, whose last tick lies some time back. Ticks are one
// minute apart, since nothing but the stored times is moved.
type outageShop struct {
	*shop
	host   ledgerdb.HostClock
	before time.Time // what Temporal knows of the last tick
	at     time.Time // the boundary of all ticks
}

func newOutageShop(t *testing.T) *outageShop {
	t.Helper()
	s := &outageShop{shop: newShop(t), host: ledgerdb.HostClock{Boot: "boot-1", Uptime: hostUptime}}
	s.at = s.now()
	s.prices(dbtest.Rate{From: s.now().Add(-100 * time.Hour), RateMinorPerHour: 600})
	dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, s.now().Add(-10*time.Hour))
	s.tick()
	return s
}

func (s *outageShop) tick() ledgerdb.TickReport {
	s.Helper()
	now, err := s.store.Clock(s.Context())
	require.NoError(s, err)
	r, err := ledgerdb.Tick(s.Context(), s.store, ledgerdb.TickInput{Worker: now, Scheduled: now, Host: s.host, Before: s.before, Boundary: s.at})
	require.NoError(s, err)
	return r
}

// pass makes the last tick older, as if time had gone on: by the clocks, and by the host's uptime.
func (s *outageShop) pass(clocks, uptime time.Duration) {
	s.Helper()
	_, err := dbtest.Owner(s, s.dsn).Exec(s.Context(), `
UPDATE billing_control SET boundary = boundary - make_interval(secs => $1), worker_at = worker_at - make_interval(secs => $1)`, clocks.Seconds())
	require.NoError(s, err)
	s.host.Uptime += uptime
}

func (s *outageShop) stopped() string {
	s.Helper()
	control, err := ledgerdb.ReadControl(s.Context(), s.store)
	require.NoError(s, err)
	require.Equal(s, control.EnforcementStopped != "", control.EnforcementStoppedAt != nil)
	return control.EnforcementStopped
}

// TestOutage_ReleasesResumeByThemselves: after a plain outage two ticks that agree let the releases
// go on, and an audit row says so. A tick that is repeated is none of the two.
func TestOutage_ReleasesResumeByThemselves(t *testing.T) {
	t.Parallel()
	s := newOutageShop(t)
	s.pass(3*time.Hour, 3*time.Hour)
	require.Contains(t, s.tick().EnforcementStopped, "resume by themselves after 2 more ticks")
	s.tick() // repeated
	s.tick()
	require.NotEmpty(t, s.stopped())
	s.pass(time.Minute, time.Minute)
	s.tick()
	require.NotEmpty(t, s.stopped())
	s.pass(time.Minute, time.Minute)
	s.tick()
	require.Empty(t, s.stopped())
	require.Equal(t, int64(1), s.count("SELECT count(*) FROM audit_log WHERE name = 'resume_enforcement' AND owner = 'system' AND actor_id = 'billing'"))
	stop, err := ledgerdb.ReleaseStop(t.Context(), s.store, time.Now())
	require.NoError(t, err)
	require.Empty(t, stop)
}

// TestOutage_OperatorHasToLook: each of these looks like an outage, and the releases stay stopped.
func TestOutage_OperatorHasToLook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		with func(*outageShop) // what happened, besides the three hours
		says string
	}{
		"all clocks of one host jumped": {func(s *outageShop) { s.host.Uptime -= 3*time.Hour - time.Minute }, "was moved by 2h59m"},
		"the host started with a wrong clock": {func(s *outageShop) {
			s.host = ledgerdb.HostClock{Boot: "boot-2", Uptime: time.Minute}
		}, "follows no time server"},
		"nothing is known of the host's clock": {func(s *outageShop) { s.host = ledgerdb.HostClock{} }, "follows no time server"},
		"a dump was restored": {func(s *outageShop) {
			s.exec("UPDATE event_cursor SET epoch = gen_random_uuid()::text")
		}, "it was restored"},
		"a snapshot of the disk was restored": {func(s *outageShop) { s.before = s.now().Add(-time.Hour) }, "an older copy of the database runs"},
		"slipwayd restored was run": {func(s *outageShop) {
			plan, err := s.store.PlanEndOfAccess(s.Context())
			require.NoError(s, err)
			_, err = s.store.EndRestoredAccess(s.Context(), plan.Hash)
			require.NoError(s, err)
		}, "restored from a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOutageShop(t)
			s.pass(3*time.Hour, 3*time.Hour)
			tc.with(s)
			s.tick()
			for range 4 {
				s.pass(time.Minute, time.Minute)
				s.tick()
			}
			require.Contains(t, s.stopped(), tc.says)
		})
	}
}

// TestOutage_HostThatWasStartedFollowsATimeServer: a host that was started in the outage is
// believed when its clock follows a time server.
func TestOutage_HostThatWasStartedFollowsATimeServer(t *testing.T) {
	t.Parallel()
	s := newOutageShop(t)
	s.pass(3*time.Hour, 0)
	s.host = ledgerdb.HostClock{Boot: "boot-2", Uptime: time.Minute, Synchronized: true}
	s.tick()
	for range 2 {
		s.pass(time.Minute, time.Minute)
		s.tick()
	}
	require.Empty(t, s.stopped())
}

// TestOutage_LaterDisagreementCallsAnOperator: a clock that is moved, clocks that disagree, and
// accounts that are depleted in a mass while the two ticks are awaited.
func TestOutage_LaterDisagreementCallsAnOperator(t *testing.T) {
	t.Parallel()
	t.Run("a clock is moved", func(t *testing.T) {
		t.Parallel()
		s := newOutageShop(t)
		s.pass(3*time.Hour, 3*time.Hour)
		s.tick()
		s.pass(10*time.Minute, time.Minute)
		s.tick()
		for range 3 {
			s.pass(time.Minute, time.Minute)
			s.tick()
		}
		require.Contains(t, s.stopped(), "but then the clock of the worker's host was moved by 9m")
	})
	t.Run("the clocks disagree for a tick", func(t *testing.T) {
		t.Parallel()
		s := newOutageShop(t)
		s.pass(3*time.Hour, 3*time.Hour)
		s.tick()
		s.pass(time.Minute, time.Minute)
		s.tick()
		r, err := ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{Worker: time.Now().Add(5 * time.Minute), Scheduled: time.Now(), Host: s.host, Boundary: s.at})
		require.NoError(t, err)
		require.NotEmpty(t, r.ClockDisagrees)
		s.pass(time.Minute, time.Minute)
		s.tick()
		require.NotEmpty(t, s.stopped(), "the count begins again")
		s.pass(time.Minute, time.Minute)
		s.tick()
		require.Empty(t, s.stopped())
	})
	t.Run("many accounts are depleted", func(t *testing.T) {
		t.Parallel()
		s := newOutageShop(t)
		s.pass(3*time.Hour, 3*time.Hour)
		s.tick()
		for range 6 {
			p := dbtest.Project(t, s.store)
			dbtest.RunSince(t, s.dsn, p.ID, s.sku.ID, s.now().Add(-time.Hour))
		}
		for range 4 {
			s.pass(time.Minute, time.Minute)
			s.tick()
		}
		require.Contains(t, s.stopped(), "charged accounts are depleted")
	})
}

func (s *outageShop) exec(sql string) {
	s.Helper()
	_, err := dbtest.Owner(s, s.dsn).Exec(s.Context(), sql)
	require.NoError(s, err)
}
