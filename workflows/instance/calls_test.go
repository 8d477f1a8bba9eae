package instance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/contract"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// refusals are the faults of a call that do not pass: the provider refuses us until somebody has
// repaired it. The short form has some calls, and one way to refuse them.
func refusals(short []string, call string) []string {
	switch {
	case runenv.Proof():
		return []string{cloudsim.FaultForbidden, cloudsim.FaultUnauthorized}
	case slices.Contains(short, call):
		return []string{cloudsim.FaultForbidden}
	}
	return nil
}

// TestInstance_EachCallIsRefused refuses each call of a creation. Before the instance boots nothing
// is left; later it keeps its one server, and goes on when the call is answered again.
func TestInstance_EachCallIsRefused(t *testing.T) {
	t.Parallel()
	provisioning, booting := lifecycle.InstanceProvisioningFailed, lifecycle.InstanceReady
	short := []string{"list_servers", "create_server", "update_volume", "server_action"} // one before and one after each effect
	for call, want := range map[string]lifecycle.InstanceStatus{
		"list_types": provisioning, "list_images": provisioning, "list_servers": provisioning, "list_groups": provisioning, "create_group": provisioning, "set_rules": provisioning,
		"list_rules":    provisioning,
		"create_server": provisioning, "get_server": provisioning, "get_volume": provisioning, "update_volume": provisioning,
		"set_user_data": booting, "server_action": booting,
	} {
		for _, fault := range refusals(short, call) {
			t.Run(call+" "+fault, func(t *testing.T) {
				t.Parallel()
				r := newSimRig(t)
				r.fault(cloudsim.Fault{Name: fault, Op: call, Count: -1})
				var parked instancedb.Instance
				i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
					parked = r.read()
					r.repaired(lifecycle.ActionRetryStage)(env)
				}, sends(lifecycle.ActionResume))
				require.Equal(t, want, i.Status, "%s: %s", i.ErrorCode, i.ErrorMessage)
				require.LessOrEqual(t, r.sim.ServersMade("slipway-instance="+r.row.ID), 1)
				if want == booting {
					require.Equal(t, lifecycle.InstanceStartupFailed, parked.Status)
					require.Equal(t, "CLOUD_REJECTED", parked.ErrorCode)
					require.NotEmpty(t, parked.FailedStage)
					require.Zero(t, parked.ProgressPercent)
					require.GreaterOrEqual(t, parked.ReachedPercent, 25)
				} else {
					require.Equal(t, "CLOUD_REJECTED", i.ErrorCode)
					require.Zero(t, i.ProgressPercent)
					require.Empty(t, r.sim.Billed(), "what is refused before the instance boots leaves nothing")
				}
				r.sim.ClearFaults(0)
				ended := r.terminate()
				require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
				require.Empty(t, r.sim.Billed())
			})
		}
	}
}

// TestTerminate_EachCallIsRefused refuses each call of a termination: the instance is failed, says
// why, and ends with each action logged once when the call is answered again.
func TestTerminate_EachCallIsRefused(t *testing.T) {
	t.Parallel()
	short := []string{"server_action", "delete_server", "delete_volume"}
	for _, call := range []string{
		"get_server", "server_action", "delete_server", "list_servers", "list_volumes", "delete_volume", "list_groups", "delete_group", "list_snapshots", "list_ips",
	} {
		for _, fault := range refusals(short, call) {
			t.Run(call+" "+fault, func(t *testing.T) {
				t.Parallel()
				r := newSimRig(t)
				require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
				ended := r.terminate()
				r.fault(cloudsim.Fault{Name: fault, Op: call, Count: -1})
				var parked instancedb.Instance
				var billed int
				i := r.runAnd(*ended.Job, func(env *testsuite.TestWorkflowEnvironment) {
					parked, billed = r.read(), len(r.sim.Billed())
					r.repaired(lifecycle.ActionRetryStage)(env)
				})
				require.Equal(t, lifecycle.InstanceTerminated, i.Status)
				require.Empty(t, r.sim.Billed())
				require.Equal(t, lifecycle.InstanceFailed, parked.Status)
				require.Equal(t, "CLOUD_REJECTED", parked.ErrorCode)
				require.NotZero(t, billed, "it still belongs to the instance, which is live, so that it is no orphan")
				logged := r.logged()
				for _, step := range lifecycle.InstanceTerminateSteps() {
					if step.ActionType != "" {
						require.Equal(t, 1, logged[step.ActionType], step.ActionType)
					}
				}
			})
		}
	}
}

// TestInstance_StartupTimeout: whatever does not come in time is STARTUP_TIMEOUT at its stage, with
// the server that is billed; a late heartbeat takes the instance back, and it becomes ready.
func TestInstance_StartupTimeout(t *testing.T) {
	t.Parallel()
	for stage, hold := range map[string]func(*simRig) (release func()){
		lifecycle.StageGetAddress: func(r *simRig) func() {
			r.fault(cloudsim.Fault{Name: cloudsim.FaultNoAddress})
			return func() { r.sim.ClearFaults(0) }
		},
		lifecycle.StageVerifyGroup: func(r *simRig) func() {
			r.fault(cloudsim.Fault{Name: cloudsim.FaultGroupSyncing})
			return func() { r.sim.ClearFaults(0) }
		},
		lifecycle.StageWaitSSH: func(r *simRig) func() {
			r.worker.setReach(&providers.Error{Kind: providers.KindUnreachable, Op: "ssh.dial", Message: "no route"})
			return func() { r.worker.setReach(nil) }
		},
		lifecycle.StageWaitHTTP: func(r *simRig) func() {
			r.worker.setSilent(true)
			return func() { r.worker.setSilent(false) }
		},
		lifecycle.StageWaitModel: func(r *simRig) func() {
			r.worker.setModel("acme/other")
			return func() { r.worker.setModel("") }
		},
		lifecycle.StageCheckHealth: func(r *simRig) func() {
			r.worker.setUnready(true)
			return func() { r.worker.setUnready(false) }
		},
	} {
		if slow := stage == lifecycle.StageGetAddress || stage == lifecycle.StageVerifyGroup; slow && !runenv.Proof() {
			continue // each of their looks is several requests
		}
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			r := newSimRig(t)
			release := hold(r)
			asked := 0
			var parked instancedb.Instance
			i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
				parked = r.read()
				r.acts.Resume = func(context.Context, instancedb.Instance) error {
					asked++
					env.SignalWorkflow(string(lifecycle.ActionResume), contract.ActionRequest{Actor: "system"})
					return nil
				}
				r.moveOn() // no heartbeat has come
				require.Zero(t, asked)
				release()
				_, err := r.store.DBTX().Exec(t.Context(), `UPDATE instances SET heartbeat_at = now(), heartbeat = '{"ready": true, "model": "acme/small"}' WHERE id = $1`, r.row.ID)
				require.NoError(t, err)
				r.moveOn()
			})
			require.Equal(t, []any{lifecycle.InstanceStartupFailed, lifecycle.InstanceStartupTimeout, stage}, []any{parked.Status, parked.ErrorCode, parked.FailedStage})
			require.Equal(t, 1, asked)
			require.Equal(t, lifecycle.InstanceReady, i.Status)
			require.Equal(t, 1, i.Recoveries)
			require.Equal(t, []string{"provisioning", "booting", "startup_failed", "booting", "ready"}, r.moves())
			rows, err := instancedb.ListActions(t.Context(), r.store, i.ID, "", 200)
			require.NoError(t, err)
			failed := 0
			for _, row := range rows {
				if row.ActionType == lifecycle.ActInstanceStartupFailed {
					failed++
					require.Contains(t, row.ErrorMessage, lifecycle.InstanceStartupTimeout)
				}
			}
			require.Equal(t, 1, failed, "the failure is logged once")
			require.Equal(t, 1, r.sim.Counts().ServersMade)
		})
	}
}
