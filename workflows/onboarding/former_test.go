package onboarding

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
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

// TestFormerTenant_ResumedBeforeIdentified: a job that goes on after its workflow was lost looks at each
// stage first, and a BMC that was not identified yet is no failure.
func TestFormerTenant_ResumedBeforeIdentified(t *testing.T) {
	t.Parallel()
	p := parkedAt(t, lifecycle.StageResolvePower, State{})
	p.Answer("ResolvePowerCredentials", func() (any, error) { return contract.BMCFacts{BMCID: "bmc_1", Serial: "S1"}, nil })
	_, err := p.act(t, lifecycle.ActionResume, contract.ActionRequest{})
	require.NoError(t, err)
	require.Contains(t, p.Calls(), "CreateOrFindMachine")
}
