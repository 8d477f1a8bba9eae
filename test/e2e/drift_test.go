package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// openDrift lists the open findings of the site, by detector and node.
func (w *world) openDrift(t *testing.T) map[string]driftdb.Finding {
	t.Helper()
	rows, err := driftdb.ListFindings(t.Context(), w.App.Store, driftdb.Filter{Status: lifecycle.FindingOpen, SiteID: w.site.ID}, "", 1000)
	require.NoError(t, err)
	out := map[string]driftdb.Finding{}
	for _, r := range rows {
		out[r.Finding.Detector+" "+r.Hostname] = r.Finding
	}
	return out
}

// scheduleReconcile makes the Schedules of the sites now, as a worker does once in 15 seconds.
func (w *world) scheduleReconcile(t *testing.T, sites ...db.Site) {
	t.Helper()
	for _, site := range sites {
		require.NoError(t, w.App.Reconcile(site.ID).Ensure(t.Context()))
	}
}

// passes waits until so many whole passes have begun and ended from now on.
func (w *world) passes(t *testing.T, n int64) {
	t.Helper()
	var from int64
	if p, err := driftdb.PassOfSite(t.Context(), w.App.Store, w.site.ID); err == nil {
		from = p.Pass
	}
	require.Eventually(t, func() bool {
		_ = w.App.Reconcile(w.site.ID).Trigger(t.Context()) // one that is at work is waited for
		p, err := driftdb.PassOfSite(t.Context(), w.App.Store, w.site.ID)
		return err == nil && p.Pass > from+n && p.FinishedAt != nil && p.FinishedAt.After(p.BegunAt)
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond, "no whole pass was made")
}

// TestDrift_OfOnboardedNodes checks that no pass finds anything on onboarded nodes of every vendor,
// and that the Schedule alone finds what others do to them.
func TestDrift_OfOnboardedNodes(t *testing.T) {
	t.Parallel()
	w := newPrivateWorld(t, stack.Options{
		Count: len(simhw.Vendors), Reconcile: 4 * time.Second, DatabaseEnv: databaseVar,
		Configure: func(c *config.Config) { c.Reconcile.NewSites = time.Second },
	})
	jobs := map[string]string{}
	for _, m := range w.Sims.Fleet.All() {
		jobs[m.Spec().ID] = w.onboard(t, m).ID
	}
	for _, id := range jobs {
		require.Equal(t, lifecycle.JobCompleted, w.ends(t, id, 3*time.Minute).Status)
	}
	require.Eventually(t, func() bool { // each node is accounted for
		w.passes(t, 1)
		p, err := driftdb.PassOfSite(t.Context(), w.App.Store, w.site.ID)
		return err == nil && time.Since(p.BegunAt) < time.Minute && len(w.openDrift(t)) == 0
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond)
	wait(t, w.Config.Reconcile.Every/2+time.Second) // no finding waits any more for a second look
	w.passes(t, 2)
	require.Empty(t, w.openDrift(t), "a fleet that is as it should be")
	dbtest.PXENode(t, w.App.Store, "52:54:00:00:65:01", lifecycle.NodeActive)
	require.Eventually(t, func() bool {
		p, err := driftdb.PassOfSite(t.Context(), w.App.Store, "")
		return err == nil && p.FinishedAt != nil && strings.Contains(string(p.Report), `"nodes": 1`)
	}, runenv.Patience(time.Minute), 200*time.Millisecond, "no pass was made over the nodes without a site")

	all := w.Sims.Fleet.All()
	released, booted := all[0], all[1]
	require.NoError(t, w.Sims.MAAS.External("release", "gpu-"+released.Spec().ID))
	booted.PowerOff("a hand", true)
	require.Eventually(t, func() bool { return booted.Power() == simhw.Off }, runenv.Patience(30*time.Second), 50*time.Millisecond)
	booted.PowerOn("a hand")
	host := "gpu-" + released.Spec().ID
	require.Eventually(t, func() bool {
		n, err := w.App.Store.LiveNodeOfHost(t.Context(), w.site.ID, host)
		return err == nil && n.Status == lifecycle.NodeQuarantined
	}, runenv.Patience(2*time.Minute), 500*time.Millisecond, "what was released behind our back is not kept in service")
	open := w.openDrift(t)
	require.Contains(t, open, lifecycle.DriftExternallyReleased+" "+host)

	name := lifecycle.DriftBootUnannounced + " gpu-" + booted.Spec().ID
	require.Eventually(t, func() bool { _, found := w.openDrift(t)[name]; return found }, runenv.Patience(2*time.Minute), 500*time.Millisecond)
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := driftdb.ActOnFinding(t.Context(), tx, w.openDrift(t)[name].ID, 0, lifecycle.DriftAdopt, admin)
		return err
	}))
	w.passes(t, 2)
	require.NotContains(t, w.openDrift(t), name, "it is accounted for")
}
