package sweep_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The third failure of an installation leads to install_failed, also when the node reports nothing.
func TestInstallations_SilentThreeTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	silent := dbtest.PXENode(t, w.Store, "52:54:00:00:00:01", lifecycle.NodeInstalling)
	spoke := dbtest.PXENode(t, w.Store, "52:54:00:00:00:02", lifecycle.NodeInstalling)
	active := dbtest.PXENode(t, w.Store, "52:54:00:00:00:03", lifecycle.NodeActive)
	hash, _ := dbtest.BootToken(t, w.Store, spoke.ID)
	require.NoError(t, w.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: hash, MAC: "52:54:00:00:00:02", Status: lifecycle.InstallComplete})
		return err
	}))
	for attempt := range 3 {
		for ahead, failed := range map[time.Duration]int{29 * time.Minute: 0, 31 * time.Minute: 1} {
			w.ahead = ahead
			r, err := w.SweepInstalls(t.Context())
			require.NoError(t, err)
			require.Equal(t, sweep.InstallsReport{Failed: failed}, r, "attempt %d", attempt+1)
		}
	}
	require.Equal(t, lifecycle.NodeInstallFailed, w.status(silent.ID))
	require.Equal(t, lifecycle.NodeInstalled, w.status(spoke.ID))
	require.Equal(t, lifecycle.NodeActive, w.status(active.ID))
	rows, _, err := w.Store.NodeHistory(t.Context(), silent.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "system", rows[0].TriggeredBy)

	// Heartbeats move no PXE node, since it need not have an agent.
	require.NoError(t, w.Store.Listening(t.Context(), "api-1"))
	w.OfflineAfter = silence
	require.Zero(t, w.sweepHeartbeats(3*time.Hour).Offline)
	require.Equal(t, lifecycle.NodeActive, w.status(active.ID))
}
