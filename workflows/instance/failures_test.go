package instance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// sends returns what asks a job for an action.
func sends(a lifecycle.Action) func(*testsuite.TestWorkflowEnvironment) {
	return func(env *testsuite.TestWorkflowEnvironment) {
		env.SignalWorkflow(string(a), contract.ActionRequest{Actor: "ops"})
	}
}

// repaired ends all faults, and then asks a job for an action.
func (r *simRig) repaired(a lifecycle.Action) func(*testsuite.TestWorkflowEnvironment) {
	return func(env *testsuite.TestWorkflowEnvironment) {
		r.sim.ClearFaults(0)
		sends(a)(env)
	}
}

// TestInstance_QuotaAndCapacity: both forms of a used-up quota, and a provider without a free
// machine, at the order of the server and at its start.
func TestInstance_QuotaAndCapacity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault cloudsim.Fault
		code  string
		boots bool
	}{
		"quota":                      {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server", Count: -1}, "CLOUD_QUOTA", false},
		"quota in the old form":      {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server", Count: -1, Params: map[string]string{"form": "old"}}, "CLOUD_QUOTA", false},
		"quota at the start":         {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "server_action", Count: -1}, "CLOUD_QUOTA", true},
		"out of stock at the start":  {cloudsim.Fault{Name: cloudsim.FaultOutOfStock, Count: -1}, "CLOUD_CAPACITY", true},
		"accepted and stopped again": {cloudsim.Fault{Name: cloudsim.FaultFallsBack, Count: -1}, "CLOUD_CAPACITY", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSimRig(t)
			r.fault(tc.fault)
			var parked instancedb.Instance
			i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
				parked = r.read()
				r.repaired(lifecycle.ActionRetryStage)(env)
			})
			if !tc.boots {
				require.Equal(t, []any{lifecycle.InstanceProvisioningFailed, tc.code}, []any{i.Status, i.ErrorCode})
				require.Empty(t, r.sim.Billed())
				return
			}
			require.Equal(t, []any{lifecycle.InstanceStartupFailed, tc.code}, []any{parked.Status, parked.ErrorCode})
			require.Equal(t, lifecycle.StageStartServer, parked.FailedStage)
			require.Equal(t, lifecycle.InstanceReady, i.Status)
			require.Empty(t, i.ErrorCode)
			require.Equal(t, 1, r.sim.Counts().ServersMade)
			require.Equal(t, 1, r.logged()[lifecycle.ActProviderStart], "the action succeeded once")
		})
	}
}

// moveOn runs the part of the pass that resumes late startups.
func (r *simRig) moveOn() {
	r.Helper()
	_, err := r.acts.MoveInstancesOn(r.Context(), instanceact.PassIn{At: time.Now()})
	require.NoError(r, err)
}

// TestInstance_WrongAgentIsNeverTrusted: a worker that claims the right checksum in fresh
// heartbeats, and whose agent says another one to us, fails the startup, and no heartbeat takes it
// back.
func TestInstance_WrongAgentIsNeverTrusted(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	r.worker.checksum = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
	r.acts.Resume = func(context.Context, instancedb.Instance) error { t.Error("it was resumed"); return nil }
	var parked instancedb.Instance
	i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
		parked = r.read()
		_, err := r.store.DBTX().Exec(t.Context(), "UPDATE instances SET worker_hash = 'key' WHERE id = $1", r.row.ID)
		require.NoError(t, err)
		require.NoError(t, r.heartbeat("key", 1, mock.Checksum), "the claim is the one that was installed")
		r.moveOn()
		sends(lifecycle.ActionRetryStage)(env) // an operator tries it again, and the heartbeat is fresh
	}, func(env *testsuite.TestWorkflowEnvironment) {
		require.Equal(t, lifecycle.InstanceChecksumFailed, r.read().ErrorCode, "the retry failed as well")
		sends(lifecycle.ActionCancel)(env)
	})
	require.Equal(t, []any{lifecycle.InstanceStartupFailed, lifecycle.InstanceChecksumFailed}, []any{parked.Status, parked.ErrorCode})
	require.Nil(t, parked.AgentVerifiedAt)
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
	require.NotContains(t, r.moves(), "ready")
	require.Empty(t, r.sim.Billed())
}
