package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/stack"
)

// tenant is a project with one key.
type tenant struct {
	*world
	*stack.Tenant
}

// newTenant makes a project that may have nodes of the world's SKU, which is offered.
func (w *world) newTenant(t *testing.T) *tenant {
	t.Helper()
	made, err := stack.NewTenant(t.Context(), w.App.Store, w.sku.ID, w.profile.ID)
	require.NoError(t, err)
	return &tenant{world: w, Tenant: made}
}

// allocate asks for a node as the API does, once one can be claimed.
func (a *tenant) allocate(t *testing.T) allocation.Accepted {
	t.Helper()
	var out allocation.Accepted
	require.NoError(t, a.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		out, err = a.Allocate(t.Context(), tx, "")
		return err
	}))
	return out
}

// release asks for the end of an allocation as the API does.
func (a *tenant) release(t *testing.T, id string) allocation.Released {
	t.Helper()
	var out allocation.Released
	require.NoError(t, a.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		out, err = allocation.Release(t.Context(), tx, id, "done", admin)
		return err
	}))
	return out
}

func (w *world) allocation(t *testing.T, id string) allocationdb.Allocation {
	t.Helper()
	row, err := allocationdb.Get(t.Context(), w.App.Store, id)
	require.NoError(t, err)
	return row
}

// jobPlan asks the API what a job would do now.
func (w *world) jobPlan(t *testing.T, jobID string) rest.Plan {
	t.Helper()
	r, err := w.as(t, "viewer").PlanJob(t.Context(), jobID, nil)
	require.NoError(t, err)
	return decoded[rest.Plan](t, r.Raw)
}

// becomes waits until an allocation has a status, and fails on the job that does not get it there.
func (w *world) becomes(t *testing.T, id, job string, want lifecycle.AllocationStatus) allocationdb.Allocation {
	t.Helper()
	j := w.ends(t, job, 4*time.Minute)
	row := w.allocation(t, id)
	require.Equal(t, want, row.Status, "job %s is %s at %s: %s: %s; the allocation: %s %s", j.Kind, j.Status, j.FailedStage, j.FailureClass, j.Message, row.FailureCode, row.FailureMessage)
	return row
}

// TestAllocation_OneTenantAfterAnother gives a node to a tenant, who logs in with his own key and
// leaves what root leaves; takes it back; and gives it to the next, who finds nothing of it.
func TestAllocation_OneTenantAfterAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	var m *simhw.Machine
	var nodeID string
	for m, nodeID = range w.activeNodes(t) {
	}
	first, second := w.newTenant(t), w.newTenant(t)
	given := w.credentialsOf(t, m)
	password := w.bmcPassword(t, nodeID)
	got := first.allocate(t)
	active := w.becomes(t, got.Allocation.ID, got.Job.ID, lifecycle.AllocationActive)
	require.NotNil(t, active.StartTime)
	require.NotNil(t, active.AccessGivenAt)
	require.NotNil(t, active.Image)
	w.requireWorthless(t, m, given)
	require.NotEmpty(t, active.Network.CIDR)
	require.Equal(t, active.ID, w.marked(t, nodeID), "MAAS names the allocation")
	uid, err := first.Run(t.Context(), active.Connection, "id -u")
	require.NoError(t, err)
	require.NotEqual(t, "0", uid)
	_, err = second.Run(t.Context(), active.Connection, "id -u")
	require.Error(t, err, "another tenant's key is refused")
	require.NoError(t, w.Sims.Nodes[m.Spec().ID].Occupy())

	waiting := second.allocate(t)
	require.Equal(t, lifecycle.AllocationRequested, waiting.Allocation.Status, "the node is taken")

	released := first.release(t, active.ID)
	require.Equal(t, lifecycle.AllocationReleasing, released.Allocation.Status)
	// Root has left an entry in the firmware's boot menu, which no installation removes: the node
	// is nobody's until an operator has put that back.
	failed := w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleaseFailed)
	require.Equal(t, lifecycle.AccessRevoked, failed.Access)
	parked := w.job(t, released.Job.ID)
	require.Equal(t, lifecycle.FailFirmwareChanged, parked.FailureClass, parked.Message)
	require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodeID).Status)
	planned := w.jobPlan(t, parked.ID)
	require.Contains(t, planned.Summary, "Taken up again where it is parked, the job would run to its end", "%+v", planned.Rows)
	would := map[string]contract.PlannedAction{}
	for _, row := range planned.Rows {
		would[row.Stage] = row.Planned
	}
	require.Len(t, would, len(lifecycle.AllocationReleaseStages()))
	require.Equal(t, contract.PlannedDone, would[lifecycle.StageReleaseMAAS])
	require.Equal(t, contract.PlannedRun, would[lifecycle.StageValidateFirmware])
	m.SetBootEntries()
	require.Equal(t, http.StatusOK, w.act(t, "olga", parked.ID, lifecycle.ActionRetryStage, "").code)
	gone := w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleased)
	require.Equal(t, lifecycle.AccessRevoked, gone.Access)
	require.Equal(t, lifecycle.OutcomeReleased, gone.Outcome)
	require.NotNil(t, gone.CertificateID)
	require.False(t, gone.AccessEndedAt.After(*gone.ReleasedAt))
	require.Nil(t, w.node(t, nodeID).TenantLeftAt)
	require.Empty(t, w.marked(t, nodeID))
	require.NotEqual(t, password, w.bmcPassword(t, nodeID), "root could have learnt it")
	c := w.certificate(t, nodeID)
	require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
	require.Equal(t, released.Job.ID, c.Run.ID)
	require.Equal(t, 2, m.Counters().Installs, "its tenant was root, so it was installed again")
	w.cleaned(t, m)

	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), nodeID, lifecycle.NodeUnquarantine, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}, admin)
		return err
	}))
	next := w.becomes(t, waiting.Allocation.ID, waiting.Job.ID, lifecycle.AllocationActive)
	require.Equal(t, nodeID, *next.NodeID)
	root := w.Sims.Nodes[m.Spec().ID].Root()
	for _, left := range []string{"/home/tenant1", "/home/" + lifecycle.TenantAccount(active.ID), "/etc/systemd/system/miner.service", "/tmp/.miner"} {
		_, err := os.Stat(filepath.Join(root, left))
		require.ErrorIs(t, err, os.ErrNotExist, left)
	}
	_, err = first.Run(t.Context(), next.Connection, "id -u")
	require.Error(t, err, "the first tenant's key is refused")
	require.NotEqual(t, active.Connection.HostKey, next.Connection.HostKey)
	_, err = second.Run(t.Context(), next.Connection, "id -u")
	require.NoError(t, err)
}

// TestAllocation_OneTenantAfterAnother_NotRoot gives a node to tenants who are not root on it: the
// installed system stays, is scrubbed, and the node is in service again without an operator.
func TestAllocation_OneTenantAfterAnother_NotRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	var m *simhw.Machine
	var nodeID string
	for m, nodeID = range w.activeNodes(t) {
	}
	first, second := w.newTenant(t), w.newTenant(t)
	require.NoError(t, dbtest.SetTenantRootOf(t.Context(), w.App.Store, w.sku.ID, false))
	got := first.allocate(t)
	active := w.becomes(t, got.Allocation.ID, got.Job.ID, lifecycle.AllocationActive)
	_, err := first.Run(t.Context(), active.Connection, "sudo -n id -u")
	require.Error(t, err, "he is not root")
	root := w.Sims.Nodes[m.Spec().ID].Root()
	data := []string{"/home/" + lifecycle.TenantAccount(active.ID) + "/data", "/tmp/.miner", "/dev/shm/miner"}
	for _, file := range data {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte("his"), 0o600))
	}
	waiting := second.allocate(t)
	released := first.release(t, active.ID)
	gone := w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleased)
	require.Equal(t, lifecycle.AccessRevoked, gone.Access)
	require.NotNil(t, gone.CertificateID)
	require.Equal(t, 1, m.Counters().Installs, "the installed system stays")

	next := w.becomes(t, waiting.Allocation.ID, waiting.Job.ID, lifecycle.AllocationActive)
	require.Equal(t, nodeID, *next.NodeID)
	require.Nil(t, w.node(t, nodeID).TenantLeftAt)
	c := w.certificate(t, nodeID)
	require.NotNil(t, c.SanitizedSince, "%v", c.Failures)
	require.True(t, c.SanitizedSince.After(*gone.AccessEndedAt))
	for _, left := range append(data, "/home/"+lifecycle.TenantAccount(active.ID)) {
		_, err := os.Stat(filepath.Join(root, left))
		require.ErrorIs(t, err, os.ErrNotExist, left)
	}
	_, err = first.Run(t.Context(), next.Connection, "id -u")
	require.Error(t, err, "the first tenant's key is refused")
	_, err = second.Run(t.Context(), next.Connection, "id -u")
	require.NoError(t, err)
}
