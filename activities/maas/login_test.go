package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

func TestRegionLogin_Audited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site, err := w.store.Site(t.Context(), w.ref.SiteID)
	require.NoError(t, err)
	url := site.Spec.MAASURL
	row := func(stage, outcome string) []string { return []string{w.ref.JobID, "maas/key", url, stage, outcome} }
	for range 3 {
		must(w, w.acts.ProbeRegion, w.ref)
	}
	want := [][]string{row("test", "started"), row("test", "accepted")}
	require.Equal(t, want, dbtest.Logins(t, w.store, "job", w.ref.JobID), "one row of each outcome, however many requests")

	w.fault(maassim.Fault{Name: "http_401", Count: 1})
	fails(w, lifecycle.FailConfiguration, w.acts.ProbeRegion, w.ref.At("next"))
	want = append(want, row("next", "started"), row("next", "rejected"))
	require.Equal(t, want, dbtest.Logins(t, w.store, "job", w.ref.JobID))

	before := w.sim.Counters()
	site.Spec.Simulated, site.Spec.MAASPlainHTTP = false, true
	_, err = w.store.UpdateSite(t.Context(), site.ID, site.Version, site.Name, site.Spec)
	require.NoError(t, err)
	fails(w, lifecycle.FailMAASRejected, w.acts.ProbeRegion, w.ref.At("loopback"))
	want = append(want, row("loopback", "refused"))
	require.Equal(t, want, dbtest.Logins(t, w.store, "job", w.ref.JobID))
	require.Equal(t, before, w.sim.Counters(), "the region was asked for nothing")
}

// TestRegionLogin_OfPlan: a plan of a job does not log in as the job, and a second one has no
// second row.
func TestRegionLogin_OfPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site, err := w.store.Site(t.Context(), w.ref.SiteID)
	require.NoError(t, err)
	for range 2 {
		untouched(w, w.acts.PlanCreateOrFind, look(w.createIn()))
	}
	engine := []string{string(lifecycle.OwnerEngine), "maas/key", site.Spec.MAASURL, "-"}
	require.Equal(t, [][]string{append(engine, "started"), append(engine[:4:4], "accepted")}, dbtest.Logins(t, w.store, "site", site.ID))
	require.Empty(t, dbtest.Logins(t, w.store, "job", w.ref.JobID))
	nodes, err := w.store.NodeTimeline(t.Context(), w.ref.NodeID, 0, 100)
	require.NoError(t, err)
	for _, row := range nodes {
		require.NotEqual(t, "login", row.Name, "the timeline of the node names no plan")
	}
}
