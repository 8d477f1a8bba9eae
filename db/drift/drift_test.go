package drift_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var reconciler = db.Actor{Owner: lifecycle.OwnerReconciler, ID: "reconciler"}

// TestFindings_GoWithTheirSite: what is of no site stays.
func TestFindings_GoWithTheirSite(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn)
	site := dbtest.Site(t, s)
	dbtest.PXENode(t, s, "52:54:00:00:66:01", lifecycle.NodeActive)
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftDuplicateMAC)
	for _, id := range []string{site.ID, ""} {
		_, err := driftdb.BeginPass(t.Context(), s, id, time.Minute)
		require.NoError(t, err)
		_, err = driftdb.ObserveFindings(t.Context(), s, id, []driftdb.Observation{{Detector: d, Subject: "52:54:00:00:66:01", Key: "k", Message: "m"}})
		require.NoError(t, err)
	}
	_, err := driftdb.ObserveFindings(t.Context(), s, "site_gone", []driftdb.Observation{{Detector: d, Subject: "x", Key: "k", Message: "m"}})
	require.Error(t, err, "there is no such site")
	_, err = dbtest.Owner(t, dsn).Exec(t.Context(), "DELETE FROM sites WHERE id = $1", site.ID)
	require.NoError(t, err)
	rows, err := driftdb.ListFindings(t.Context(), s, driftdb.Filter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Empty(t, rows[0].Finding.SiteID)
	passes, err := driftdb.ListPasses(t.Context(), s, "", 10)
	require.NoError(t, err)
	require.Len(t, passes, 1)
	require.Empty(t, passes[0].SiteID)
}

// TestManyPassesOpenOneFinding: of those that see the same fault at once one
// opens it.
func TestManyPassesOpenOneFinding(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Active())
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftGPUCount)
	var opened atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			k, err := driftdb.ObserveFindings(t.Context(), s, n.SiteID, []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: "7 of 8", Message: "m"}})
			require.NoError(t, err)
			opened.Add(int64(k))
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, opened.Load())
	rows, err := driftdb.ListFindings(t.Context(), s, driftdb.Filter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.EqualValues(t, 8, rows[0].Finding.SeenCount)
	closed, err := driftdb.CloseFindings(t.Context(), s, n.SiteID, []driftdb.Ref{{Detector: d.Name, Subject: n.ID, Outcome: "gone"}})
	require.NoError(t, err)
	require.Equal(t, 1, closed)
	k, err := driftdb.ObserveFindings(t.Context(), s, n.SiteID, []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: "7 of 8", Message: "m"}})
	require.NoError(t, err)
	require.Equal(t, 1, k, "a fault that comes back is a finding of its own")
	for { // give the events their cursors
		moved, err := s.RelayEvents(t.Context(), 100)
		require.NoError(t, err)
		if moved == 0 {
			break
		}
	}
	events, err := s.EventsAfter(t.Context(), 0, db.EventFilter{ResourceKind: "drift"}, 10)
	require.NoError(t, err)
	var types []string
	for _, e := range events {
		types = append(types, e.Type)
	}
	require.Equal(t, []string{"drift.opened", "drift.closed", "drift.opened"}, types, "one event for each that opened or closed")
	pruned, err := driftdb.PruneFindings(t.Context(), s, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 1, pruned, "the open one stays")
}

// TestTwoPassesNeverExceedTheBreaker together.
func TestTwoPassesNeverExceedTheBreaker(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	p, err := driftdb.BeginPass(t.Context(), s, site.ID, time.Hour)
	require.NoError(t, err)
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftGPUCount)
	for range 8 {
		n := dbtest.Node(t, s, dbtest.Active(), dbtest.At(site.ID))
		for range lifecycle.DriftConfirm {
			_, err := driftdb.ObserveFindings(t.Context(), s, site.ID, []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: "7 of 8", Message: "m"}})
			require.NoError(t, err)
		}
	}
	all, err := driftdb.FindingsToQuarantine(t.Context(), s, site.ID, []string{d.Name}, nil, p.BegunAt, 100)
	require.NoError(t, err)
	require.Len(t, all, 8)
	var done atomic.Int64
	var wg sync.WaitGroup
	for _, c := range append(all, all...) {
		wg.Go(func() {
			did, b, err := driftdb.QuarantineByReconciler(t.Context(), s, site.ID, c, 0.25, reconciler)
			require.NoError(t, err)
			require.EqualValues(t, 2, b.Limit)
			if did {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 2, done.Load(), "a quarter of eight")
	quarantined, err := s.ListNodes(t.Context(), db.NodeFilter{Status: "quarantined", SiteID: site.ID}, "", 0)
	require.NoError(t, err)
	require.Len(t, quarantined, 2)
}

// TestASiteTakesItsObservationsAlong: findings and observations do not
// keep a site from being deleted.
func TestASiteTakesItsObservationsAlong(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	_, err := driftdb.BeginPass(t.Context(), s, site.ID, time.Hour)
	require.NoError(t, err)
	require.NoError(t, driftdb.PutMachines(t.Context(), s, site.ID, []driftdb.Machine{{SystemID: "abc123", MACs: []string{}, Facts: []byte(`{"power": "on"}`)}}))
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftUnknownMachine)
	_, err = driftdb.ObserveFindings(t.Context(), s, site.ID, []driftdb.Observation{{Detector: d, Subject: "abc123", SystemID: "abc123", Key: "abc123", Message: "m"}})
	require.NoError(t, err)
	require.NoError(t, s.DeleteSite(t.Context(), site.ID, site.Version))
	_, err = driftdb.PassOfSite(t.Context(), s, site.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
}
