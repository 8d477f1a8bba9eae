package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestReimage_InstallsTheNodeAgain checks that MAAS erases the disks, and that the same node record
// gets a new installation and a new generation of its agent identity.
func TestReimage_InstallsTheNodeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	nodes := w.activeNodes(t)
	jobs, before := map[*simhw.Machine]rest.Job{}, map[*simhw.Machine]int64{}
	for m, id := range nodes {
		identity, err := w.App.Store.AgentIdentity(t.Context(), id)
		require.NoError(t, err)
		before[m] = identity.Generation
		require.NoError(t, w.Sims.Nodes[m.Spec().ID].Occupy())
		jobs[m] = w.decommission(t, id, lifecycle.ModeReimage)
	}
	for m, id := range nodes {
		j := w.ends(t, jobs[m].ID, 4*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s: %s", m.Spec().Vendor, j.FailedStage, j.FailureClass, j.Message)
		w.cleaned(t, m)
		c := w.proven(t, id, jobs[m])
		require.Equal(t, string(lifecycle.ModeReimage), c.Run.Mode)
		require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
		require.Len(t, disks(c)[true], len(m.Spec().Disks))
		require.Equal(t, 2, m.Counters().Installs)
		identity, err := w.App.Store.AgentIdentity(t.Context(), id)
		require.NoError(t, err)
		require.Greater(t, identity.Generation, before[m])
		w.activeAgain(t, id)
		require.Equal(t, onboarded(lifecycle.NodeDraining, lifecycle.NodeOffline, lifecycle.NodeActive), w.statusHistory(t, id))
	}
}

// TestStorageCleanup_ProvesTheDisksClean checks that the data disks are erased and GPUs are not
// touched.
func TestStorageCleanup_ProvesTheDisksClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	nodes := w.activeNodes(t)
	jobs := map[*simhw.Machine]rest.Job{}
	for m, id := range nodes {
		require.NoError(t, w.Sims.Nodes[m.Spec().ID].Fill())
		root := w.Sims.Nodes[m.Spec().ID].Root()
		f, err := os.OpenFile(filepath.Join(root, "proc/mounts"), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("nas:/tenants /mnt/tenants/a nfs4 rw,relatime 0 0\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		jobs[m] = w.decommission(t, id, lifecycle.ModeStorageCleanup)
	}
	for m, id := range nodes {
		j := w.ends(t, jobs[m].ID, 4*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s: %s", m.Spec().Vendor, j.FailedStage, j.FailureClass, j.Message)
		mounts, err := os.ReadFile(filepath.Join(w.Sims.Nodes[m.Spec().ID].Root(), "proc/mounts"))
		require.NoError(t, err)
		require.NotContains(t, string(mounts), "nas:")
		w.cleaned(t, m)
		c := w.proven(t, id, jobs[m])
		require.Equal(t, string(lifecycle.ModeStorageCleanup), c.Run.Mode)
		require.Equal(t, evidence.VerdictNotVerified, c.Verdict, "the system disk was kept")
		require.Len(t, c.Failures, 1)
		require.Contains(t, c.Failures[0], "kept, not erased")
		require.Len(t, disks(c)[true], len(m.Spec().Disks)-1)
		require.Equal(t, 1, m.Counters().Installs)
		w.activeAgain(t, id)
		require.Equal(t, onboarded(lifecycle.NodeDraining, lifecycle.NodeOffline, lifecycle.NodeActive), w.statusHistory(t, id))
	}
}

// TestFullDecommission_DeletesTheNode checks, for two vendors, that the machine is off, that MAAS
// has no record and Slipway no login of it, that the old agent identity is refused, and that the
// same server can be onboarded as another node.
func TestFullDecommission_DeletesTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	nodes := w.activeNodes(t)
	jobs, old := map[*simhw.Machine]rest.Job{}, map[*simhw.Machine]*http.Client{}
	for m, id := range nodes {
		old[m] = w.stolenIdentity(t, m)
		require.Equal(t, http.StatusOK, w.repeatHeartbeat(t, old[m], id), "the identity is good before")
		require.NoError(t, w.Sims.Nodes[m.Spec().ID].Occupy())
		jobs[m] = w.decommission(t, id, lifecycle.ModeFull)
	}
	for m, id := range nodes {
		j := w.ends(t, jobs[m].ID, 4*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s: %s", m.Spec().Vendor, j.FailedStage, j.FailureClass, j.Message)
		w.gone(t, m, id)
		c := w.proven(t, id, jobs[m])
		require.Equal(t, string(lifecycle.ModeFull), c.Run.Mode)
		require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
		require.Len(t, disks(c)[true], len(m.Spec().Disks))
		require.Equal(t, http.StatusForbidden, w.repeatHeartbeat(t, old[m], id), "a certificate of a removed node is refused")
	}
	w.onboardsAgain(t, nodes)
}

// TestFullDecommission_WithoutAgent checks that the node is switched off, that MAAS erases every
// disk, and that the certificate does not call the node clean.
func TestFullDecommission_WithoutAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	for m, id := range w.activeNodes(t) {
		require.NoError(t, w.Sims.Nodes[m.Spec().ID].SetFaults(simnode.Faults{AgentDown: true}))
		require.NoError(t, w.App.Store.LockAgentIdentity(t.Context(), id, "a copy of its certificate was used"))
		j := w.ends(t, w.leave(t, id, lifecycle.ModeFull).ID, 4*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s: %s", j.FailedStage, j.FailureClass, j.Message)
		require.Equal(t, lifecycle.NodeDeleted, w.node(t, id).Status)
		require.Equal(t, simhw.Off, m.Power())
		require.Empty(t, w.records(t, m))
		c := w.certificate(t, id)
		require.Equal(t, evidence.VerdictNotVerified, c.Verdict)
		require.Empty(t, disks(c)[false], "MAAS erased them all")
		require.Len(t, disks(c)[true], len(m.Spec().Disks))
	}
}

// gone checks all that a full decommission leaves.
func (w *world) gone(t *testing.T, m *simhw.Machine, nodeID string) {
	t.Helper()
	n := w.node(t, nodeID)
	require.Equal(t, lifecycle.NodeDeleted, n.Status)
	require.Empty(t, n.SSHHostKey)
	require.Equal(t, simhw.Off, m.Power())
	require.Nil(t, m.InstalledOS(), "MAAS erased the disks")
	w.cleaned(t, m)
	require.Empty(t, w.records(t, m), "still in MAAS")
	_, err := w.App.Store.BMCOfNode(t.Context(), nodeID)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, _, _, stored, err := w.App.Store.SecretVersion(t.Context(), stack.BMCSecret(m.Spec().ID), 0)
	require.NoError(t, err)
	require.False(t, stored, "the login of the BMC")
	open, err := w.App.Store.OpenEnrollmentTokens(t.Context(), nodeID)
	require.NoError(t, err)
	require.Zero(t, open)
	require.Equal(t, onboarded(lifecycle.NodeDraining, lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.NodeDeleted), w.statusHistory(t, nodeID))
}

// records is what MAAS has of a machine, by its MACs.
func (w *world) records(t *testing.T, m *simhw.Machine) []providers.MAASMachine {
	t.Helper()
	c, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: w.Sims.URL, APIKey: providers.NewSecret(w.Sims.APIKey)})
	require.NoError(t, err)
	found, err := c.FindMachines(t.Context(), providers.MAASQuery{MACs: []string{m.Spec().NICs[0].MAC}})
	require.NoError(t, err)
	return found
}

// onboardsAgain onboards the same servers again.
func (w *world) onboardsAgain(t *testing.T, nodes map[*simhw.Machine]string) {
	t.Helper()
	require.NoError(t, w.SeedSecrets(t.Context()))
	again := w.activeNodes(t)
	for m, id := range nodes {
		require.NotEqual(t, id, again[m], "re-onboarding makes a new node record")
		require.Equal(t, lifecycle.NodeDeleted, w.node(t, id).Status, "the old one stays as it was")
	}
}

// stolenIdentity is a client with the certificate of the node's agent.
func (w *world) stolenIdentity(t *testing.T, m *simhw.Machine) *http.Client {
	t.Helper()
	return w.identityBelow(t, w.Sims.Nodes[m.Spec().ID].Root())
}

// identityBelow is a client with the certificate of the agent on a node's root.
func (w *world) identityBelow(t *testing.T, root string) *http.Client {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "var/lib/slipway-agent/identity.json"))
	require.NoError(t, err)
	var id struct {
		Cert string `json:"certificate_pem"`
		Key  string `json:"key_pem"`
	}
	require.NoError(t, json.Unmarshal(raw, &id))
	pair, err := tls.X509KeyPair([]byte(id.Cert), []byte(id.Key))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(w.App.CA.CertPEM()))
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS13,
	}}}
}

// repeatHeartbeat repeats the node's last heartbeat with an identity and returns the status
// of the answer.
func (w *world) repeatHeartbeat(t *testing.T, c *http.Client, nodeID string) int {
	t.Helper()
	last, err := w.App.Store.LatestHeartbeat(t.Context(), nodeID)
	require.NoError(t, err)
	body, err := json.Marshal(protocol.Heartbeat{BootID: last.BootID, AgentVersion: last.AgentVersion, Generation: last.Generation, SentAt: time.Now()})
	require.NoError(t, err)
	resp, err := c.Post(w.App.Config.Agent.PublicURL+protocol.PathHeartbeat, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestNodeOperations checks that drain and retire end retired, and that remove ends deleted and
// leaves the machine in MAAS as it is.
func TestNodeOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	modes := []lifecycle.DecommissionMode{lifecycle.ModeDrain, lifecycle.ModeRetire}
	for m, id := range w.activeNodes(t) {
		mode := modes[0]
		modes = modes[1:]
		j := w.ends(t, w.leave(t, id, mode).ID, 2*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s %s: %s", mode, j.FailedStage, j.Message)
		require.Equal(t, lifecycle.NodeRetired, w.node(t, id).Status)
		j = w.ends(t, w.leave(t, id, lifecycle.ModeRemove).ID, 2*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
		require.Equal(t, lifecycle.NodeDeleted, w.node(t, id).Status)
		records := w.records(t, m)
		require.Len(t, records, 1)
		require.Equal(t, providers.MAASDeployed, records[0].Status)
		require.NoFileExists(t, filepath.Join(w.Sims.Nodes[m.Spec().ID].Root(), "var/lib/slipway-agent/identity.json"))
	}
}
