package allocation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestProvision_NodeHeldElsewhere: MAAS or the agent knows of a tenant of whom the database does
// not. Nothing is sent to the node, which is taken out of service.
func TestProvision_NodeHeldElsewhere(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fixture){
		"MAAS": func(f *fixture) {
			f.says("ObserveMachine", contract.MachineFacts{SystemID: "abc", Status: "Deployed", Allocation: "alc_2"})
		},
		"agent": func(f *fixture) { f.node.HeldFor = "alc_2" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			change(f)
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.Zero(t, f.count("RunTask"))
			require.Zero(t, f.count("ClearAllocation"), "the other tenant's mark stays")
			require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(f.Store.Last()).To)
		})
	}
}

// TestProvision_MarksBeforeTheTenant: MAAS names the allocation, and the disk holds no credential
// any more, before an account is there. A provision that is taken back removes its mark.
func TestProvision_MarksBeforeTheTenant(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.True(t, f.before("MarkAllocation", "ProveLogin"))
	require.True(t, f.before("RunTask", "MarkAllocation"), "credentials are retired first: %v", f.Calls())
	require.Equal(t, 1, f.count("KeepNetwork"))
	require.Zero(t, f.count("ClearAllocation"))

	back := provision(t, true)
	back.fails("ProveLogin", lifecycle.FailNodeTask, always, nil)
	require.Equal(t, lifecycle.JobCancelled, back.Run().Status)
	require.Equal(t, 1, back.count("ClearAllocation"))
	require.True(t, back.allocationMoves()[0].Clean)

	stuck := provision(t, true)
	stuck.fails("ProveLogin", lifecycle.FailNodeTask, always, nil)
	stuck.fails("ClearAllocation", lifecycle.FailMAASRejected, always, nil)
	require.Equal(t, lifecycle.JobCancelled, stuck.Run().Status)
	require.False(t, stuck.allocationMoves()[0].Clean, "a node that MAAS has as held is not free")
}

// TestRelease_RotatesBeforeTheCertificate: no certificate is signed while a BMC that root could
// reach has the password of before.
func TestRelease_RotatesBeforeTheCertificate(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	for _, pair := range [][2]string{
		{"CompareSettings", "PrepareRotation"}, {"PrepareRotation", "ApplyRotation"}, {"ApplyRotation", "VerifyRotation"}, {"VerifyRotation", "UpdatePowerLogin"},
		{"UpdatePowerLogin", "CommitRotation"}, {"CommitRotation", "CertifyNode"},
	} {
		require.True(t, f.before(pair[0], pair[1]), "%s before %s: %v", pair[0], pair[1], f.Calls())
	}

	for activity, good := range map[string]any{
		"ApplyRotation": contract.RotationFacts{}, "VerifyRotation": contract.RotationFacts{}, "UpdatePowerLogin": contract.MachineFacts{},
		"CommitRotation": contract.RotationFacts{Committed: true},
	} {
		bad := release(t, true)
		bad.fails(activity, lifecycle.FailBMCPinMismatch, 1, good)
		parked := bad.LastAt(time.Hour)
		bad.at(2*time.Hour, lifecycle.ActionRetryStage)
		require.Equal(t, lifecycle.JobCompleted, bad.Run().Status, activity)
		require.Equal(t, lifecycle.StageRotateBMCLogin, parked.Failure.Stage, activity)
		require.Equal(t, lifecycle.AllocationReleaseFailed, allocationMove(*parked).To, activity)
		require.True(t, bad.before("CommitRotation", "CertifyNode"), activity)
	}

	other := release(t, false)
	require.Equal(t, lifecycle.JobCompleted, other.Run().Status)
	require.Zero(t, other.count("PrepareRotation"), "the tenant was not root")
}

// TestRelease_EndsItsRotation: a release that ends in the middle of a rotation, since the
// assignment was removed, leaves none that keeps others from rotating, and MAAS has the login that
// the BMC takes.
func TestRelease_EndsItsRotation(t *testing.T) {
	t.Parallel()
	f := release(t, true)
	f.fails("VerifyRotation", lifecycle.FailBMCAuthRejected, always, nil)
	f.says("UndoRotation", contract.RotationFacts{Undone: true, CurrentRef: "bmc/old"})
	f.endedAt(90 * time.Minute)
	f.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, 1, f.count("UndoRotation"))
	require.True(t, f.before("UndoRotation", "UpdatePowerLogin"))

	early := release(t, true)
	early.fails("CompareSettings", lifecycle.FailBMCAuthRejected, always, nil)
	early.endedAt(90 * time.Minute)
	early.at(2*time.Hour, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, early.Run().Status)
	require.Zero(t, early.count("UndoRotation"), "none was begun")
}

// probes has the node be asked for two targets, and answer with output.
func (f *fixture) probes(output string) {
	f.says("ListProbeTargets", spec.ProbeNetworkArgs{TimeoutMillis: 2000, Targets: []spec.ProbeTarget{{Name: "postgres", Address: "10.0.0.1:5432"}, {Name: "bmc bmc_1", Address: "10.1.0.1:443"}}})
	f.says("RunTask", lifecycle.TaskResult{OK: true, BootID: "boot-1", Output: json.RawMessage(output)})
}

// TestProvision_ProbesTheNetwork: nothing of the tenant comes onto a node whose network reaches the
// control plane or a BMC, nor onto one that does not say what it reaches. The node is taken out of
// service, and the message names the target.
func TestProvision_ProbesTheNetwork(t *testing.T) {
	t.Parallel()
	closed := provision(t, true)
	closed.probes(`{"tried":2}`)
	require.Equal(t, lifecycle.JobCompleted, closed.Run().Status)
	require.True(t, closed.before("ListProbeTargets", "MarkAllocation"), "%v", closed.Calls())
	require.Equal(t, 1, closed.count("ListProbeTargets"))

	for output, class := range map[string]lifecycle.FailureClass{
		`{"tried":2,"open":["bmc bmc_1"]}`: lifecycle.FailNetworkOpen, `{"tried":1}`: lifecycle.FailNodeTask, `{}`: lifecycle.FailNodeTask,
	} {
		f := provision(t, true)
		f.probes(output)
		require.Equal(t, lifecycle.JobCancelled, f.Run().Status, output)
		require.Zero(t, f.count("MarkAllocation"), output)
		require.Zero(t, f.count("ProveLogin"), output)
		last := f.Store.Last()
		require.Equal(t, class, allocationMove(last).FailureClass, output)
		require.Equal(t, lifecycle.AllocationFailed, allocationMove(last).To, output)
		require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(last).To, output)
		if class == lifecycle.FailNetworkOpen {
			require.Contains(t, stagetest.NodeMove(last).Note, "bmc bmc_1")
		}
	}
}
