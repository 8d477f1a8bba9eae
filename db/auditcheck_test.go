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
			step, err := s.CheckNextChains(t.Context(), 0, 2, 1000)
			require.NoError(t, err)
			broken, steps = append(broken, step.Broken...), steps+1
			if !step.More {
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
	step, err := s.CheckNextChains(t.Context(), time.Hour, 1000, 1000)
	require.NoError(t, err)
	require.Zero(t, step.Checked)
	exec(t, conn, "ROLLBACK")
	step, err = s.CheckNextChains(t.Context(), time.Hour, 1000, 1000)
	require.NoError(t, err)
	require.Positive(t, step.Checked)
	at, err := s.AuditCheck(t.Context())
	require.NoError(t, err)
	require.NotNil(t, at.FinishedAt)
	require.Equal(t, int64(step.Checked), at.Checked)
	step, err = s.CheckNextChains(t.Context(), time.Hour, 1000, 1000)
	require.NoError(t, err)
	require.Zero(t, step.Checked)
}

// TestCheckNextChains_LongChainInParts: a chain that is too long for one step is verified part by
// part, with its place kept; what is changed before, at or after that place is found, and so is its
// end.
func TestCheckNextChains_LongChainInParts(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	const long = 23
	appendLooks(t, s, n.ID, long)
	round := func() (broken []int64, steps int) {
		for {
			step, err := s.CheckNextChains(t.Context(), 0, 100, 5)
			require.NoError(t, err)
			steps++
			for _, b := range step.Broken {
				require.Equal(t, n.ID, b.ResourceID)
				broken = append(broken, b.BrokenSeq)
			}
			if !step.More {
				return broken, steps
			}
			require.Less(t, steps, 100)
		}
	}
	broken, steps := round()
	require.Empty(t, broken)
	require.Greater(t, steps, long/5)
	exec(t, conn, "SET session_replication_role = replica") // no triggers
	for _, seq := range []int64{1, 4, 5, 6, 7, 10, 11, long} {
		exec(t, conn, "UPDATE audit_log SET comment = 'nothing happened' WHERE resource_id = $1 AND seq = $2", n.ID, seq)
		broken, _ = round()
		require.Equal(t, []int64{seq}, broken)
		exec(t, conn, "UPDATE audit_log SET comment = NULL WHERE resource_id = $1 AND seq = $2", n.ID, seq)
	}
	broken, _ = round()
	require.Empty(t, broken)
	var last int64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT max(seq) FROM audit_log WHERE resource_id = $1", n.ID).Scan(&last))
	exec(t, conn, "DELETE FROM audit_log WHERE resource_id = $1 AND seq = $2", n.ID, last)
	broken, _ = round()
	require.Equal(t, []int64{last}, broken, "its end is missing")
}

// TestCheckNextChains_HidesNothingAtABoundary: the last row of a part and the first one of the next
// are removed, before a round and while its place stands between them.
func TestCheckNextChains_HidesNothingAtABoundary(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	appendLooks(t, s, n.ID, 23)
	// round makes a whole round and tells at of each place within the chain at which a step ended.
	round := func(at func(seq int64)) (broken []int64) {
		for steps := 0; ; steps++ {
			require.Less(t, steps, 100)
			step, err := s.CheckNextChains(t.Context(), 0, 100, 5)
			require.NoError(t, err)
			for _, b := range step.Broken {
				require.Equal(t, n.ID, b.ResourceID)
				broken = append(broken, b.BrokenSeq)
			}
			if !step.More {
				return broken
			}
			var id string
			var seq int64
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT part_id, part_seq FROM audit_checks").Scan(&id, &seq))
			if id == n.ID && seq > 0 {
				at(seq)
			}
		}
	}
	var boundaries []int64
	require.Empty(t, round(func(seq int64) { boundaries = append(boundaries, seq) }))
	require.GreaterOrEqual(t, len(boundaries), 3)
	exec(t, conn, "SET session_replication_role = replica") // no triggers
	exec(t, conn, "CREATE TEMP TABLE removed AS SELECT * FROM audit_log LIMIT 0")
	remove := func(seq int64) {
		exec(t, conn, "WITH r AS (DELETE FROM audit_log WHERE resource_id = $1 AND seq IN ($2::bigint, $2::bigint + 1) RETURNING *) INSERT INTO removed SELECT * FROM r", n.ID, seq)
	}
	restore := func() {
		exec(t, conn, "WITH r AS (DELETE FROM removed RETURNING *) INSERT INTO audit_log SELECT * FROM r")
	}
	for _, b := range boundaries {
		remove(b)
		require.Equal(t, []int64{b}, round(func(int64) {}), "before the round")
		restore()
		require.Equal(t, []int64{b}, round(func(seq int64) {
			if seq == b {
				remove(b)
			}
		}), "within the round")
		restore()
		require.Empty(t, round(func(int64) {}))
	}
}

// appendLooks appends rows to the chain of a node.
func appendLooks(t *testing.T, s *db.Store, nodeID string, rows int) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		for range rows {
			if err := tx.AppendAudit(t.Context(), db.Entry{ResourceKind: "node", ResourceID: nodeID, Kind: db.EntryAction, Name: "look", Actor: db.Actor{Owner: "admin", ID: "x"}}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestAuditSilent_RequiresOperator: a verification that has not come round for a day requires
// operator action, whether or not it ever has.
func TestAuditSilent_RequiresOperator(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	listed := func() []db.Attention { return attention(t, s, db.AttentionFilter{Kind: db.AttentionAuditSilent}) }
	require.Empty(t, listed())
	exec(t, conn, "UPDATE audit_checks SET begun_at = now() - interval '25 hours', part_kind = 'node', part_id = 'node_1', part_seq = 7")
	require.Len(t, listed(), 1)
	require.Contains(t, listed()[0].Message, "stands at node node_1, row 7")
	exec(t, conn, "UPDATE audit_checks SET finished_at = now() - interval '23 hours'")
	require.Empty(t, listed())
	exec(t, conn, "UPDATE audit_checks SET finished_at = now() - interval '25 hours'")
	require.Len(t, listed(), 1)
}
