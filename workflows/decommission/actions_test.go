package decommission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// callOf is the call by which a stage can be made to fail.
var callOf = map[string]string{
	lifecycle.StageDisableNode: "config", lifecycle.StageForceRelease: "allocation.revoke_user", lifecycle.StageDrainNode: "node.drain",
	lifecycle.StageCleanupStorage: "gpu.scrub", lifecycle.StageValidateClean: "node.validate", lifecycle.StageLoadSite: "before",
	lifecycle.StageReleaseMAAS: "release", lifecycle.StagePowerOffMAAS: "maas:off", lifecycle.StageRetireNode: "move:retired",
	lifecycle.StageRemoveNode: "identity", lifecycle.StageCleanupSecrets: "secrets", lifecycle.StageRemoveMAAS: "record",
}

// occupied is a full decommission of a node that has a tenant.
func occupied(t *testing.T, mode lifecycle.DecommissionMode) *fixture {
	t.Helper()
	b := setup(t, mode)
	b.site.facts.AllocationID = "alloc_1"
	return b
}

// TestEachStage_ParksAndRetries, resumed and rerun.
func TestEachStage_ParksAndRetries(t *testing.T) {
	t.Parallel()
	for name, call := range callOf {
		for _, again := range []lifecycle.Action{lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun} {
			t.Run(name+"/"+string(again), func(t *testing.T) {
				t.Parallel()
				b := occupied(t, lifecycle.ModeFull)
				b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
				p := b.parkedAt(time.Hour)
				b.at(2*time.Hour, again)
				require.Equal(t, lifecycle.JobCompleted, b.run())
				require.Equal(t, name, p.Failure.Stage)
				require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
				if name != lifecycle.StageReleaseMAAS {
					require.Equal(t, 1, b.count("release"), "what is released is not released again")
				}
			})
		}
	}
}

// TestEachStage_Cancel: before the tenant is ended the node goes back to offline;
// afterwards to quarantine, as it does once anything was erased; a retired one
// stays retired.
func TestEachStage_Cancel(t *testing.T) {
	t.Parallel()
	want := map[string]lifecycle.NodeStatus{
		lifecycle.StageDisableNode: lifecycle.NodeOffline, lifecycle.StageForceRelease: lifecycle.NodeOffline, lifecycle.StageDrainNode: lifecycle.NodeQuarantined,
		lifecycle.StageCleanupStorage: lifecycle.NodeQuarantined, lifecycle.StageValidateClean: lifecycle.NodeQuarantined,
		lifecycle.StageLoadSite: lifecycle.NodeQuarantined, lifecycle.StageReleaseMAAS: lifecycle.NodeQuarantined,
		lifecycle.StagePowerOffMAAS: lifecycle.NodeQuarantined, lifecycle.StageRetireNode: lifecycle.NodeQuarantined,
		lifecycle.StageRemoveNode: lifecycle.NodeRetired, lifecycle.StageCleanupSecrets: lifecycle.NodeRetired, lifecycle.StageRemoveMAAS: lifecycle.NodeRetired,
	}
	for name, status := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := occupied(t, lifecycle.ModeFull)
			if name == lifecycle.StageRetireNode { // fails after its effect, as a lost answer does
				b.site.fail["move:retired"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
				status = lifecycle.NodeRetired
			} else {
				b.site.fail[callOf[name]] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			}
			b.at(time.Hour, lifecycle.ActionCancel)
			require.Equal(t, lifecycle.JobCancelled, b.run())
			require.Equal(t, status, b.site.facts.Status)
		})
	}
}

// TestCancel_AfterTenantEndedQuarantines, also where the answer that said so was lost: cancelled,
// every mode and operation leaves the node quarantined. A node that nobody was on goes back to
// offline.
func TestCancel_AfterTenantEndedQuarantines(t *testing.T) {
	t.Parallel()
	for mode, call := range map[lifecycle.DecommissionMode]string{
		lifecycle.ModeSoftReset: "node.drain", lifecycle.ModeReimage: "free", lifecycle.ModeRetire: "free", lifecycle.ModeDrain: "node.drain",
	} {
		for _, allocation := range []string{"alloc_1", ""} {
			t.Run(string(mode)+"/"+allocation, func(t *testing.T) {
				t.Parallel()
				b := setup(t, mode)
				want, failing := lifecycle.NodeOffline, "node.drain"
				if b.site.facts.AllocationID = allocation; allocation != "" {
					want, failing = lifecycle.NodeQuarantined, call
				}
				b.site.fail[failing] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
				b.at(time.Hour, lifecycle.ActionCancel)
				require.Equal(t, lifecycle.JobCancelled, b.run())
				require.Equal(t, want, b.site.facts.Status)
				if allocation != "" {
					require.Contains(t, stagetest.NodeMove(b.Store.Last()).Note, "nothing proves the node clean")
				}
			})
		}
	}
}

// TestCancel_AfterEarlierTenant the job began is no cleaner for a cancellation.
func TestCancel_AfterEarlierTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.endAllocation()
	b.site.fail["node.drain"] = []error{stagetest.Failure(lifecycle.FailNodeTask)}
	b.at(time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.NodeQuarantined, b.site.facts.Status)
}

// TestCancel_ReimageUndoesDeployment and shuts out the agent that it
// was about to install; the node is quarantined, since its old system is gone.
func TestCancel_ReimageUndoesDeployment(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeReimage)
	b.site.fail["agent"] = []error{stagetest.Failure(lifecycle.FailAgentNotEnrolled)}
	b.at(time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.NodeQuarantined, b.site.facts.Status)
	require.Equal(t, 1, b.count("ready"))
	require.Equal(t, 1, b.count("bootstrap"))
	require.Equal(t, "Ready", b.site.machine)
	require.Equal(t, "Ready", b.Store.Last().Observed.MAAS, "the job has released it")
	require.Equal(t, "none", b.Store.Last().Observed.Agent, "the job has erased its system")
}

// TestObserved_IsWhatTheJobLeaves, not what it has itself ended.
func TestObserved_IsWhatTheJobLeaves(t *testing.T) {
	t.Parallel()
	for mode, want := range map[lifecycle.DecommissionMode]lifecycle.Observed{
		lifecycle.ModeReimage: {MAAS: "Deployed", Power: "on", Agent: "healthy"},
		lifecycle.ModeFull:    {MAAS: "absent", Power: "off", Agent: "none"},
		lifecycle.ModeRemove:  {Agent: "none"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			got := *b.Store.Last().Observed
			require.NotNil(t, got.At)
			got.At = nil
			require.Equal(t, want, got)
		})
	}
}

// TestUserDataIsDiscardedBeforeAnythingCarriesTheJobsMark: it was rendered, and
// the deployment that takes it was not begun. Found by the chaos run.
func TestUserDataIsDiscardedBeforeAnythingCarriesTheJobsMark(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeReimage)
	b.site.fail["deploy"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
	b.at(time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, 1, b.count("bootstrap"))
}

// TestReimage_FailedDeployment after the disks were erased is begun again by what
// the runbook offers, restart clean, and by a retry: there is no system any more
// that could be drained or scrubbed.
func TestReimage_FailedDeployment(t *testing.T) {
	t.Parallel()
	for _, again := range []lifecycle.Action{lifecycle.ActionRestartClean, lifecycle.ActionRetryStage, lifecycle.ActionRerun} {
		t.Run(string(again), func(t *testing.T) {
			t.Parallel()
			b := setup(t, lifecycle.ModeReimage)
			b.site.outcome = contract.DeployFailed
			p := b.parkedAt(time.Hour)
			b.After(time.Hour, func() { b.site.outcome = contract.DeployOK })
			b.at(2*time.Hour, again)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, lifecycle.FailDeploy, p.Failure.Class)
			require.Equal(t, 1, b.count("release"))
			require.Equal(t, 2, b.count("deploy"))
			require.Equal(t, 2, b.count("gpu.scrub"))
			require.Equal(t, 1, b.count("node.validate"))
			require.Equal(t, lifecycle.NodeOffline, b.site.facts.Status)
		})
	}
}

// TestReimage_DeadlineThatNobodyWasThereFor: MAAS, or every worker, was away when the deployment
// should have been aborted. The retry releases the machine that hangs and installs it once; it does
// not wait for the same deployment again.
func TestReimage_DeadlineThatNobodyWasThereFor(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeReimage)
	b.Env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).After(24*time.Hour).Return(maasact.DeployedFacts{}, nil).Once()
	b.Env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).Return(b.site.WaitForDeployed)
	p := b.parkedAt(20 * time.Hour)
	b.at(30*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailStageDeadline, p.Failure.Class)
	require.Equal(t, lifecycle.StageReleaseMAAS, p.Failure.Stage)
	require.Equal(t, 1, b.count("release"), "the disks are erased already")
	require.Regexp(t, "deploy ready .*deploy deployed", b.calls())
}

// TestReimage_DeployedWhenNobodyLooked: a machine that is deployed by the time of the retry is
// kept.
func TestReimage_DeployedWhenNobodyLooked(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeReimage)
	b.Env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).After(24*time.Hour).Return(maasact.DeployedFacts{}, nil).Once()
	b.Env.OnActivity("WaitForDeployed", mock.Anything, mock.Anything).Return(b.site.WaitForDeployed)
	b.After(29*time.Hour, func() { b.site.machine = "Deployed" })
	b.at(30*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Zero(t, b.count("ready"))
}

// TestCancel_BeforeErasure: a scrub that no agent could be asked for has
// changed nothing.
func TestCancel_BeforeErasure(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.facts.Agent, b.site.power = contract.AgentSilent, "off"
	b.at(time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.NodeOffline, b.site.facts.Status)
}

// TestCancel_RestoresQuarantine when the job is cancelled.
func TestCancel_RestoresQuarantine(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeRetire)
	b.SetRequest(contract.DecommissionInput{Mode: lifecycle.ModeRetire, From: lifecycle.NodeQuarantined, NodeID: "node_1"})
	b.site.fail["node.drain"] = []error{stagetest.Failure(lifecycle.FailNodeTask)}
	b.at(time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.NodeQuarantined, b.site.facts.Status)
}

func TestRestartClean(t *testing.T) {
	t.Parallel()
	b := occupied(t, lifecycle.ModeSoftReset)
	b.site.fail["node.validate"] = []error{stagetest.Failure(lifecycle.FailNodeUnhealthy)}
	b.at(time.Hour, lifecycle.ActionRestartClean)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 2, b.count("node.drain"))
	require.Equal(t, 4, b.count("gpu.scrub"))
	require.Equal(t, lifecycle.NodeOffline, b.site.facts.Status)
}

// TestLostWorkflow_Continues from every stage.
func TestLostWorkflow_Continues(t *testing.T) {
	t.Parallel()
	for name, call := range callOf {
		if name == lifecycle.StageDisableNode {
			continue // nothing is behind it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := occupied(t, lifecycle.ModeFull)
			b.site.fail[call] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			b.loseRun()
			b.at(time.Hour, lifecycle.ActionResume)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
		})
	}
}

// A full decommission of a node with a silent agent switches the node off and continues, with
// MAAS's erasure as the proof. Any other mode waits for an operator to switch the node off.
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeFull)
	b.site.facts.Agent = contract.AgentSilent
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config maas:off bmc:off probe before release certify maas:off bmc:off move:retired move:removing identity secrets record", b.calls())
	for _, row := range b.Store.Last().Stages {
		if row.Name == lifecycle.StageScrubGPU {
			require.Equal(t, lifecycle.StageSkipped, row.State)
			require.Contains(t, row.Message, "erasing from outside")
		}
	}

	b = setup(t, lifecycle.ModeRetire)
	b.site.facts.Agent = contract.AgentSilent
	p := b.parkedAt(time.Hour)
	b.After(90*time.Minute, func() { b.site.power = "off" })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailNodeTask, p.Failure.Class)
	require.Contains(t, p.Failure.Message, "switch it off")
	require.Equal(t, lifecycle.NodeDraining, p.node, "a drain that waits for an operator keeps its node")
	require.Equal(t, lifecycle.NodeRetired, b.site.facts.Status)

	// After an operator has switched the node on again for the scrub, its agent is reachable.
	b = setup(t, lifecycle.ModeSoftReset)
	b.site.facts.Agent, b.site.power = contract.AgentSilent, "off"
	p = b.parkedAt(time.Hour)
	b.After(90*time.Minute, func() { b.site.facts.Agent = contract.AgentAlive })
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.StageCleanupStorage, p.Failure.Stage)
	require.Empty(t, b.site.unreachable, "the certificate is about what the agent did")

	b = setup(t, lifecycle.ModeRemove)
	b.site.facts.Agent = contract.AgentSilent
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Zero(t, b.count("node.uninstall"), "a silent agent with a revoked identity needs no uninstallation")
}

// A full decommission skips the stages that retiring the node has completed.
func TestFull_SkipsDrainOfRetiredNode(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeFull)
	b.site.facts.Status = lifecycle.NodeRetired
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Zero(t, b.count("node.drain"))
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeRemoving, lifecycle.NodeDeleted}, b.site.states)
}

// The job does not move the node again by itself.
func TestNodeMovedByOperator_Parks(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.facts.Status = lifecycle.NodeActive
	p := b.parkedAt(time.Hour)
	b.at(2*time.Hour, lifecycle.ActionResume)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, lifecycle.FailStateDisagreement, p.Failure.Class)
	require.Equal(t, lifecycle.NodeActive, p.node)
	require.Equal(t, lifecycle.NodeDraining, b.site.states[0], "the operator decided that by resuming the job")
}
