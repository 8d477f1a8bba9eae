package bmc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// TestSettings_FindWhatATenantPlanted: whatever root leaves outside of the disks is named at the
// release, which takes the node out of service. A part that cannot be read is no proof either.
func TestSettings_FindWhatATenantPlanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*lab)
		found string
	}{
		"nothing":               {func(*lab) {}, ""},
		"BMC account":           {func(l *lab) { l.sim.AddAccount("backdoor", "Pass-12345678") }, "account/"},
		"boot override":         {func(l *lab) { l.hw.SetBootOverride(simhw.Override{Target: "Pxe", Enabled: "Continuous"}) }, "boot/override was "},
		"EFI entry":             {func(l *lab) { l.hw.SetBootEntries("Boot0042") }, "boot/order was "},
		"BIOS version":          {func(l *lab) { l.sim.SetFirmware("BIOS", "0.0.1") }, "firmware/"},
		"directory of accounts": {func(l *lab) { l.sim.SetDirectory("ldap.evil.example") }, "directory/LDAP was "},
		"virtual media":         {func(l *lab) { l.sim.PlantMedia("https://evil.example/boot.iso") }, "manager/"},
		"unreadable part": {func(l *lab) {
			_ = l.sim.AddFault(redfishsim.Fault{Name: redfishsim.FaultUnavailable, Path: "NetworkProtocol", Status: 500})
		}, "cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			in := l.claim()
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

// withoutSettings is a protocol that shows no settings, as IPMI does.
type withoutSettings struct{ providers.BMCOpener }

func (o withoutSettings) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	b, err := o.BMCOpener.OpenBMC(t)
	return struct{ providers.BMC }{b}, err
}

// TestSettings_OfABMCThatShowsNone: what its protocol never offers is named as not verified, and is
// no difference. A BMC that showed its settings at the claim and shows none now has changed.
func TestSettings_OfABMCThatShowsNone(t *testing.T) {
	t.Parallel()
	const none = "the BMC's protocol does not show its settings"
	l := newLab(t, "Dell", 1, nil)
	before := l.claim()
	_, err := l.acts.KeepSettings(t.Context(), before)
	require.NoError(t, err)

	l.acts.Openers = map[string]providers.BMCOpener{"redfish": withoutSettings{l.acts.Openers["redfish"]}}
	in := l.claim()
	off, err := l.acts.DisableHostInterfaces(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "the BMC's protocol cannot switch off a host interface", off.Note)
	kept, err := l.acts.KeepSettings(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{none}, kept.NotOffered)
	got, err := l.acts.CompareSettings(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, got.Changed)
	require.Equal(t, []string{none}, got.NotOffered)
	require.False(t, got.Done, "nothing is verified")

	got, err = l.acts.CompareSettings(t.Context(), before)
	require.NoError(t, err)
	require.Contains(t, strings.Join(got.Changed, ";"), "is not shown")
}
