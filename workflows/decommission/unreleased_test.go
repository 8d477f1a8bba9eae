package decommission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// unmanaged is a full decommission of a node that MAAS does not manage.
func unmanaged(t *testing.T, agent contract.AgentSign) *bundle {
	t.Helper()
	b := setup(t, lifecycle.ModeFull)
	b.site.facts.SystemID, b.site.facts.Agent = "", agent
	return b
}

// TestNoNodeIsDeletedWithoutEvidence: where no MAAS releases the machine the
// certificate is signed in validate_clean_node, with an agent and without one.
// Disks that it does not prove park the job, and a person accepts the risk.
func TestNoNodeIsDeletedWithoutEvidence(t *testing.T) {
	t.Parallel()
	for _, agent := range []contract.AgentSign{contract.AgentAlive, contract.AgentSilent} {
		t.Run(string(agent), func(t *testing.T) {
			t.Parallel()
			b := unmanaged(t, agent)
			b.site.unproven = []string{"disk sda BOOT: not erased"}
			p := b.parked(time.Hour)
			refused := b.at(2*time.Hour, lifecycle.ActionAdopt)
			b.at(3*time.Hour, lifecycle.ActionAdopt, true)
			require.Equal(t, lifecycle.JobReconciled, b.run())
			require.Equal(t, lifecycle.StageValidateClean, p.Failure.Stage)
			require.Equal(t, lifecycle.FailScrubUnverified, p.Failure.Class)
			require.Contains(t, p.Failure.Message, "disk sda BOOT")
			require.Equal(t, lifecycle.NodeQuarantined, p.node)
			require.Error(t, *refused, "not without accepting the risk")
			require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
			require.Equal(t, agent == contract.AgentSilent, b.site.dark != "", "the certificate says why nobody looked")
			require.NotContains(t, b.calls(), "release")
			require.Positive(t, b.site.certs)
		})
	}
}

// TestWhatIsProvenWithoutMAAS needs nobody, as of a node that runs from no disk.
func TestWhatIsProvenWithoutMAAS(t *testing.T) {
	t.Parallel()
	b := unmanaged(t, contract.AgentAlive)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, "config node.drain gpu.scrub gpu.scrub bmc:on fresh node.validate certify bmc:off move:retired move:removing identity secrets", b.calls())
	require.Equal(t, lifecycle.NodeDeleted, b.site.facts.Status)
}

// TestAnUnprovenNodeIsLookedAtAgain by a retry.
func TestAnUnprovenNodeIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	b := unmanaged(t, contract.AgentSilent)
	b.site.unproven = []string{"no disk of the machine is known to be erased"}
	b.env.RegisterDelayedCallback(func() { b.site.unproven = nil }, 90*time.Minute)
	b.at(2*time.Hour, lifecycle.ActionRetryStage)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, 2, b.site.certs)
}

// TestTheCertificateIsToldWhatWasThere when the job began, not what is left.
func TestTheCertificateIsToldWhatWasThere(t *testing.T) {
	t.Parallel()
	b := setup(t, lifecycle.ModeSoftReset)
	b.site.facts.Disks = []lifecycle.DeviceResult{{Kind: "disk", Name: "sda", Serial: "S1"}, {Kind: "disk", Name: "sdb", Serial: "S2"}}
	b.env.RegisterDelayedCallback(func() { b.site.facts.Disks = b.site.facts.Disks[:1] }, 30*time.Minute)
	b.site.fail["node.drain"] = []error{failure(lifecycle.FailConfiguration)}
	b.at(time.Hour, lifecycle.ActionRestartClean)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Len(t, b.site.known, 2)
}
