package db_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var pxeAdmin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"}

func mac(i int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", i>>16&0xff, i>>8&0xff, i&0xff)
}

func discover(t testing.TB, s *db.Store, mac string) db.Node {
	t.Helper()
	var n db.Node
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		n, _, err = tx.Discover(t.Context(), db.Discovery{MAC: mac, Source: "10.0.0.9", Facts: db.PXEFacts{Vendor: "Dell", SerialNumber: "S1"}})
		return err
	}))
	return n
}

func setState(t testing.TB, s *db.Store, id string, to lifecycle.NodeStatus, force bool) (db.Node, error) {
	t.Helper()
	var n db.Node
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		now, err := tx.Node(t.Context(), id)
		if err != nil {
			return err
		}
		n, err = tx.SetPXEState(t.Context(), id, now.Version, to, force, pxeAdmin)
		return err
	})
	return n, err
}

func report(ctx context.Context, s *db.Store, mac string, token []byte, status lifecycle.InstallStatus, progress int) (n db.Node, e lifecycle.ReportEffect, err error) {
	return reportError(ctx, s, mac, token, status, progress, "Disk not found")
}

func reportError(ctx context.Context, s *db.Store, mac string, token []byte, status lifecycle.InstallStatus, progress int, failure string) (n db.Node, e lifecycle.ReportEffect, err error) {
	err = s.Tx(ctx, func(tx *db.Tx) error {
		n, e, err = tx.ReportInstall(ctx, db.InstallReport{TokenHash: token, MAC: mac, Status: status, Progress: progress, Error: failure})
		return err
	})
	return n, e, err
}

func TestThreeFailuresNeedAPerson(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	say := func(token []byte, status lifecycle.InstallStatus, want lifecycle.ReportEffect) {
		t.Helper()
		var e lifecycle.ReportEffect
		var err error
		n, e, err = report(t.Context(), s, mac(1), token, status, 50)
		require.NoError(t, err)
		require.Equal(t, want, e)
	}
	var tokens [][]byte
	for attempt := 1; attempt <= 3; attempt++ {
		token, ticket := dbtest.BootToken(t, s, n.ID)
		require.Equal(t, attempt, ticket.Attempt)
		tokens = append(tokens, token)
		started, failed := lifecycle.ReportRestarts, lifecycle.ReportFails
		if attempt == 1 {
			started = lifecycle.ReportStarts
		}
		if attempt == 3 {
			failed = lifecycle.ReportExhausts
		}
		say(token, lifecycle.InstallStarted, started)
		say(token, lifecycle.InstallStarted, lifecycle.ReportHeard)
		say(token, lifecycle.InstallProgress, lifecycle.ReportAdvances)
		say(token, lifecycle.InstallProgress, lifecycle.ReportHeard)
		say(token, lifecycle.InstallFailure, failed)
		require.Equal(t, attempt, n.InstallAttempts)
		require.Equal(t, "Disk not found", n.LastInstallError)
	}
	require.Equal(t, lifecycle.NodeInstallFailed, n.Status)
	for _, late := range tokens {
		say(late, lifecycle.InstallComplete, lifecycle.ReportIgnored)
		say(late, lifecycle.InstallFailure, lifecycle.ReportIgnored)
	}
	rows, total, err := s.NodeHistory(t.Context(), n.ID, 50, 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, total)
	require.JSONEq(t, `{"error":"Disk not found","attempt":3}`, string(rows[0].Metadata))
	require.Equal(t, "node_report", rows[0].TriggeredBy)
	require.Nil(t, rows[0].UserID)

	_, err = setState(t, s, n.ID, lifecycle.NodePending, false)
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition)
	n, err = setState(t, s, n.ID, lifecycle.NodePending, true)
	require.NoError(t, err)
	require.Zero(t, n.InstallAttempts)
	_, _, err = report(t.Context(), s, mac(1), tokens[2], lifecycle.InstallComplete, 0)
	require.ErrorIs(t, err, db.ErrNotFound, "tokens end with the next round")
	token, ticket := dbtest.BootToken(t, s, n.ID)
	require.Equal(t, lifecycle.InstallAttempt{Round: 2, Attempt: 1}, ticket)
	say(token, lifecycle.InstallComplete, lifecycle.ReportIgnored)
	say(token, lifecycle.InstallStarted, lifecycle.ReportStarts)
	say(token, lifecycle.InstallComplete, lifecycle.ReportFinishes)
	require.Equal(t, lifecycle.NodeInstalled, n.Status)
	require.Empty(t, n.LastInstallError)
	broken, err := s.VerifyAudit(t.Context(), "node", n.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
}

// Every pair of states, by the database's own edges and by an admin's call.
func TestEveryPXETransition(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	edges := lifecycle.NodePXE.Edges()
	for i, from := range lifecycle.NodePXE.States {
		n := dbtest.PXENode(t, s, mac(i+1), from.State)
		for _, to := range lifecycle.NodePXE.States {
			if from.State == to.State {
				continue
			}
			legal := slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == string(from.State) && e.To == string(to.State) })
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE nodes SET status = $1, version = version + 1 WHERE id = $2", string(to.State), n.ID)
			require.NoError(t, tx.Rollback(t.Context()))
			if legal {
				require.NoError(t, err, "%s to %s", from.State, to.State)
			} else {
				requireState(t, err, "SW001")
			}
			byAdmin := slices.Contains(lifecycle.NodePXE.ReachableBy(from.State, lifecycle.OwnerAdmin), string(to.State))
			undo := fmt.Errorf("undone")
			err = s.Tx(t.Context(), func(tx *db.Tx) error {
				if _, err := tx.SetPXEState(t.Context(), n.ID, n.Version, to.State, true, pxeAdmin); err != nil {
					return err
				}
				return undo
			})
			if byAdmin {
				require.ErrorIs(t, err, undo, "%s to %s", from.State, to.State)
			} else {
				require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, "%s to %s", from.State, to.State)
			}
		}
	}
}

func TestRetiredMachine_IsDiscoveredAgain(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	first := discover(t, s, mac(1))
	require.Equal(t, first.ID, discover(t, s, mac(1)).ID)
	_, err := setState(t, s, first.ID, lifecycle.NodeRetired, false)
	require.NoError(t, err)
	second := discover(t, s, mac(1))
	require.NotEqual(t, first.ID, second.ID)
	require.NotEqual(t, first.Hostname, second.Hostname)
	rows, _, err := s.NodeHistory(t.Context(), second.ID, 1, 0)
	require.NoError(t, err)
	require.Contains(t, string(rows[0].Metadata), first.ID)
}

func TestPurgeTakesOnlyWhatWasDiscovered(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	kept := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	gone := discover(t, s, mac(2))
	_, err := conn.Exec(t.Context(), "DELETE FROM nodes WHERE id = $1", gone.ID)
	requireState(t, err, "SW001")
	n, err := s.Purge(t.Context(), "10.0.0.8", 0, pxeAdmin)
	require.NoError(t, err)
	require.Zero(t, n, "of another source")
	n, err = s.Purge(t.Context(), "", time.Hour, pxeAdmin)
	require.NoError(t, err)
	require.Zero(t, n, "seen just now")
	n, err = s.Purge(t.Context(), "10.0.0.9", 0, pxeAdmin)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.Node(t.Context(), gone.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, err = s.Node(t.Context(), kept.ID)
	require.NoError(t, err)
	rows, err := s.NodeTimeline(t.Context(), gone.ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "purge", rows[0].Name)
	broken, err := s.VerifyAudit(t.Context(), "node", gone.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
}

func TestASilentInstallationCountsAsFailed(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	token, _ := dbtest.BootToken(t, s, n.ID)
	n, _, err := report(t.Context(), s, mac(1), token, lifecycle.InstallStarted, 0)
	require.NoError(t, err)
	for attempt := 1; attempt <= 3; attempt++ {
		ids, err := s.SilentInstalls(t.Context(), 29*time.Minute, 10)
		require.NoError(t, err)
		require.Empty(t, ids)
		ids, err = s.SilentInstalls(t.Context(), 31*time.Minute, 10)
		require.NoError(t, err)
		require.Equal(t, []string{n.ID}, ids)
		failed, err := s.FailSilentInstall(t.Context(), n.ID, time.Now().Add(29*time.Minute), db.Actor{Owner: lifecycle.OwnerSystem})
		require.NoError(t, err)
		require.False(t, failed)
		failed, err = s.FailSilentInstall(t.Context(), n.ID, time.Now().Add(31*time.Minute), db.Actor{Owner: lifecycle.OwnerSystem})
		require.NoError(t, err)
		require.True(t, failed)
	}
	n, err = s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeInstallFailed, n.Status)
	require.Contains(t, n.LastInstallError, "silent")
	ids, err := s.SilentInstalls(t.Context(), 240*time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, ids)
}
