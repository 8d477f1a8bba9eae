package node_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// TestWhatIsLeftOfANodesBootstrap: a token that is good, user-data that is
// stored and an agent that is let in are named; after the undo there is nothing.
func TestWhatIsLeftOfANodesBootstrap(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	acts := &nodeact.Activities{Store: store, Secrets: sec}
	env.RegisterActivity(acts)
	node := dbtest.Node(t, store)
	ref := contract.JobRef{JobID: dbtest.Job(t, store, dbtest.On(node.ID)).ID, NodeID: node.ID, SiteID: node.SiteID}
	left := func(act any) string {
		v, err := env.ExecuteActivity(act, ref)
		require.NoError(t, err)
		var out nodeact.Left
		require.NoError(t, v.Get(&out))
		return out.Note
	}
	do := func(act any) {
		_, err := env.ExecuteActivity(act, ref)
		require.NoError(t, err)
	}
	require.Empty(t, left(acts.CheckBootstrapRevoked))
	require.Empty(t, left(acts.CheckIdentityLocked), "no agent ever enrolled")

	_, err = cloudinit.Seal(t.Context(), sec, cloudinit.SecretName(ref.JobID, 3), cloudinit.Sealed{Document: []byte("#cloud-config\n")})
	require.NoError(t, err)
	require.Equal(t, "the sealed user-data userdata/"+ref.JobID+"/3 is still stored", left(acts.CheckBootstrapRevoked))
	do(acts.RevokeBootstrap)
	_, err = sec.Put(t.Context(), cloudinit.MachineTokenName(node.ID), providers.NewSecret("a:b:c"))
	require.NoError(t, err)
	require.Equal(t, "the machine's MAAS token nodes/"+node.ID+"/maas-token is still stored", left(acts.CheckBootstrapRevoked))
	_, err = cloudinit.Seal(t.Context(), sec, cloudinit.SecretName(ref.JobID, 3), cloudinit.Sealed{Document: []byte("#cloud-config\n")})
	require.NoError(t, err)
	now := time.Now()
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(t.Context(), node.ID, ref.JobID, bytes.Repeat([]byte{7}, 32), now.Add(time.Hour)); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{
			NodeID: node.ID, Generation: 1, Serial: "1", KeyHash: bytes.Repeat([]byte{8}, 32), CertPEM: "PEM", NotBefore: now, NotAfter: now.Add(time.Hour),
		})
	}))
	require.Contains(t, left(acts.CheckBootstrapRevoked), "1 enrolment tokens of node "+node.ID+" are not revoked")
	require.Contains(t, left(acts.CheckIdentityLocked), "generation 1, is not locked")

	do(acts.RevokeBootstrap)
	do(acts.LockAgentIdentity)
	require.Empty(t, left(acts.CheckBootstrapRevoked))
	require.Empty(t, left(acts.CheckIdentityLocked))
}
