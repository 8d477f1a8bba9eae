package evidence_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/acttest"
)

// leftNode is a scrubbed node with a BMC that a tenant left.
func leftNode(t *testing.T, root bool) *certifyFixture {
	t.Helper()
	w := newCertifyFixture(t)
	w.Enrol(1)
	_, err := w.Store.CreateBMC(t.Context(), db.NewBMC{NodeID: &w.Ref.NodeID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	tenant := dbtest.Occupy(t, w.Store, w.Ref.NodeID)
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), w.Store, root))
	dbtest.EndTenancy(t, w.Store, tenant.ID)
	w.scrubbed("", nil)
	last, err := w.Store.LastTenancy(t.Context(), w.Ref.NodeID)
	require.NoError(t, err)
	require.Equal(t, tenant.ID, last)
	return w
}

func (w *certifyFixture) marked() bool {
	n, err := w.Store.Node(w.Context(), w.Ref.NodeID)
	require.NoError(w, err)
	return n.TenantLeftAt != nil
}

// TestCertifyNode_TenantBMC: the node of a root tenant is not clean while nothing has compared its
// BMC, whatever was erased. Once it was, the node may return to service.
func TestCertifyNode_TenantBMC(t *testing.T) {
	t.Parallel()
	const why = "the BMC was not compared with what it was before the tenant"
	w := leftNode(t, true)
	in := w.certifyIn(lifecycle.ModeReimage)
	in.Release = erased("BOOT", "DATA")
	f := acttest.Must(w, w.acts.CertifyNode, in)
	require.Contains(t, strings.Join(f.Unproven, "\n"), why)
	require.True(t, w.marked())
	in.BMCChecked = true
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
	require.False(t, w.marked(), "it may return to service")

	full := leftNode(t, true)
	in = full.certifyIn(lifecycle.ModeFull)
	in.Release = erased("BOOT", "DATA")
	require.Empty(t, acttest.Must(full, full.acts.CertifyNode, in).Unproven, "the node is gone afterwards")
	c, _ := full.last()
	require.Contains(t, c.Steps[len(c.Steps)-2].Skipped+c.Steps[len(c.Steps)-1].Skipped, why)
	require.True(t, full.marked())

	release := leftNode(t, true)
	in = release.certifyIn(lifecycle.ModeReimage)
	in.Kind, in.Release = contract.KindAllocationRelease, erased("BOOT", "DATA")
	require.Empty(t, acttest.Must(release, release.acts.CertifyNode, in).Unproven, "it has stages of its own")

	other := leftNode(t, false)
	in = other.certifyIn(lifecycle.ModeReimage)
	in.Release = erased("BOOT", "DATA")
	require.Empty(t, acttest.Must(other, other.acts.CertifyNode, in).Unproven, "he was not root")
	require.False(t, other.marked())
}

// TestCertifyNode_MachineOfProject: nothing is kept of the BMC when a project gets a machine. A
// reimage after that proves the node clean, and its certificate names the BMC.
func TestCertifyNode_MachineOfProject(t *testing.T) {
	t.Parallel()
	w := leftNode(t, true)
	_, err := w.Store.DBTX().Exec(t.Context(), "UPDATE nodes SET left_by_machine = true WHERE id = $1", w.Ref.NodeID)
	require.NoError(t, err)
	in := w.certifyIn(lifecycle.ModeReimage)
	in.Release = erased("BOOT", "DATA")
	require.Empty(t, acttest.Must(w, w.acts.CertifyNode, in).Unproven)
	require.False(t, w.marked(), "it may return to service")
	c, _ := w.last()
	require.True(t, slices.ContainsFunc(c.Steps, func(s lifecycle.StepResult) bool { return s.Name == "bmc.settings" && s.Skipped != "" }), "%v", c.Steps)
}
