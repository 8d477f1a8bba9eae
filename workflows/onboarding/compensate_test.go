package onboarding

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func unavailable() error {
	return stagetest.FailureSaying(lifecycle.FailMAASUnavailable, "MAAS is away")
}

// TestEveryUndoHasItsProof, and nothing else has one.
func TestEveryUndoHasItsProof(t *testing.T) {
	t.Parallel()
	undone := 0
	for _, st := range stages() {
		require.Equal(t, st.Undo == nil, st.VerifyUndo == nil, st.Name)
		if st.Undo != nil {
			undone++
		}
	}
	require.Equal(t, 6, undone)
}

// cleanUp is an onboarding's clean-up, newest first, each undo with its proof.
var cleanUp = [][2]string{
	{"LockAgentIdentity", "CheckIdentityLocked"}, {"ReturnToReady", "CheckReleased"}, {"RevokeBootstrap", "CheckBootstrapRevoked"},
	{"AbortCommissioning", "CheckNotCommissioning"}, {"RemoveCreatedMachine", "CheckRecordRemoved"},
}

func wholeJob(t *testing.T) *parkedJob {
	t.Helper()
	return parkedAt(t, lifecycle.StageWaitAgent, State{Machine: contract.MachineFacts{SystemID: "abc", Created: true, Status: "Deployed"}})
}

// TestAnOnboardingIsUndoneNewestFirstAndProven.
func TestAnOnboardingIsUndoneNewestFirstAndProven(t *testing.T) {
	t.Parallel()
	p := wholeJob(t)
	p.Answer("RemoveCreatedMachine", func() (any, error) { return contract.MachineFacts{SystemID: "abc", Status: "absent"}, nil })
	_, err := p.act(t, lifecycle.ActionCancel, contract.ActionRequest{Reason: "not today"})
	require.NoError(t, err)
	var want, proofs []string
	for _, c := range cleanUp {
		want, proofs = append(want, c[0], c[1]), append(proofs, c[1])
	}
	require.Equal(t, append(want, proofs...), p.Calls())
	require.Equal(t, "absent", p.Store.Last().Observed.MAAS, "the job deleted it")
	require.Equal(t, "none", p.Store.Last().Observed.Agent)
	require.Equal(t, lifecycle.JobCancelled, p.Store.Last().Status)
}

// TestObserved_OfALockedAgent: a job without a machine in MAAS shuts the agent out, and shows none.
func TestObserved_OfALockedAgent(t *testing.T) {
	t.Parallel()
	s := State{Agent: contract.AgentFacts{Enrolled: true, Healthy: true}}
	p := parkedAt(t, lifecycle.StageWaitAgent, s)
	_, err := p.act(t, lifecycle.ActionCancel, contract.ActionRequest{Reason: "not today"})
	require.NoError(t, err)
	require.Equal(t, "none", p.Store.Last().Observed.Agent)
}

// TestAnUndoThatLiesParksTheOnboarding, for each of its undos: what is left is
// named, what is older is not touched, and nothing starts again.
func TestAnUndoThatLiesParksTheOnboarding(t *testing.T) {
	t.Parallel()
	for i, c := range cleanUp {
		t.Run(c[0], func(t *testing.T) {
			t.Parallel()
			p := wholeJob(t)
			var lies any = contract.MachineFacts{SystemID: "abc", Status: "Deployed", Note: "machine abc is still there"}
			if i == 0 || i == 2 {
				lies = nodeact.Left{Note: "machine abc is still there"}
			}
			p.Answer(c[1], func() (any, error) { return lies, nil })
			_, _ = p.act(t, lifecycle.ActionRestartClean, contract.ActionRequest{})
			at := slices.IndexFunc(p.Store.Steps(), func(s contract.Projection) bool { return s.Status.Parked() })
			require.Positive(t, at)
			s := p.Store.Steps()[at]
			require.Equal(t, lifecycle.JobFailedManual, s.Status)
			require.Equal(t, lifecycle.FailCompensation, s.Failure.Class)
			require.Contains(t, s.Failure.Message, "it is not clean: machine abc is still there")
			require.NotContains(t, p.Calls(), "LoadSiteConfig", "nothing started again")
			for _, older := range cleanUp[i+1:] {
				require.NotContains(t, p.Calls(), older[0], "nothing older was undone over it")
			}
		})
	}
}

// An operator cancels the job while it repairs the sync timer with a copy of the machine's token.
func TestAnInterruptedRepairLeavesNoToken(t *testing.T) {
	t.Parallel()
	s := State{Machine: contract.MachineFacts{SystemID: "abc", Status: "Deployed"}}
	s.Site.Profile.RequireHWSync, s.Site.Site.SSHKeyRef = true, "ber1/ssh"
	p := parkedAt(t, lifecycle.StageWaitHWSync, s)
	p.Answer("WaitForHardwareSync", func() (any, error) { return contract.MachineFacts{SystemID: "abc", Status: "Deployed"}, nil })
	p.Answer("RepairHardwareSync", func() (any, error) {
		p.Env.SignalWorkflow(string(lifecycle.ActionCancel), contract.ActionRequest{Actor: "ben", Reason: "not today"})
		return nil, nil
	})
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobCancelled, p.Store.Last().Status)
	at := slices.Index(p.Calls(), "RepairHardwareSync")
	require.Positive(t, at)
	require.Equal(t, "ForgetMachineCredentials", p.Calls()[at+1])
}
