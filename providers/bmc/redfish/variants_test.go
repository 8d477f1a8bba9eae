package redfish

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// bootTargets are those that the suite tries, as far as the personality has them.
func (s *sim) bootTargets() []providers.BootTarget {
	offered := s.server.Personality().BootTargets
	var out []providers.BootTarget
	for _, target := range []providers.BootTarget{providers.BootPXE, providers.BootUEFIHTTP, providers.BootCD, providers.BootHDD, providers.BootSetup} {
		named := slices.Contains(offered, "UefiPxe") && isUEFIVariant("Uefi"+string(target))
		if named && slices.Contains(offered, "Uefi"+string(target)) || !named && slices.Contains(offered, string(target)) {
			out = append(out, target)
		}
	}
	return out
}

// TestVariantsOfTheSimulator: what each further machine is there for.
func TestVariantsOfTheSimulator(t *testing.T) {
	t.Parallel()
	t.Run("NVIDIA-GB200", func(t *testing.T) {
		t.Parallel()
		s := newSim(t, "NVIDIA-GB200")
		spec := s.machine.Spec()
		sys, err := s.open().Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, spec.Serial, sys.Serial, "not a cartridge's, which is listed first")
		require.Equal(t, "chassis BMC_0", sys.SerialSource)
		require.InDelta(t, float64(spec.MemoryMiB)/1024, sys.MemoryGiB, 0)
		require.Equal(t, 2, sys.ProcessorCount)
		boot, err := s.open().SetBootOnce(t.Context(), providers.BootPXE, true)
		require.NoError(t, err)
		require.Equal(t, "/redfish/v1/Systems/System_0/Settings", boot.FromURI)
		gpu := "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_3"
		require.NoError(t, s.server.SetHealth(gpu, "Critical"))
		health, err := s.open().Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, "Critical", health.Overall)
		require.Equal(t, []string{gpu + ": Critical"}, health.Problems)
		inv, err := s.open().Inventory(t.Context())
		require.NoError(t, err)
		require.Empty(t, inv.Partial)
		require.NotEmpty(t, inv.LogServices)
	})
	t.Run("NVIDIA-BlueField", func(t *testing.T) {
		t.Parallel()
		s := newSim(t, "NVIDIA-BlueField")
		sys, err := s.open().Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, "Bluefield", sys.ID)
		require.Equal(t, "system Bluefield", sys.SerialSource)
		boot, err := s.open().SetBootOnce(t.Context(), providers.BootUEFIHTTP, true)
		require.NoError(t, err)
		require.Equal(t, "UEFI", boot.Mode)
	})
	t.Run("Supermicro-X11", func(t *testing.T) {
		t.Parallel()
		s := newSim(t, "Supermicro-X11")
		boot, err := s.open().SetBootOnce(t.Context(), providers.BootCD, true)
		require.NoError(t, err)
		require.Equal(t, providers.BootCD, boot.Target)
		require.Equal(t, "UEFI", boot.Mode)
		require.Equal(t, "UefiUsbCd", s.machine.BootOverride().Target)
		_, err = s.open().SetBootOnce(t.Context(), providers.BootHDD, true)
		requireKind(t, err, providers.KindUnsupported)
		require.Equal(t, "UefiUsbCd", s.machine.BootOverride().Target, "a plain Hdd would boot the old firmware")
	})
}
