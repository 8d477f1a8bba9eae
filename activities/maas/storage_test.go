package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// bossOf is the disk that the profile's rule chooses.
func (w *world) bossOf(m providers.MAAS) providers.MAASBlockDevice {
	w.t.Helper()
	disks, err := m.BlockDevices(w.t.Context(), w.id)
	require.NoError(w.t, err)
	for _, d := range disks {
		if d.Model == "DELLBOSS VD" {
			return d
		}
	}
	w.t.Fatalf("no BOSS disk among %v", disks)
	return providers.MAASBlockDevice{}
}

// TestStorageIsTakenUpWhereAnExecutionDied: what MAAS shows already is not sent
// again, for each layout and wherever the first execution ended. Found by the
// chaos run: a worker died between the boot disk and the layout, and the boot
// disk was set twice.
func TestStorageIsTakenUpWhereAnExecutionDied(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"flat", "lvm", "bcache", "blank"} {
		for died, sent := range map[string]int{"before": 0, "between": 1, "after": 2} {
			t.Run(layout+"_"+died, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t).ready()
				in := w.storageIn()
				in.Layout = layout
				m := w.client()
				boss := w.bossOf(m)
				if sent > 0 {
					require.NoError(t, m.SetBootDisk(t.Context(), w.id, boss.ID))
				}
				if sent > 1 {
					require.NoError(t, m.SetStorageLayout(t.Context(), w.id, layout, boss.ID))
				}
				require.True(t, must(w, w.acts.ConfigureStorage, in).Done)
				require.Equal(t, 1, w.counts("boot_disks"))
				require.Equal(t, 1, w.counts("layouts"))
				require.True(t, must(w, w.acts.ConfigureStorage, in).Done)
				require.Equal(t, 1, w.counts("layouts"))
			})
		}
	}
}

// TestALayoutFromBeforeTheBootDiskIsNotTheOne: MAAS keeps a layout where it was
// when another boot disk is set, so an LVM or an EFI partition may lie on a disk
// that the firmware does not read any more.
func TestALayoutFromBeforeTheBootDiskIsNotTheOne(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"lvm", "bcache"} {
		w := newWorld(t).ready()
		in := w.storageIn()
		in.Layout = layout
		m := w.client()
		boss := w.bossOf(m)
		got, err := m.Machine(t.Context(), w.id)
		require.NoError(t, err)
		require.NotEqual(t, boss.ID, got.BootDiskID)
		require.NoError(t, m.SetStorageLayout(t.Context(), w.id, layout, got.BootDiskID))
		require.NoError(t, m.SetBootDisk(t.Context(), w.id, boss.ID))
		require.True(t, must(w, w.acts.ConfigureStorage, in).Done)
		require.Equal(t, 2, w.counts("layouts"))
		disks, err := m.BlockDevices(t.Context(), w.id)
		require.NoError(t, err)
		for _, d := range disks {
			if d.ID != boss.ID {
				require.NotContains(t, d.MountPoints, "/boot/efi", "%s", d.Name)
			}
		}
	}
}
