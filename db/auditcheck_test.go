package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestCheckNextChains_FindsChangedRow: the round goes over every chain in steps, finds the one that
// was changed, and requires operator action until it is whole again.
func TestCheckNextChains_FindsChangedRow(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	for range 4 {
		dbtest.Node(t, s, dbtest.Active())
	}
	round := func() (broken []db.ChainCheck, steps int) {
		for {
			checked, found, err := s.CheckNextChains(t.Context(), 0, 2)
			require.NoError(t, err)
			broken, steps = append(broken, found...), steps+1
			if checked < 2 {
				return broken, steps
			}
		}
	}
	listed := func() []db.Attention { return attention(t, s, db.AttentionFilter{Kind: db.AttentionAuditBroken}) }
	broken, steps := round()
	require.Empty(t, broken)
	require.GreaterOrEqual(t, steps, 3, "five nodes and more, two at a time")
	require.Empty(t, listed())

	exec(t, conn, "SET session_replication_role = replica") // no triggers
	exec(t, conn, "UPDATE audit_log SET comment = 'nothing happened' WHERE resource_id = $1 AND seq = 2", n.ID)
	broken, _ = round()
	require.Equal(t, []db.ChainCheck{{ResourceKind: "node", ResourceID: n.ID, BrokenSeq: 2}}, broken)
	rows := listed()
	require.Len(t, rows, 1)
	require.Equal(t, []string{n.ID, n.Hostname}, []string{rows[0].NodeID, rows[0].Hostname})
	require.Contains(t, rows[0].Message, "row 2")

	exec(t, conn, "UPDATE audit_log SET comment = NULL WHERE resource_id = $1 AND seq = 2", n.ID)
	broken, _ = round()
	require.Empty(t, broken)
	require.Empty(t, listed())
}

// TestCheckNextChains_OneAtATime: another process that verifies is not waited for, and a round that
// ended is not repeated at once.
func TestCheckNextChains_OneAtATime(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	dbtest.Node(t, s, dbtest.Active())
	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT * FROM audit_checks FOR UPDATE")
	checked, _, err := s.CheckNextChains(t.Context(), time.Hour, 1000)
	require.NoError(t, err)
	require.Zero(t, checked)
	exec(t, conn, "ROLLBACK")
	checked, _, err = s.CheckNextChains(t.Context(), time.Hour, 1000)
	require.NoError(t, err)
	require.Positive(t, checked)
	at, err := s.AuditCheck(t.Context())
	require.NoError(t, err)
	require.NotNil(t, at.FinishedAt)
	require.Equal(t, int64(checked), at.Checked)
	checked, _, err = s.CheckNextChains(t.Context(), time.Hour, 1000)
	require.NoError(t, err)
	require.Zero(t, checked)
}
