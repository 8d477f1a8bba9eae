package node_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// TestPlanCloudInit: the document is rendered to see whether it can be, and
// nothing of it is kept.
func TestPlanCloudInit(t *testing.T) {
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
	plan := func(in nodeact.RenderIn) nodeact.DryRunOut {
		t.Helper()
		v, err := env.ExecuteActivity(acts.PlanCloudInit, nodeact.DryRunIn[nodeact.RenderIn]{In: in})
		require.NoError(t, err)
		var out nodeact.DryRunOut
		require.NoError(t, v.Get(&out))
		return out
	}
	before, err := store.Node(t.Context(), node.ID)
	require.NoError(t, err)
	got := plan(in)
	require.Nil(t, got.Failure)
	require.Len(t, got.Steps, 1)
	require.Contains(t, got.Steps[0], "one-time enrolment token for 1h0m0s")
	dry := in
	dry.JobRef = contract.JobRef{JobID: contract.PlannedJobID, SiteID: node.SiteID}
	require.Equal(t, got.Steps, plan(dry).Steps)
	after, err := store.Node(t.Context(), node.ID)
	require.NoError(t, err)
	require.Equal(t, before, after, "no host key is pinned")
	_, err = cloudinit.OpenSealed(t.Context(), sec, providers.SecretRef(cloudinit.SecretName(in.JobID, 1)))
	require.True(t, providers.IsKind(err, providers.KindNotFound), "nothing is sealed: %v", err)

	bad := in
	bad.Profile.SiteBootstrapBundleRef = "no/bundle"
	require.Equal(t, lifecycle.FailSecretUnavailable, plan(bad).Failure.Class)

	_, err = env.ExecuteActivity(acts.RenderCloudInit, in)
	require.NoError(t, err)
	require.True(t, plan(in).Done, "what was sealed is used again")
	in.InUse, in.Existing = true, contract.UserData{Ref: "x"}
	require.True(t, plan(in).Done)
}

// TestPlanAgent tells what there is of an agent and does not wait for one.
func TestPlanAgent(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	node := dbtest.Node(t, store)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	acts := &nodeact.Activities{Store: store}
	env.RegisterActivity(acts)
	for _, id := range []string{node.ID, ""} { // before a dry run there is no node
		v, err := env.ExecuteActivity(acts.PlanAgent, nodeact.DryRunIn[nodeact.WaitAgentIn]{In: nodeact.WaitAgentIn{JobRef: contract.JobRef{NodeID: id}}})
		require.NoError(t, err)
		var out nodeact.DryRunOut
		require.NoError(t, v.Get(&out))
		require.False(t, out.Done)
		require.Equal(t, "no agent has reported", out.Observed)
	}
}
