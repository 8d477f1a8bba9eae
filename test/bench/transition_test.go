package bench_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	movesARound = 500
	movesAtOnce = 4
	moveRounds  = 7
)

// bareTables are tables like those that a state change writes, with the same indexes and nothing
// that guards them.
const bareTables = `
CREATE TABLE bare_nodes (LIKE nodes INCLUDING ALL);
CREATE TABLE bare_audit (LIKE audit_log INCLUDING ALL);
CREATE TABLE bare_heads (LIKE audit_heads INCLUDING ALL);
CREATE TABLE bare_outbox (LIKE outbox INCLUDING ALL);
ALTER TABLE bare_nodes ALTER site_ref DROP EXPRESSION;
INSERT INTO bare_nodes SELECT * FROM nodes;
INSERT INTO bare_heads SELECT * FROM audit_heads`

// bareMove writes the rows of a state change in one statement, with no check.
const bareMove = `
WITH moved AS (
    UPDATE bare_nodes SET status = $2, state_changed_at = now(), updated_at = now(), version = version + 1 WHERE id = $1 RETURNING id, status, version
), head AS (
    UPDATE bare_heads SET seq = seq + 1 WHERE resource_kind = 'node' AND resource_id = $1 RETURNING seq, hash
), logged AS (
    INSERT INTO bare_audit (id, resource_kind, resource_id, seq, node_id, kind, name, from_state, to_state, triggered_by, owner, metadata, version, txid,
        prev_hash, hash)
    SELECT $3, 'node', id, seq, id, 'transition', 'x', '', status, 'node_report', 'heartbeat', '{}', version, 1, hash, hash FROM moved, head
), told AS (
    INSERT INTO bare_outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'node', id, id, 'node.' || status, jsonb_build_object('node_id', id, 'status', status) FROM moved
)
SELECT version FROM moved`

// BenchmarkTransition measures the commit point of a node against one bare statement that writes
// the same rows: the node, its audit row, the end of its chain and its event. The commit point has
// three round trips more and the guards of the database.
func BenchmarkTransition(b *testing.B) {
	dsn := dbtest.FreshDatabase(b)
	store := dbtest.Open(b, dsn)
	var ids []string
	for range movesAtOnce {
		ids = append(ids, dbtest.Node(b, store, dbtest.Active()).ID)
	}
	pool, err := pgxpool.New(b.Context(), dbtest.OwnerDSN(b, dsn)) // it makes tables
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), bareTables)
	require.NoError(b, err)

	moves := []lifecycle.Transition[lifecycle.NodeStatus]{lifecycle.NodeGoOffline, lifecycle.NodeComeBack}
	var c contest
	conn := dbtest.Owner(b, dsn)
	used := map[string]float64{} // seconds of processor time, of this process and of PostgreSQL
	processor := func() float64 { return (processorTime(b) + postgresTime(b, conn)).Seconds() }
	enter := func(name string, move func(ctx context.Context, id string, m lifecycle.Transition[lifecycle.NodeStatus]) error) {
		next := make([]int, movesAtOnce) // each worker moves a node of its own to and fro
		c.enter(name, func() float64 {
			began := processor()
			defer func() { used[name] += processor() - began }()
			return movesARound * rate(b, movesAtOnce, movesAtOnce, func(ctx context.Context, worker int) error {
				for range movesARound {
					if err := move(ctx, ids[worker], moves[next[worker]%2]); err != nil {
						return err
					}
					next[worker]++
				}
				return nil
			})
		})
	}
	enter("commit point", func(ctx context.Context, id string, m lifecycle.Transition[lifecycle.NodeStatus]) error {
		return store.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.TransitionNode(ctx, id, m, m.Needs, db.Actor{Owner: lifecycle.OwnerHeartbeat})
			return err
		})
	})
	enter("bare", func(ctx context.Context, id string, m lifecycle.Transition[lifecycle.NodeStatus]) error {
		_, err := pool.Exec(ctx, bareMove, id, string(m.To), db.NewID("evt"))
		return err
	})
	for b.Loop() {
		for range moveRounds {
			c.round()
		}
	}
	b.ReportMetric(c.of("commit point"), "transitions/s")
	b.ReportMetric(c.of("bare"), "bare/s")
	b.ReportMetric(c.ratio("commit point", "bare"), "ratio")
	b.ReportMetric(used["bare"]/used["commit point"], "ratio-processor")
	measure(b, rowTransition, c.ratio("commit point", "bare"), "%.2f; %.2f by processor time", c.ratio("commit point", "bare"), used["bare"]/used["commit point"])
	say("state change of a node: %.0f/s; a bare statement that writes the same rows: %.0f/s; ratio %.2f, and %.2f by processor time",
		c.of("commit point"), c.of("bare"), c.ratio("commit point", "bare"), used["bare"]/used["commit point"])
}
