package bmc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/db/dbtest"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestSettings_FindWhatATenantPlanted: whatever root leaves outside of the disks is named at the
// release, which takes the node out of service. A part that cannot be read is no proof either.
func TestSettings_FindWhatATenantPlanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*lab)
		found string
	}{
		"nothing":       {func(*lab) {}, ""},
		"BMC account":   {func(l *lab) { l.sim.PlantAccount("backdoor") }, "account/"},
		"boot override": {func(l *lab) { l.hw.SetBootOverride(simhw.Override{Target: "Pxe", Enabled: "Continuous"}) }, "boot/override was "},
		"EFI entry":     {func(l *lab) { l.hw.SetBootEntries("Boot0042") }, "boot/order was "},
		"BIOS version":  {func(l *lab) { l.sim.SetFirmware("BIOS", "0.0.1") }, "firmware/"},
		"unreadable part": {func(l *lab) {
			_ = l.sim.AddFault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Path: "NetworkProtocol", Status: 500})
		}, "cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			node := dbtest.Node(t, l.truth)
			tenant := dbtest.Occupy(t, l.truth, node.ID)
			in := bmcact.SettingsIn{
				AllocationRef: contract.AllocationRef{JobRef: contract.JobRef{JobID: "job_settings", NodeID: node.ID}, AllocationID: tenant.ID}, BMCID: l.bmcID,
			}
			_, err := l.acts.DisableHostInterfaces(t.Context(), in)
			require.NoError(t, err)
			_, err = l.acts.KeepSettings(t.Context(), in)
			require.NoError(t, err)
			c.plant(l)
			got, err := l.acts.CompareSettings(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, c.found == "", got.Done, "%v", got.Changed)
			if c.found != "" {
				require.True(t, strings.HasPrefix(strings.Join(got.Changed, ";"), c.found) || strings.Contains(strings.Join(got.Changed, ";"), ";"+c.found), "%v", got.Changed)
			}
		})
	}
}
