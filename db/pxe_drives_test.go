package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// An installer names the drives of its node while its attempt runs; what is repeated later says
// nothing.
func TestReportInstall_Drives(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	hash, _ := dbtest.BootToken(t, s, n.ID)
	say := func(status lifecycle.InstallStatus, serial string) {
		t.Helper()
		require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
			_, _, err := tx.ReportInstall(t.Context(), db.InstallReport{TokenHash: hash, MAC: mac(1), Source: "192.0.2.1", Status: status, Drives: []spec.ExpectedDrive{{Serial: serial}}})
			return err
		}))
	}
	say(lifecycle.InstallStarted, "S1")
	say(lifecycle.InstallComplete, "S2")
	say(lifecycle.InstallStarted, "LATE")
	got, err := s.ExpectedDrives(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, db.DrivesBooted, got.Source)
	require.Equal(t, []spec.ExpectedDrive{{Serial: "S2"}}, got.Drives)
}
