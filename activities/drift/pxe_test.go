package drift_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const pxeMAC = "52:54:00:00:62:01"

// pxeWorld is a world with an active node that no MAAS manages, with an agent and a BMC of its own.
// It belongs to no site, as each that is discovered.
type pxeWorld struct {
	*world
	node  db.Node
	clock *simhw.Clock
	hw    *simhw.Machine
	rec   db.BMC
}

func newPXEWorld(t *testing.T) *pxeWorld {
	t.Helper()
	w := &pxeWorld{world: newWorld(t), clock: simhw.NewClock(1)}
	w.hw = simhw.NewMachine(t.Context(), w.clock, simhw.GPUServer("HPE", 9))
	bmc, err := redfishsim.New(redfishsim.Options{Machine: w.hw, TLS: true, Seed: 5})
	require.NoError(t, err)
	_, stop, err := bmc.Start(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	w.hw.PowerOn("test")
	w.power(simhw.On)
	hardware := w.hw.Spec()
	w.putLogin("bmc/pxe", hardware.BMCUser, hardware.BMCPassword)
	w.node = dbtest.PXENode(t, w.store, pxeMAC, lifecycle.NodeActive)
	require.Empty(t, w.node.SiteID)
	require.Equal(t, []string{pxeMAC}, w.node.MACs)
	w.sql("UPDATE nodes SET sku_id = (SELECT sku_id FROM nodes WHERE id = $2) WHERE id = $1", w.node.ID, w.world.node.ID)
	w.rec, err = w.store.CreateBMC(t.Context(), db.NewBMC{
		NodeID: &w.node.ID, Address: hardware.BMCAddress, Protocol: "redfish", CredentialRef: "bmc/pxe", PinSHA256: w.pin(hardware.BMCAddress),
	})
	require.NoError(t, err)
	w.recordBoot("boot-pxe", nil)
	w.pass()
	require.Empty(t, w.open(), "a node that is as it should be")
	return w
}

// recordBoot stores a heartbeat of the node from a boot, with a report that meets its SKU, changed
// by f.
func (w *pxeWorld) recordBoot(boot string, f func(*spec.HealthReport)) {
	w.t.Helper()
	w.recordHeartbeatOf(w.node.ID, boot, func(b *db.Heartbeat) {
		b.Report.NICs[0].MAC = pxeMAC
		if f != nil {
			f(b.Report)
		}
	})
}

// power moves the machine's time until its power is as wanted.
func (w *pxeWorld) power(want simhw.Power) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { w.clock.Step(20 * time.Second); return w.hw.Power() == want }, runenv.Patience(20*time.Second), time.Millisecond)
}

// silence dates the node's last heartbeat back.
func (w *pxeWorld) silence() {
	w.t.Helper()
	w.sql("UPDATE heartbeats SET received_at = $2 WHERE node_id = $1", w.node.ID, w.now().Add(-11*time.Minute))
}

// pass makes one whole pass of the nodes without a site.
func (w *pxeWorld) pass() drift.Report {
	w.t.Helper()
	return onePass(w.t, w.acts, "", &w.last)
}

// open lists the detectors of the node's open findings.
func (w *pxeWorld) open() []string {
	w.t.Helper()
	rows, err := driftdb.ListFindings(w.t.Context(), w.store, driftdb.Filter{Status: lifecycle.FindingOpen, NodeID: w.node.ID}, "", 100)
	require.NoError(w.t, err)
	var out []string
	for _, r := range rows {
		require.Empty(w.t, r.Finding.SiteID)
		out = append(out, r.Finding.Detector)
	}
	return out
}

// TestNodesWithoutSite_EachFault plants what can be wrong with a node that no MAAS manages, finds
// it in a pass of the nodes without a site, and sees it close. No pass quarantines the node, since
// it has no such state, and the pass of the site does not see it.
func TestNodesWithoutSite_EachFault(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	w.acts.Policy.Share = 1
	for _, c := range []struct {
		name  string
		fault func()
		finds []string
		fix   func()
	}{
		{"a GPU is missing", func() { w.recordBoot("boot-pxe", func(r *spec.HealthReport) { r.GPUs = r.GPUs[1:] }) }, []string{lifecycle.DriftGPUCount}, nil},
		{"other network cards", func() { w.recordBoot("boot-pxe", func(r *spec.HealthReport) { r.NICs[0].MAC = "52:54:00:00:62:99" }) }, []string{lifecycle.DriftAgentElsewhere}, nil},
		{"the agent is silent", w.silence, []string{lifecycle.DriftAgentSilent}, nil},
		{"it is powered off", func() { w.hw.PowerOff("a hand", true); w.power(simhw.Off); w.silence() }, []string{lifecycle.DriftPoweredOff, lifecycle.DriftAgentSilent}, func() { w.hw.PowerOn("a hand"); w.power(simhw.On) }},
		{"it has booted by itself", func() { w.recordBoot("boot-2", nil) }, []string{lifecycle.DriftBootUnannounced}, nil},
		{"another certificate at its BMC", func() { w.sql("UPDATE bmcs SET pin_sha256 = $2 WHERE id = $1", w.rec.ID, strings.Repeat("ab", 32)) },
			[]string{lifecycle.DriftBMCPinChanged}, func() { w.sql("UPDATE bmcs SET pin_sha256 = $2 WHERE id = $1", w.rec.ID, w.rec.PinSHA256) }},
		{"logins to its BMC are stopped", func() {
			w.sql("UPDATE bmcs SET auth_blocked_at = now(), auth_blocked_reason = 'wrong' WHERE id = $1", w.rec.ID)
		},
			[]string{lifecycle.DriftBMCLoginBlocked}, func() {
				w.sql("UPDATE bmcs SET auth_blocked_at = NULL, auth_blocked_reason = '' WHERE id = $1", w.rec.ID)
			}},
	} {
		c.fault()
		for range 3 {
			w.pass()
		}
		require.ElementsMatch(t, c.finds, w.open(), c.name)
		after, err := w.store.Node(t.Context(), w.node.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeActive, after.Status, c.name)
		if c.fix != nil {
			c.fix()
		}
		w.recordBoot("boot-pxe", nil)
		w.pass()
		require.Empty(t, w.open(), c.name)
	}
	require.Empty(t, w.world.open(), "the pass over the site has found nothing of it")
}

// TestNodesWithoutSite_QuarantineIsRefused asks for a state that no PXE node has.
func TestNodesWithoutSite_QuarantineIsRefused(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	w.silence()
	w.pass()
	rows, err := driftdb.ListFindings(t.Context(), w.store, driftdb.Filter{NodeID: w.node.ID, Detector: lifecycle.DriftAgentSilent}, "", 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, lifecycle.NodePXE.Lifecycle, rows[0].Lifecycle)
	_, err = w.act(rows[0].Finding.ID, lifecycle.DriftQuarantine)
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Contains(t, conflict.Message, "has no state quarantined")
}

// TestNodesWithoutSite_AnInstallationExplainsABoot: it is no job, and moves the state of the node.
// A boot that is adopted is a finding no more.
func TestNodesWithoutSite_AnInstallationExplainsABoot(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	w.sql("UPDATE drift_marks SET marked_at = marked_at - interval '1 minute' WHERE node_id = $1", w.node.ID)
	w.sql("UPDATE nodes SET state_changed_at = (SELECT marked_at + interval '1 second' FROM drift_marks WHERE node_id = nodes.id) WHERE id = $1", w.node.ID)
	w.recordBoot("boot-2", nil)
	w.pass()
	w.pass()
	require.Empty(t, w.open())
	w.recordBoot("boot-3", nil)
	w.pass()
	require.Equal(t, []string{lifecycle.DriftBootUnannounced}, w.open())
	rows, err := driftdb.ListFindings(t.Context(), w.store, driftdb.Filter{NodeID: w.node.ID}, "", 10)
	require.NoError(t, err)
	_, err = w.act(rows[0].Finding.ID, lifecycle.DriftAdopt)
	require.NoError(t, err)
	w.pass()
	require.Empty(t, w.open())
}

// TestNodesWithoutSite_Duplicates: two nodes report one boot. A node that is retired has given its
// hardware back.
func TestNodesWithoutSite_Duplicates(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	other := dbtest.PXENode(t, w.store, "52:54:00:00:62:02", lifecycle.NodeActive)
	w.recordHeartbeatOf(other.ID, "boot-pxe", func(b *db.Heartbeat) { b.Report.NICs[0].MAC = "52:54:00:00:62:02" })
	duplicates := func() int {
		rows, err := driftdb.ListFindings(t.Context(), w.store, driftdb.Filter{Status: lifecycle.FindingOpen, Detector: lifecycle.DriftDuplicateBoot}, "", 10)
		require.NoError(t, err)
		for _, f := range rows {
			require.Contains(t, f.Finding.Message, "node "+w.node.Hostname)
			require.Contains(t, f.Finding.Message, "node "+other.Hostname)
		}
		return len(rows)
	}
	w.pass()
	require.Equal(t, 1, duplicates())
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), other.ID, lifecycle.PXERetire, nil, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada"})
		return err
	}))
	w.pass()
	require.Zero(t, duplicates())
}

// TestNodesWithoutSite_NoneEndsTheSchedule: a pass is made while there is a node without a site.
func TestNodesWithoutSite_NoneEndsTheSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ended := []string{}
	w.acts.Unschedule = func(_ context.Context, site string) error { ended = append(ended, site); return nil }
	p, err := w.acts.BeginPass(t.Context(), drift.BeginIn{})
	require.NoError(t, err)
	require.True(t, p.Gone)
	require.Equal(t, []string{""}, ended)
	dbtest.PXENode(t, w.store, pxeMAC, lifecycle.NodeDiscovered)
	p, err = w.acts.BeginPass(t.Context(), drift.BeginIn{})
	require.NoError(t, err)
	require.False(t, p.Gone)
}
