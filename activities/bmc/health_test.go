package bmc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

const simulatedGPU = "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_2"

// TestHealth_OfAMachineThatIsAccepted: a critical GPU board is behind the host's BMC as another
// system, and the host itself says OK.
func TestHealth_OfAMachineThatIsAccepted(t *testing.T) {
	t.Parallel()
	l := newLab(t, "NVIDIA", 1, nil)
	in := bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_health"}, BMCID: l.bmcID}
	got, err := l.acts.ResolvePowerCredentials(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "OK", got.Health)
	require.NotEmpty(t, got.SerialSource)
	kept, err := l.truth.BMC(t.Context(), l.bmcID)
	require.NoError(t, err)
	require.Equal(t, "NVIDIA", kept.Vendor, "operators see the vendor")

	require.NoError(t, l.sim.SetHealth(simulatedGPU, "Warning"))
	got, err = l.acts.ResolvePowerCredentials(t.Context(), in)
	require.NoError(t, err, "a warning refuses nothing")
	require.Equal(t, "Warning", got.Health)
	require.Equal(t, []string{simulatedGPU + ": Warning"}, got.HealthProblems)

	require.NoError(t, l.sim.SetHealth(simulatedGPU, "Critical"))
	_, err = l.acts.ResolvePowerCredentials(t.Context(), in)
	requireClass(t, err, lifecycle.FailNodeUnhealthy)
	require.ErrorContains(t, err, simulatedGPU+": Critical")
}

// TestHealth_OfANodeThatIsClaimed: no tenant gets a machine with a critical part, and what cannot
// be read is told.
func TestHealth_OfANodeThatIsClaimed(t *testing.T) {
	t.Parallel()
	l := newLab(t, "NVIDIA", 1, nil)
	in := l.claim()
	require.NoError(t, l.sim.SetHealth(simulatedGPU, "Critical"))
	_, err := l.acts.KeepSettings(t.Context(), in)
	requireClass(t, err, lifecycle.FailNodeUnhealthy)
	_, err = allocationdb.FirmwareSnapshot(t.Context(), l.truth, in.AllocationID)
	require.Error(t, err, "nothing is kept of a claim that is refused")

	require.NoError(t, l.sim.SetHealth(simulatedGPU, "OK"))
	l.fault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Method: "GET", Path: simulatedGPU, Status: 500})
	kept, err := l.acts.KeepSettings(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, kept.Note, "its health is Unknown")
}

// TestHealth_OfARejectedLogin: reading health counts as every login does.
func TestHealth_OfARejectedLogin(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	got, err := l.acts.LookAtParts(t.Context(), bmcact.LookIn{BMCID: l.bmcID})
	require.NoError(t, err)
	require.Equal(t, "OK", got.Survey.Health.Overall)
	l.changedByHand()
	_, err = l.acts.LookAtParts(t.Context(), bmcact.LookIn{BMCID: l.bmcID})
	requireClass(t, err, lifecycle.FailBMCAuthRejected)
	_, err = l.acts.LookAtParts(t.Context(), bmcact.LookIn{BMCID: l.bmcID})
	requireClass(t, err, lifecycle.FailBMCAuthRejected)
	require.Equal(t, 1, l.sim.Counters().FailedLogins, "the first rejection stops further logins")
}
