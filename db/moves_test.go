package db_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var logged = regexp.MustCompile(`from=(\S*) to=(\S*) transition=(\S*) owner=(\S*) actor=(\S*)`)

// Every change of a node's state is logged once, when it is committed.
func TestChangesOfANodesStateAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := db.Open(t.Context(), dbtest.Database(t), db.Log(slog.New(slog.NewTextHandler(&out, nil))))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	token, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), token, lifecycle.InstallStarted, lifecycle.ReportStarts)
	heard(t, s, mac(1), token, lifecycle.InstallStarted, lifecycle.ReportHeard)
	heard(t, s, mac(1), token, lifecycle.InstallComplete, lifecycle.ReportFinishes)
	undone := errors.New("undone")
	require.ErrorIs(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), n.ID, lifecycle.PXEVerify, nil, pxeAdmin)
		require.NoError(t, err)
		return undone
	}), undone)
	_, err = setState(t, s, n.ID, lifecycle.NodeActive, false)
	require.NoError(t, err)

	rows, _, err := s.NodeHistory(t.Context(), n.ID, 100, 0)
	require.NoError(t, err)
	var want, got []string
	for i := range rows {
		r := rows[len(rows)-1-i]
		want = append(want, r.FromState+" "+r.ToState+" "+r.Name+" "+r.Owner)
	}
	for _, m := range logged.FindAllStringSubmatch(out.String(), -1) {
		from := m[1]
		if from == `""` {
			from = ""
		}
		got = append(got, from+" "+m[2]+" "+m[3]+" "+m[4])
	}
	require.Equal(t, want, got, out.String())
	require.Contains(t, out.String(), "node="+n.ID+" ")
	require.Contains(t, out.String(), "transition=verify owner=admin actor=alice")
}
