package redfish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func readSettings(t *testing.T, b *BMC) map[string]string {
	t.Helper()
	r, err := b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Unreadable)
	out := map[string]string{}
	for _, v := range r.Values {
		out[v.Name] = v.Value
	}
	return out
}

// TestReadSettings_ShowsWhatATenantChanges: two reports are equal until somebody changes something,
// and each change shows.
func TestReadSettings_ShowsWhatATenantChanges(t *testing.T) {
	t.Parallel()
	for _, vendor := range redfishsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, vendor)
			b := s.open()
			first := readSettings(t, b)
			require.Equal(t, first, readSettings(t, b))
			changes := map[string]func(){
				"an account":     func() { s.server.AddAccount("back", "Pass-12345678") },
				"the boot order": func() { s.server.SetBootOrder("Boot0002", "Boot0000") },
				"the BIOS":       func() { s.server.SetFirmware("BIOS", "6.6.6") },
				"a GPU":          func() { s.server.SetFirmware("GPU_1", "6.6.6") },
			}
			for what, change := range changes {
				before := readSettings(t, b)
				change()
				require.NotEqual(t, before, readSettings(t, b), what)
			}
		})
	}
}

// TestReadSettings_OtherAccounts: an enabled account besides our own is named, since its password can
// change without a trace.
func TestReadSettings_OtherAccounts(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Dell")
	b := s.open()
	r, err := b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.OtherAccounts)
	s.server.AddAccount("ADMIN", "Pass-12345678")
	r, err = b.ReadSettings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ADMIN"}, r.OtherAccounts)
}

// TestReadSettings_OneBootIsNoChange: MAAS sets the override of the next boot whenever it starts a
// machine; one that stays is another matter.
func TestReadSettings_OneBootIsNoChange(t *testing.T) {
	t.Parallel()
	s := newSim(t, "Dell")
	b := s.open()
	first := readSettings(t, b)
	_, err := b.SetBootOnce(t.Context(), providers.BootPXE, true)
	require.NoError(t, err)
	require.Equal(t, first, readSettings(t, b))
	o := s.machine.BootOverride()
	o.Enabled = "Continuous"
	s.machine.SetBootOverride(o)
	require.Equal(t, "Pxe", readSettings(t, b)["boot/override"])
}

func TestDisableHostInterfaces(t *testing.T) {
	t.Parallel()
	for _, vendor := range redfishsim.Names() {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, vendor)
			b := s.open()
			for range 2 {
				out, err := b.DisableHostInterfaces(t.Context())
				require.NoError(t, err)
				require.Equal(t, providers.HostInterfaces{Off: 1}, out)
			}
		})
	}
}
