package sweep_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const silence = 90 * time.Second

func (w *world) recordHeartbeat(node string, ago time.Duration, unhealthy ...string) {
	w.t.Helper()
	require.NoError(w.t, w.Store.RecordHeartbeats(w.t.Context(), []db.Heartbeat{{
		NodeID: node, BootID: "boot", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now().Add(w.ahead - ago),
		Report: &spec.HealthReport{}, Unhealthy: unhealthy,
	}}))
}

func (w *world) status(node string) lifecycle.NodeStatus {
	w.t.Helper()
	n, err := w.Store.Node(w.t.Context(), node)
	require.NoError(w.t, err)
	return n.Status
}

// sweepHeartbeats runs a pass with the clock set ahead.
func (w *world) sweepHeartbeats(ahead time.Duration) sweep.HeartbeatsReport {
	w.t.Helper()
	w.ahead = ahead
	r, err := w.SweepHeartbeats(w.t.Context())
	require.NoError(w.t, err)
	return r
}

// Heartbeats own the transitions between active and offline.
func TestHeartbeats_OfflineAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.OfflineAfter = silence
	require.NoError(t, w.Store.Listening(t.Context(), "api-1"))
	healthy, silent, silentSinceActive, drained := dbtest.Node(t, w.Store, dbtest.Active()), dbtest.Node(t, w.Store, dbtest.Active()),
		dbtest.Node(t, w.Store, dbtest.Active()), dbtest.Node(t, w.Store, dbtest.Status(lifecycle.NodeQuarantined))
	w.ahead = 3 * time.Minute
	w.recordHeartbeat(healthy.ID, 10*time.Second)
	w.recordHeartbeat(silent.ID, 2*time.Minute)
	w.recordHeartbeat(drained.ID, 2*time.Minute)
	// silentSinceActive sent no heartbeat since it became active.
	r := w.sweepHeartbeats(3 * time.Minute)
	require.Equal(t, sweep.HeartbeatsReport{Offline: 2}, r)
	require.Equal(t, lifecycle.NodeActive, w.status(healthy.ID))
	require.Equal(t, lifecycle.NodeOffline, w.status(silent.ID))
	require.Equal(t, lifecycle.NodeOffline, w.status(silentSinceActive.ID))
	require.Equal(t, lifecycle.NodeQuarantined, w.status(drained.ID), "silence moves active nodes only")
	require.Equal(t, sweep.HeartbeatsReport{}, w.sweepHeartbeats(3*time.Minute), "a second pass finds it done")

	w.recordHeartbeat(silent.ID, time.Second, "GPU 3 is missing")
	w.recordHeartbeat(silentSinceActive.ID, time.Second)
	require.Equal(t, sweep.HeartbeatsReport{Back: 1}, w.sweepHeartbeats(3*time.Minute))
	require.Equal(t, lifecycle.NodeOffline, w.status(silent.ID), "its report does not meet its SKU")
	require.Equal(t, lifecycle.NodeActive, w.status(silentSinceActive.ID))
	history, _, err := w.Store.NodeHistory(t.Context(), silentSinceActive.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "heartbeat", history[0].Owner)
	require.Equal(t, "system", history[0].TriggeredBy)
}

func TestABeatWithoutAReportOfThisBootDoesNotBringANodeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.OfflineAfter = silence
	n := dbtest.Node(t, w.Store, dbtest.Status(lifecycle.NodeOffline))
	w.recordHeartbeat(n.ID, time.Minute)
	require.NoError(t, w.Store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "another boot", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now()}}))
	require.Equal(t, sweep.HeartbeatsReport{AgentAPISilent: true}, w.sweepHeartbeats(0))
	require.Equal(t, lifecycle.NodeOffline, w.status(n.ID))
}

// While no agent API listened, every node seems silent and none is.
func TestAnOutageOfOurOwnTakesNoNodeOffline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.OfflineAfter = silence
	n := dbtest.Node(t, w.Store, dbtest.Active())
	w.ahead = 10 * time.Minute
	w.recordHeartbeat(n.ID, 9*time.Minute)
	require.True(t, w.sweepHeartbeats(10*time.Minute).AgentAPISilent, "nobody ever listened")
	require.NoError(t, w.Store.Listening(t.Context(), "api-1"))
	require.True(t, w.sweepHeartbeats(silence/2).AgentAPISilent, "not long enough")
	require.Equal(t, 1, w.sweepHeartbeats(10*time.Minute).Offline)
	require.NoError(t, w.Store.StopListening(t.Context(), "api-1"))
	require.True(t, w.sweepHeartbeats(10*time.Minute).AgentAPISilent)
}

// A worker whose clock is ten minutes ahead of the database's takes no node
// offline: silence is measured by the clock that the rows are dated by.
func TestSweep_UsesTheDatabasesClock(t *testing.T) {
	t.Parallel()
	const skew = 10 * time.Minute
	dsn := dbtest.FreshDatabase(t)
	conn := dbtest.Owner(t, dsn)
	_, err := conn.Exec(t.Context(), `CREATE SCHEMA behind; GRANT USAGE ON SCHEMA behind TO PUBLIC; CREATE FUNCTION behind.now() RETURNS timestamptz LANGUAGE sql STABLE
		AS $$ SELECT pg_catalog.now() - interval '10 minutes' $$`)
	require.NoError(t, err)
	at, err := url.Parse(dsn)
	require.NoError(t, err)
	q := at.Query()
	q.Set("search_path", "behind,pg_catalog,public")
	at.RawQuery = q.Encode()
	store := dbtest.Open(t, at.String())
	now, err := store.Clock(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(-skew), now, time.Minute, "the database is behind")

	w := newWorld(t)
	w.Store, w.OfflineAfter = store, 20*time.Second
	n := dbtest.Node(t, dbtest.Open(t, dsn), dbtest.Active())
	require.NoError(t, store.Listening(t.Context(), "api-1"))
	for _, long := range []string{`UPDATE agent_listeners SET since = since - interval '1 hour'`, `UPDATE nodes SET state_changed_at = state_changed_at - interval '1 hour'`} {
		_, err = conn.Exec(t.Context(), long)
		require.NoError(t, err)
	}
	w.ahead = -skew // the test's recordHeartbeat are dated by the database's clock too
	w.recordHeartbeat(n.ID, time.Second)
	w.Ahead = nil
	r, err := w.SweepHeartbeats(t.Context())
	require.NoError(t, err)
	require.Equal(t, sweep.HeartbeatsReport{}, r)
	require.Equal(t, lifecycle.NodeActive, w.status(n.ID))
}
