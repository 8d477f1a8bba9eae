package machinerun_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	machineact "github.com/slipway-cloud/slipway/activities/machine"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/machinerun"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// repaveFixture is a run that has taken the node of its machine.
func repaveFixture(t *testing.T, steps ...contract.RunStep) *fixture {
	t.Helper()
	f := &fixture{Harness: stagetest.New(t, machinerun.Run, contract.KindMachineRun,
		contract.MachineRunInput{RunID: "run_1", MachineID: "m-1", Steps: steps, NodeFrom: lifecycle.NodeActive})}
	f.repaves(machineact.StepFacts{ByNode: true, Series: "jammy"})
	return f
}

// repaves registers what a repave asks, and has everything succeed.
func (f *fixture) repaves(checked machineact.StepFacts) {
	for _, acts := range []any{
		&machineact.Activities{}, &maasact.Activities{}, &nodeact.Activities{}, &nodestateact.Activities{}, &agenttask.Activities{}, &bmcact.Activities{}, &evidenceact.Activities{},
	} {
		f.Register(f.Env, acts)
	}
	for name, answer := range map[string]any{
		"CheckMachine":             checked,
		"ReadNodeFacts":            contract.DecommissionFacts{Status: lifecycle.NodeDraining, SystemID: "abc", BMCID: "bmc_1", Agent: contract.AgentAlive, BootID: "boot-2"},
		"LoadNodeConfig":           contract.DecommissionConfig{ProfileID: "prof_1", SKUID: "sku_1"},
		"LoadSiteConfig":           contract.SiteFacts{},
		"ReadMachineBeforeRelease": contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}},
		"EraseAndRelease":          contract.ReleaseFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true},
		"DeployMachine":            contract.MachineFacts{SystemID: "abc", Status: "Deploying"},
		"WaitForDeployed":          maasact.DeployedFacts{MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, Outcome: contract.DeployOK},
		"RunTask":                  lifecycle.TaskResult{OK: true, BootID: "boot-1"},
		"CertifyNode":              contract.CertificateFacts{CertificateID: "cert_1"},
	} {
		f.Answer(name, func() (any, error) { return answer, nil })
	}
	released := false
	f.Answer("ReturnToReady", func() (any, error) { released = true; return contract.MachineFacts{}, nil })
	f.Answer("ObserveMachine", func() (any, error) { // what is released carries no mark of the run any more
		return contract.MachineFacts{SystemID: "abc", Status: "Ready", Foreign: released}, nil
	})
}

func (f *fixture) count(name string) int {
	n := 0
	for _, c := range f.Calls() {
		if c == name {
			n++
		}
	}
	return n
}

// TestRun_RepavesThroughTheNode: the stages of a reimage run as one step, and the node is given
// back to service with the run.
func TestRun_RepavesThroughTheNode(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("net-boot", runplan.KindNetboot, 0), step("repave-os", runplan.KindRepave, 1))
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	want := []string{"SetNetboot", "CheckMachine", "EraseAndRelease", "DeployMachine", "WaitForAgent", "RunTask", "RunTask", "CertifyNode", "ClearNetboot"}
	var got []string
	for _, c := range f.Calls() {
		if slices.Contains(want, c) {
			got = append(got, c)
		}
	}
	require.Equal(t, want, got)
	require.Equal(t, lifecycle.NodeOffline, stagetest.NodeMove(f.Store.Last()).To, "a healthy heartbeat makes it active")
}

// A machine that was erased is not called clean: a repave that fails, or is cancelled, leaves its
// node quarantined once the erasure has begun, and where it was before that.
func TestRun_RepaveThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails   string
		class   lifecycle.FailureClass
		to      lifecycle.NodeStatus
		release bool
	}{
		"another machine":  {"CheckMachine", lifecycle.FailOtherMachine, lifecycle.NodeOffline, false},
		"no image":         {"LoadSiteConfig", lifecycle.FailConfiguration, lifecycle.NodeOffline, false},
		"the deployment":   {"WaitForAgent", lifecycle.FailAgentNotEnrolled, lifecycle.NodeQuarantined, true},
		"the certificate":  {"CertifyNode", lifecycle.FailScrubUnverified, lifecycle.NodeQuarantined, true},
		"the erasure":      {"EraseAndRelease", lifecycle.FailConfiguration, lifecycle.NodeQuarantined, true},
		"before the steps": {"SetNetboot", lifecycle.FailOtherMachine, lifecycle.NodeOffline, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := repaveFixture(t, step("net-boot", runplan.KindNetboot, 0), step("repave-os", runplan.KindRepave, 0))
			f.Answer(tc.fails, func() (any, error) { return nil, stagetest.Failure(tc.class) })
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.Equal(t, lifecycle.RunFailed, f.phase())
			require.Equal(t, tc.to, stagetest.NodeMove(f.Store.Last()).To)
			require.Equal(t, tc.release, slices.Contains(f.Calls(), "ReturnToReady"), "what this run deployed is taken back")
		})
	}
}

// An attempt that fails before the erasure does not hide that an earlier one has erased.
func TestRun_ALaterAttemptKeepsWhatWasBegun(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("repave-os", runplan.KindRepave, 1))
	loads := 0
	f.Answer("LoadSiteConfig", func() (any, error) {
		if loads++; loads > 1 {
			return nil, stagetest.Failure(lifecycle.FailConfiguration)
		}
		return contract.SiteFacts{}, nil
	})
	f.Answer("WaitForAgent", func() (any, error) { return nil, stagetest.Failure(lifecycle.FailStageDeadline) })
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, 2, loads, "there was a second attempt")
	require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(f.Store.Last()).To)
	require.Contains(t, f.Calls(), "ReturnToReady", "what the first attempt deployed is taken back")
}

// A step that fails behind a repave that ended well leaves the machine installed, and its node in
// service.
func TestRun_KeepsARepaveThatEndedWell(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("repave-os", runplan.KindRepave, 0), step("check", runplan.KindSSH, 0))
	f.Answer("RunCommand", func() (any, error) {
		return nil, machineact.MarkEnd(stagetest.Failure(lifecycle.FailCommand), machineact.CommandEnded)
	})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.NotContains(t, f.Calls(), "ReturnToReady")
	require.Equal(t, lifecycle.NodeOffline, stagetest.NodeMove(f.Store.Last()).To)
}

// A retry goes on behind what is done: the disks are erased once.
func TestRun_ARetryOfARepaveErasesOnce(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("repave-os", runplan.KindRepave, 2))
	fails := 1
	f.Answer("WaitForAgent", func() (any, error) {
		if fails--; fails >= 0 {
			return nil, stagetest.Failure(lifecycle.FailAgentNotEnrolled)
		}
		return contract.AgentFacts{}, nil
	})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []int{1, 2, 2}, []int{f.count("EraseAndRelease"), f.count("CheckMachine"), f.count("WaitForAgent")})
}

// TestRun_ALostRepaveGoesOn loses the workflow while the machine is deployed. The next one erases
// nothing again that is known to be erased.
func TestRun_ALostRepaveGoesOn(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("repave-os", runplan.KindRepave, 0))
	f.Hold(f.Env, "CertifyNode", func() time.Duration { return time.Hour })
	f.RunUntil(40*time.Second, func() []any { return nil })
	next := &fixture{Harness: f.Harness}
	next.repaves(machineact.StepFacts{ByNode: true, Series: "jammy"})
	require.Equal(t, lifecycle.JobCompleted, next.Run().Status)
	require.NotContains(t, next.Calls(), "EraseAndRelease")
	require.NotContains(t, next.Calls(), "DeployMachine")
}

// A provider that installs machines by itself is asked to, and no node is touched.
func TestRun_RepavesByTheProvider(t *testing.T) {
	t.Parallel()
	f := setup(t, step("repave-os", runplan.KindRepave, 0), step("return", runplan.KindRMA, 0))
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"CheckMachine", "RepaveMachine", "ReturnMachine"}, f.Calls())
	require.Nil(t, stagetest.NodeMove(f.Store.Last()))
}

// The node of a machine that leaves for its vendor is quarantined with the run.
func TestRun_AMachineThatLeavesHasItsNodeQuarantined(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("return", runplan.KindRMA, 0))
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(f.Store.Last()).To)
}

// TestRun_TakesANetworkChangeBack: a change that the machine may be trying when the run ends is
// taken back, and one whose end is known is not.
func TestRun_TakesANetworkChangeBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end     machineact.CommandEnd
		class   lifecycle.FailureClass
		reverts bool
	}{
		"rolled back":      {machineact.CommandEnded, lifecycle.FailNetworkRolledBack, false},
		"it was not begun": {machineact.CommandUnsent, lifecycle.FailConfiguration, false},
		"nobody answers":   {"", lifecycle.FailCommandUncertain, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, step("net", runplan.KindNet, 0))
			f.Answer("TryNetwork", func() (any, error) { return nil, machineact.MarkEnd(stagetest.Failure(tc.class), tc.end) })
			f.Run()
			require.Equal(t, lifecycle.RunFailed, f.phase())
			require.Equal(t, tc.reverts, slices.Contains(f.Calls(), "RevertNetwork"))
		})
	}
	f := setup(t, step("net", runplan.KindNet, 0))
	f.Hold(f.Env, "TryNetwork", func() time.Duration { return time.Hour })
	f.Act(30*time.Second, lifecycle.ActionCancel, contract.ActionRequest{Reason: "test"})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, []string{"RevertNetwork"}, f.Calls(), "the call never answered")
}

// TestRun_ANetworkChangeCountsAfterARepave: a later step reaches the machine where MAAS has
// installed it, until a change of the network that the machine has confirmed says otherwise.
func TestRun_ANetworkChangeCountsAfterARepave(t *testing.T) {
	t.Parallel()
	f := repaveFixture(t, step("install", runplan.KindRepave, 0), step("one", runplan.KindSSH, 0), step("net", runplan.KindNet, 0), step("two", runplan.KindSSH, 0))
	f.Answer("ObserveMachine", func() (any, error) {
		return contract.MachineFacts{SystemID: "abc", Status: "Deployed", IPs: []string{"10.0.0.9"}}, nil
	})
	f.Answer("TryNetwork", func() (any, error) { return machineact.StepFacts{Moved: true}, nil })
	reached := map[string][]string{}
	f.Env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		if !slices.Contains([]string{"RunCommand", "TryNetwork"}, info.ActivityType.Name) {
			return
		}
		var in machineact.StepIn
		if args.Get(&in) == nil {
			reached[in.Step] = in.IPs
		}
	})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, map[string][]string{"one": {"10.0.0.9"}, "net": {"10.0.0.9"}, "two": nil}, reached)
}
