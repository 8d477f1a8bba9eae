package e2e_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// leave accepts a decommission or a node operation as the API does: the job and
// the node's move in one transaction.
func (w *world) leave(t *testing.T, nodeID string, mode lifecycle.DecommissionMode) db.Job {
	t.Helper()
	n, err := w.App.Store.Node(t.Context(), nodeID)
	require.NoError(t, err)
	in := contract.DecommissionInput{Mode: mode, NodeID: n.ID, Hostname: n.Hostname, From: n.Status, Reason: "e2e", GraceSeconds: 1}
	if n.MAASSystemID != nil {
		in.SystemID = *n.MAASSystemID
	}
	var job db.Job
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		job, _, err = decommission.Start(t.Context(), tx, "", n, in, admin)
		return err
	}))
	return job
}

// activeNodes onboards all machines and returns their node ids by machine.
func (w *world) activeNodes(t *testing.T) map[*simhw.Machine]string {
	t.Helper()
	jobs := map[*simhw.Machine]string{}
	for _, m := range w.Sims.Fleet.All() {
		jobs[m] = w.onboard(t, m).ID
	}
	nodes := map[*simhw.Machine]string{}
	for m, id := range jobs {
		j := w.ends(t, id, 3*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
		nodes[m] = *j.NodeID
	}
	return nodes
}

func (w *world) node(t *testing.T, id string) db.Node {
	t.Helper()
	n, err := w.App.Store.Node(t.Context(), id)
	require.NoError(t, err)
	return n
}

// certificate is the node's only one.
func (w *world) certificate(t *testing.T, nodeID string) evidence.Certificate {
	t.Helper()
	rows, err := evidencedb.CertificatesOfNode(t.Context(), w.App.Store, nodeID)
	require.NoError(t, err)
	require.Len(t, rows, 1, "one certificate a run")
	var c evidence.Certificate
	require.NoError(t, json.Unmarshal(rows[0].Payload, &c))
	return c
}

func (w *world) cleaned(t *testing.T, m *simhw.Machine) {
	t.Helper()
	disks := m.Spec().Disks
	for _, d := range disks[:len(disks)-1] {
		held, err := w.Sims.Nodes[m.Spec().ID].DiskHolds(d.Name, "SIMULATED-TENANT-DATA")
		require.NoError(t, err)
		require.False(t, held, "a tenant's data is still on %s", d.Name)
	}
}

func disks(c evidence.Certificate) map[bool][]string {
	out := map[bool][]string{}
	for _, d := range c.Devices {
		if d.Kind == "disk" {
			out[d.Verified] = append(out[d.Verified], d.Name+": "+d.Detail)
		}
	}
	return out
}

// planned asks for the plan of a mode, as the API does.
func (w *world) planned(t *testing.T, nodeID string, mode lifecycle.DecommissionMode) contract.Plan {
	t.Helper()
	in := contract.DecommissionPlanInput{
		Job:     contract.JobInput{Kind: contract.DecommissionKind(mode), NodeID: nodeID, SiteID: w.site.ID},
		Request: &contract.DecommissionInput{Mode: mode, NodeID: nodeID, Hostname: w.node(t, nodeID).Hostname, GraceSeconds: 1},
	}
	for ends := time.Now().Add(runenv.Patience(2 * time.Minute)); ; {
		run, err := w.App.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID: contract.DecommissionPlanWorkflowID(in), TaskQueue: w.App.Config.Temporal.TaskQueue,
		}, contract.DecommissionPlanWorkflow, in)
		require.NoError(t, err)
		var p contract.Plan
		var late *temporal.ApplicationError
		err = run.Get(t.Context(), &p)
		if errors.As(err, &late) && late.Type() == "slow" && time.Now().Before(ends) {
			continue
		}
		require.NoError(t, err)
		return p
	}
}

// TestDecommissionPlan_ChangesNothing checks that two plans have the same hash, that neither
// changes the node, and that no BMC is logged in to.
func TestDecommissionPlan_ChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	for m, id := range w.activeNodes(t) {
		before, err := w.App.Store.ResourceTimeline(t.Context(), "node", id, 0, 1000)
		require.NoError(t, err)
		logins, counts := w.Sims.BMCs[m.Spec().ID].Counters().Logins, w.Sims.MAAS.Counters().Total
		for _, info := range lifecycle.DecommissionModes() {
			if info.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
				continue
			}
			p := w.planned(t, id, info.Mode)
			require.Len(t, p.Rows, len(info.Stages))
			require.Equal(t, p.Hash, w.planned(t, id, info.Mode).Hash, info.Mode)
			if info.Mode != lifecycle.ModeRemove { // of a node that is not retired yet
				require.False(t, p.NeedsHuman, "%s: %s", info.Mode, p.Summary)
			}
		}
		after, err := w.App.Store.ResourceTimeline(t.Context(), "node", id, 0, 1000)
		require.NoError(t, err)
		require.Len(t, after, len(before))
		require.Equal(t, logins, w.Sims.BMCs[m.Spec().ID].Counters().Logins)
		require.Equal(t, counts, w.Sims.MAAS.Counters().Total)
	}
}

// TestSoftReset_ReturnsTheNodeToService checks, for two vendors, that the tenant's data is gone,
// that the system stays, and that the certificate says so.
func TestSoftReset_ReturnsTheNodeToService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	nodes := w.activeNodes(t)
	jobs := map[*simhw.Machine]rest.Job{}
	for m, id := range nodes {
		require.NoError(t, w.Sims.Nodes[m.Spec().ID].Occupy())
		jobs[m] = w.decommission(t, id, lifecycle.ModeSoftReset)
	}
	for m, id := range nodes {
		j := w.ends(t, jobs[m].ID, 4*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s: %s", m.Spec().Vendor, j.FailedStage, j.FailureClass, j.Message)
		w.cleaned(t, m)
		c := w.proven(t, id, jobs[m])
		require.Equal(t, string(lifecycle.ModeSoftReset), c.Run.Mode)
		require.Equal(t, evidence.VerdictNotVerified, c.Verdict, "the system disk was kept")
		require.Len(t, c.Failures, 1)
		require.Contains(t, c.Failures[0], "kept, not erased")
		require.NotEqual(t, c.Run.BootBefore, c.Run.BootAfter)
		require.True(t, c.Simulated)
		require.Len(t, disks(c)[true], len(m.Spec().Disks)-1)
		w.activeAgain(t, id)
		require.Equal(t, 1, m.Counters().Installs)
		require.Equal(t, onboarded(lifecycle.NodeDraining, lifecycle.NodeOffline, lifecycle.NodeActive), w.statusHistory(t, id))
	}
}

// activeAgain waits for the healthy heartbeat that gives a node back to service.
func (w *world) activeAgain(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool { return w.node(t, id).Status == lifecycle.NodeActive }, runenv.Patience(time.Minute), 200*time.Millisecond)
}
