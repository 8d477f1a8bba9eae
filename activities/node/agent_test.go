package node_test

import (
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
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// TestUserDataOfADeployment: user-data is the same until its token is used,
// then a machine that is deployed again gets another; what a machine runs with
// now is never replaced.
func TestUserDataOfADeployment(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	acts := &nodeact.Activities{Store: store, Secrets: sec, AgentURL: "https://127.0.0.1:9443", AgentCAPEM: "ca"}
	env.RegisterActivity(acts)
	node := dbtest.Node(t, store)
	job := dbtest.Job(t, store, dbtest.On(node.ID))
	in := nodeact.RenderIn{
		JobRef: contract.JobRef{JobID: job.ID, NodeID: node.ID, SiteID: node.SiteID}, Hostname: node.Hostname,
		Profile: spec.ProfileSpec{}.WithDefaults(), Attempt: 1,
	}
	render := func() contract.UserData {
		v, err := env.ExecuteActivity(acts.RenderCloudInit, in)
		require.NoError(t, err)
		var out contract.UserData
		require.NoError(t, v.Get(&out))
		return out
	}
	first := render()
	require.Equal(t, first.SHA256, render().SHA256, "a repetition hands out the same")
	sealed, err := cloudinit.OpenSealed(t.Context(), sec, providers.SecretRef(cloudinit.SecretName(in.JobID, 1)))
	require.NoError(t, err)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		_, outcome, err := tx.RedeemEnrollmentToken(t.Context(), sealed.TokenHash, []byte("key"), 1)
		require.Equal(t, db.TokenFirst, outcome)
		return err
	}))
	in.InUse, in.Existing = true, first
	require.Equal(t, first.SHA256, render().SHA256, "the machine runs with it")
	in.InUse = false
	second := render()
	require.NotEqual(t, first.SHA256, second.SHA256, "its token was used up")
	require.WithinDuration(t, time.Now(), *second.IssuedAt, time.Minute)
}

// TestWaitForAgent_KeepsTheAddress: a node that MAAS gives no address has the one that its agent
// reports.
func TestWaitForAgent_KeepsTheAddress(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	acts := &nodeact.Activities{Store: store}
	for want, before := range map[string]db.NodeAddresses{"10.0.0.7": {}, "10.0.0.5": {Source: lifecycle.AddressesOfMAAS, IPs: []string{"10.0.0.5"}}} {
		node := dbtest.Node(t, store)
		require.NoError(t, store.SetNodeAddresses(t.Context(), node.ID, before))
		require.NoError(t, store.RecordHeartbeats(t.Context(), []db.Heartbeat{
			{NodeID: node.ID, BootID: "b", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{Address: "10.0.0.7"}},
		}))
		f, err := acts.WaitForAgent(t.Context(), nodeact.WaitAgentIn{JobRef: contract.JobRef{NodeID: node.ID}})
		require.NoError(t, err)
		require.True(t, f.Healthy)
		now, err := store.Node(t.Context(), node.ID)
		require.NoError(t, err)
		require.Equal(t, []string{want}, now.IPAddresses)
	}
}
