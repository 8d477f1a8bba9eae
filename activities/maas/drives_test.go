package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The drives that MAAS found when it commissioned the machine are the record of the node.
func TestWaitForReady_RecordsDrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	got, err := w.store.ExpectedDrives(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	require.Equal(t, db.DrivesCommissioned, got.Source)
	require.Len(t, got.Drives, len(w.hw.Spec().Disks))
	for _, d := range got.Drives {
		require.NotEmpty(t, d.Serial)
		require.NotEmpty(t, d.Model)
		require.Positive(t, d.Bytes)
	}
}

// MAAS erases every disk, so that it is not asked to release a machine of which drives are
// protected.
func TestEraseAndRelease_ProtectedDrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	for value, says := range map[string]string{"S1234, eui.00ff": "eui.00ff, S1234", "a,,b": "cannot be read"} {
		n, err := w.store.Node(t.Context(), w.ref.NodeID)
		require.NoError(t, err)
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.UpdateNode(t.Context(), n.ID, n.Version, db.NodePatch{Labels: db.Labels{lifecycle.LabelProtectSerials: value}})
			return err
		}))
		require.Contains(t, fails(w, lifecycle.FailConfiguration, w.acts.EraseAndRelease, w.eraseIn()), says)
	}
	require.Equal(t, 0, w.counts("releases"))
	require.NotNil(t, w.hw.InstalledOS())
}
