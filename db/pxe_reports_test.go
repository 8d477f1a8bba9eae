package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Any word of an attempt that runs moves its deadline; what only repeats itself
// has an end of its own, and the error says which of the two it was.
func TestAnInstallerThatGetsNoFurtherHasAnEnd(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	token, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), token, lifecycle.InstallStarted, lifecycle.ReportStarts)
	say := func(status lifecycle.InstallStatus, progress int, want lifecycle.ReportEffect) {
		t.Helper()
		_, e, err := report(t.Context(), s, mac(1), token, status, progress)
		require.NoError(t, err)
		require.Equal(t, want, e)
	}
	passes := func(d time.Duration) {
		t.Helper()
		_, err := conn.Exec(t.Context(), "UPDATE pxe_nodes SET deadline_at = deadline_at - $2::interval, grown_at = grown_at - $2::interval WHERE node_id = $1", n.ID, d.String())
		require.NoError(t, err)
	}
	left := func() time.Duration {
		t.Helper()
		p, err := s.PXENode(t.Context(), n.ID)
		require.NoError(t, err)
		return time.Until(*p.DeadlineAt)
	}
	late := func() bool {
		t.Helper()
		failed, err := s.FailSilentInstall(t.Context(), n.ID, time.Now(), db.Actor{Owner: lifecycle.OwnerSystem})
		require.NoError(t, err)
		return failed
	}
	say(lifecycle.InstallProgress, 40, lifecycle.ReportAdvances)
	said := []lifecycle.InstallStatus{lifecycle.InstallProgress, lifecycle.InstallStarted, "", lifecycle.InstallProgress}
	for _, status := range said { // its limit is 30 minutes
		passes(25 * time.Minute)
		require.False(t, late())
		say(status, 40, lifecycle.ReportHeard)
	}
	require.InDelta(t, 20, left().Minutes(), 1, "120 minutes after it last got further")
	say(lifecycle.InstallProgress, 41, lifecycle.ReportAdvances)
	require.InDelta(t, 30, left().Minutes(), 1, "it got further")
	for range 4 {
		passes(29 * time.Minute)
		require.False(t, late())
		say(lifecycle.InstallProgress, 41, lifecycle.ReportHeard)
	}
	passes(5 * time.Minute)
	say(lifecycle.InstallProgress, 41, lifecycle.ReportHeard)
	require.True(t, late())
	now := mustNode(t, s, n.ID)
	require.Equal(t, 1, now.InstallAttempts)
	require.Contains(t, now.LastInstallError, "got no further than 41 % since")

	token, _ = dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), token, lifecycle.InstallStarted, lifecycle.ReportRestarts)
	passes(31 * time.Minute)
	require.True(t, late())
	require.Contains(t, mustNode(t, s, n.ID).LastInstallError, "was silent past its deadline")
}

// Reports that come again, in any order, while a job boots the node: what was
// counted stays counted, and the audit does not grow with them.
func TestReplayedReportsOfANetbootAreBounded(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodeMigrating)
	require.NoError(t, arm(t, s, n.ID, lifecycle.NetbootInstall, dbtest.InstallWorkflow(t, s).ID))
	first, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), first, lifecycle.InstallStarted, lifecycle.ReportBegins)
	heard(t, s, mac(1), first, lifecycle.InstallFailure, lifecycle.ReportWarns)
	heard(t, s, mac(1), first, lifecycle.InstallStarted, lifecycle.ReportIgnored)
	heard(t, s, mac(1), first, lifecycle.InstallFailure, lifecycle.ReportIgnored)
	second, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), second, lifecycle.InstallStarted, lifecycle.ReportBegins)
	heard(t, s, mac(1), first, lifecycle.InstallFailure, lifecycle.ReportIgnored)
	p, err := s.PXENode(t.Context(), n.ID)
	require.NoError(t, err)
	require.NotNil(t, p.StartedAt, "the later boot goes on")
	counted := 0
	for i := range 40 {
		_, e, err := reportError(t.Context(), s, mac(1), second, lifecycle.InstallFailure, 0, []string{"no disk", "no net", "no power"}[i%3]+string(rune('a'+i/3)))
		require.NoError(t, err)
		if e == lifecycle.ReportWarns {
			counted++
		}
	}
	require.Equal(t, lifecycle.MaxWarnings-1, counted)
	rows, err := s.NodeTimeline(t.Context(), n.ID, 0, 100)
	require.NoError(t, err)
	warnings := 0
	for _, r := range rows {
		if r.Name == "netboot_failed" {
			warnings++
		}
	}
	require.Equal(t, lifecycle.MaxWarnings, warnings)
}
