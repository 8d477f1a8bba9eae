package onboarding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestFormerTenant_ChangedBMCParks: a machine that comes back with another BMC than its last tenant
// found waits for an operator, before anything is done with it.
func TestFormerTenant_ChangedBMCParks(t *testing.T) {
	t.Parallel()
	p := parkedAt(t, lifecycle.StageResolvePower, State{})
	p.Answer("ResolvePowerCredentials", func() (any, error) { return contract.BMCFacts{BMCID: "bmc_1", Serial: "S1"}, nil })
	p.Answer("CompareFormerSettings", func() (any, error) {
		return contract.SettingsFacts{Changed: []string{`account/evil is new: Administrator`}}, nil
	})
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	require.NotContains(t, p.Calls(), "CreateOrFindMachine")
	require.True(t, slices.ContainsFunc(p.Store.Steps(), func(s contract.Projection) bool {
		return s.Status == lifecycle.JobFailedManual && s.Failure != nil && s.Failure.Class == lifecycle.FailFirmwareChanged
	}))
}

// TestFormerTenant_AcceptedByRiskOnly: an operator who means the new settings accepts them with a
// reason; a BMC that was never identified cannot be accepted.
func TestFormerTenant_AcceptedByRiskOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bmc    string
		risk   bool
		refuse string
	}{
		"without a risk": {bmc: "bmc_1", refuse: "is not a pair that may be adopted"},
		"not identified": {risk: true, refuse: "the BMC has not been identified"},
		"with the risk":  {bmc: "bmc_1", risk: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parkedAt(t, lifecycle.StageResolvePower, State{BMC: contract.BMCFacts{BMCID: c.bmc}})
			step, err := p.act(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "new firmware", AcceptRisk: c.risk})
			if c.refuse != "" {
				require.ErrorContains(t, err, c.refuse)
				require.Equal(t, lifecycle.JobFailedManual, step.Status)
				return
			}
			require.NoError(t, err)
			require.Equal(t, lifecycle.JobRunning, step.Status)
			require.Contains(t, p.Calls(), "CreateOrFindMachine")
		})
	}
}

// comesBack is an onboarding of a machine that a root tenant has left, with a BMC that is as it
// was.
func comesBack(t *testing.T) *parkedJob {
	t.Helper()
	p := parkedAt(t, lifecycle.StageResolvePower, State{})
	p.Answer("ResolvePowerCredentials", func() (any, error) { return contract.BMCFacts{BMCID: "bmc_1", Serial: "S1"}, nil })
	compared := 0
	p.Answer("CompareFormerSettings", func() (any, error) {
		if compared++; compared == 1 {
			return contract.SettingsFacts{Done: true, Count: 9, FormerNode: "node_0"}, nil
		}
		return contract.SettingsFacts{Done: true, Count: 9}, nil
	})
	p.Answer("CommitRotation", func() (any, error) { return contract.RotationFacts{BMCID: "bmc_1", Committed: true}, nil })
	return p
}

// TestFormerTenant_NewPassword: the BMC of a machine that a root tenant has left gets another
// password, and is compared again with it, which ends the mark, before anything is done with the
// machine.
func TestFormerTenant_NewPassword(t *testing.T) {
	t.Parallel()
	p := comesBack(t)
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	calls := p.Calls()
	at := slices.Index(calls, "CompareFormerSettings")
	require.Equal(t, []string{"CompareFormerSettings", "PrepareRotation", "ApplyRotation", "VerifyRotation", "UpdatePowerLogin", "CommitRotation",
		"CompareFormerSettings", "CreateOrFindMachine"}, calls[at:at+8])
	require.NotContains(t, calls, "UndoRotation", "nothing of it is open")
}

// TestFormerTenant_RotationGoesOn: a retry ends the change of the password first, since no login of
// the BMC is proven before, and does not change it once more.
func TestFormerTenant_RotationGoesOn(t *testing.T) {
	t.Parallel()
	p := comesBack(t)
	tries := 0
	p.Answer("VerifyRotation", func() (any, error) {
		if tries++; tries == 1 {
			return nil, stagetest.Failure(lifecycle.FailBMCUnreachable)
		}
		return contract.RotationFacts{BMCID: "bmc_1"}, nil
	})
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	calls := p.Calls()
	at := slices.Index(calls, "VerifyRotation")
	require.Equal(t, []string{"VerifyRotation", "PrepareRotation", "ApplyRotation", "VerifyRotation", "UpdatePowerLogin", "CommitRotation",
		"ResolvePowerCredentials", "CompareFormerSettings", "CreateOrFindMachine"}, calls[at:at+9])
}

// TestFormerTenant_PasswordThatCannotBeChanged: the change is ended at once, and an operator may
// accept the BMC at a risk.
func TestFormerTenant_PasswordThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	p := comesBack(t)
	p.Answer("ApplyRotation", func() (any, error) { return nil, stagetest.Failure(lifecycle.FailConfiguration) })
	adopt := p.Act(10*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "bob", Reason: "as it is", AcceptRisk: true})
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	require.NoError(t, adopt.Err)
	calls := p.Calls()
	at := slices.Index(calls, "ApplyRotation")
	require.Equal(t, []string{"ApplyRotation", "UndoRotation", "UpdatePowerLogin", "CreateOrFindMachine"}, calls[at:at+4])
}

// TestFormerTenant_RotationIsEnded: a change of the password that fails keeps the mark, cannot be
// accepted half done, and is ended with its job.
func TestFormerTenant_RotationIsEnded(t *testing.T) {
	t.Parallel()
	p := comesBack(t)
	p.Answer("ApplyRotation", func() (any, error) { return nil, stagetest.Failure(lifecycle.FailBMCAuthRejected) })
	p.Answer("CheckRotationEnded", func() (any, error) { return contract.RotationFacts{Undone: true}, nil })
	adopt := p.Act(10*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "bob", Reason: "as it is", AcceptRisk: true})
	_, err := p.act(t, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.NoError(t, err)
	require.ErrorContains(t, adopt.Err, "begun to change the BMC's password")
	calls := p.Calls()
	require.NotContains(t, calls, "CreateOrFindMachine")
	require.Equal(t, 1, len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != "CompareFormerSettings" })))
	at := slices.Index(calls, "UndoRotation")
	require.Equal(t, []string{"UndoRotation", "UpdatePowerLogin", "CheckRotationEnded", "CheckRotationEnded"}, calls[at:at+4])
	require.Equal(t, lifecycle.JobCancelled, p.Store.Last().Status)
}

// TestFormerTenant_ResumedBeforeIdentified: a job that goes on after its workflow was lost looks at
// each stage first, and a BMC that was not identified yet is no failure.
func TestFormerTenant_ResumedBeforeIdentified(t *testing.T) {
	t.Parallel()
	p := parkedAt(t, lifecycle.StageResolvePower, State{})
	p.Answer("ResolvePowerCredentials", func() (any, error) { return contract.BMCFacts{BMCID: "bmc_1", Serial: "S1"}, nil })
	_, err := p.act(t, lifecycle.ActionResume, contract.ActionRequest{})
	require.NoError(t, err)
	require.Contains(t, p.Calls(), "CreateOrFindMachine")
}
