package db_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// raw is a connection beside the Store, for what the Store never does.
func raw(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func requireState(t testing.TB, err error, state string) {
	t.Helper()
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, state, pg.Code, pg.Message)
}

func TestTheEdgesOfTheDatabaseAreThoseOfLifecycle(t *testing.T) {
	t.Parallel()
	conn := raw(t, dbtest.FreshDatabase(t))
	rows, err := conn.Query(t.Context(), "SELECT resource, lifecycle, name, from_state, to_state FROM lifecycle_edges")
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lifecycle.Edge])
	require.NoError(t, err)
	require.ElementsMatch(t, lifecycle.AllEdges(), got, "write a migration that brings lifecycle_edges to lifecycle.AllEdges")
}

func TestTheLiveStatesOfTheIndexAreThoseOfLifecycle(t *testing.T) {
	t.Parallel()
	for _, st := range lifecycle.Job.States {
		t.Run(string(st.State), func(t *testing.T) {
			t.Parallel()
			s := dbtest.Store(t)
			j := dbtest.Job(t, s, dbtest.JobStatus(st.State))
			_, err := s.LiveJobOfNode(t.Context(), *j.NodeID)
			second := s.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := tx.CreateJob(t.Context(), db.NewJob{Kind: "onboarding", NodeID: j.NodeID, SiteID: j.SiteID, Actor: admin})
				return err
			})
			if st.State.Live() {
				require.NoError(t, err)
				var conflict *db.ConflictError
				require.ErrorAs(t, second, &conflict)
				require.Equal(t, j.ID, conflict.Existing)
				return
			}
			require.ErrorIs(t, err, db.ErrNotFound)
			require.NoError(t, second)
		})
	}
}

// Every pair of states, by SQL: the trigger allows exactly the edges.
func TestTheSchemaRefusesEveryStatusChangeThatIsNoEdge(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	edges := lifecycle.NodeMAAS.Edges()
	for _, from := range lifecycle.NodeMAAS.States {
		n := dbtest.Node(t, s, dbtest.Status(from.State))
		for _, to := range lifecycle.NodeMAAS.States {
			if from.State == to.State {
				continue
			}
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE nodes SET status = $1, version = version + 1 WHERE id = $2", string(to.State), n.ID)
			require.NoError(t, tx.Rollback(t.Context()))
			legal := slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == string(from.State) && e.To == string(to.State) })
			if legal {
				require.NoError(t, err, "%s to %s", from.State, to.State)
				continue
			}
			requireState(t, err, "SW001")
		}
	}
}

func TestTheSchemaRefusesWhatGoesAroundTheCommitPoint(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	n := dbtest.Node(t, s)
	j := dbtest.Job(t, s, dbtest.On(n.ID), dbtest.JobStatus(lifecycle.JobRunning))
	for name, c := range map[string]struct {
		sql, state string
		args       []any
	}{
		"a status change without its audit row":     {"UPDATE nodes SET status = 'enrolling', version = version + 1 WHERE id = $1", "SW002", []any{n.ID}},
		"a job's status change without audit":       {"UPDATE jobs SET status = 'completed', version = version + 1 WHERE id = $1", "SW002", []any{j.ID}},
		"a status change without a version":         {"UPDATE nodes SET status = 'enrolling' WHERE id = $1", "SW001", []any{n.ID}},
		"a job that jumps":                          {"UPDATE jobs SET status = 'cancelled', version = version + 1 WHERE id = $1", "SW001", []any{j.ID}},
		"another lifecycle":                         {"UPDATE nodes SET lifecycle = 'pxe' WHERE id = $1", "SW001", []any{n.ID}},
		"deleting a node":                           {"DELETE FROM nodes WHERE id = $1", "SW001", []any{n.ID}},
		"deleting a job":                            {"DELETE FROM jobs WHERE id = $1", "SW001", []any{j.ID}},
		"a node that is born active":                {"INSERT INTO nodes (id, lifecycle, status, hostname, site_id) VALUES ('node_x', 'maas', 'active', 'x', $1)", "SW001", []any{n.SiteID}},
		"a node that is born without an audit row":  {"INSERT INTO nodes (id, lifecycle, status, hostname, site_id) VALUES ('node_x', 'maas', 'bootstrap_issued', 'x', $1)", "SW002", []any{n.SiteID}},
		"an id of another kind":                     {"INSERT INTO sites (id, name, spec) VALUES ('node_x', 'x', $1)", "23514", []any{"{}"}},
		"moving the head of a chain":                {"UPDATE audit_heads SET seq = 0 WHERE resource_id = $1", "SW003", []any{n.ID}},
		"deleting the head of a chain":              {"DELETE FROM audit_heads WHERE resource_id = $1", "SW003", []any{n.ID}},
		"changing an audit row":                     {"UPDATE audit_log SET comment = 'nothing happened' WHERE resource_id = $1", "SW003", []any{n.ID}},
		"deleting an audit row":                     {"DELETE FROM audit_log WHERE resource_id = $1", "SW003", []any{n.ID}},
		"an audit row that is dated back":           {auditInsert + " (now() - interval '1 day', 'evt_x', 'node', $1, 'action', 'x', 'admin', 'admin', 0, 0, '', '')", "SW003", []any{n.ID}},
		"emptying the audit log":                    {"TRUNCATE audit_log", "SW003", nil},
		"emptying the default partition of the log": {"TRUNCATE audit_log_default", "SW003", nil},
		"emptying the heads":                        {"TRUNCATE audit_heads", "SW003", nil},
	} {
		_, err := conn.Exec(t.Context(), c.sql, c.args...)
		require.Error(t, err, name)
		requireState(t, err, c.state)
	}
	requireWhole(t, s, "node", n.ID)
	requireWhole(t, s, "job", j.ID)
}

const auditInsert = `INSERT INTO audit_log (at, id, resource_kind, resource_id, kind, name, triggered_by, owner, seq, txid, prev_hash, hash) VALUES`

func TestNoPartitionOfTheAuditLogCanBeEmptied(t *testing.T) {
	t.Parallel()
	conn := dbtest.Owner(t, dbtest.FreshDatabase(t))
	rows, err := conn.Query(t.Context(), "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'audit_log'::regclass")
	require.NoError(t, err)
	parts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, parts, 2+db.AuditMonthsAhead, "this month, those ahead and the default")
	for _, p := range parts {
		_, err := conn.Exec(t.Context(), "TRUNCATE "+p)
		require.Error(t, err, p)
		requireState(t, err, "SW003")
	}
}

func requireWhole(t testing.TB, s *db.Store, kind, id string) {
	t.Helper()
	broken, err := s.VerifyAudit(t.Context(), kind, id)
	require.NoError(t, err)
	require.Zero(t, broken)
}

// Whoever may switch triggers off can change rows, but not unseen.
func TestATamperedChainIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql   string
		first int64
	}{
		"a row that was changed":      {"UPDATE audit_log SET to_state = 'retired' WHERE resource_id = $1 AND seq = 2", 2},
		"metadata that was changed":   {`UPDATE audit_log SET metadata = '{"proof": []}' WHERE resource_id = $1 AND seq = 3`, 3},
		"a comment that was added":    {"UPDATE audit_log SET comment = 'ok' WHERE resource_id = $1 AND seq = 1", 1},
		"a row that was cut out":      {"DELETE FROM audit_log WHERE resource_id = $1 AND seq = 2", 2},
		"a tail that was cut off":     {"DELETE FROM audit_log WHERE resource_id = $1 AND seq = 4", 4},
		"a chain that was thrown out": {"DELETE FROM audit_log WHERE resource_id = $1", 1},
		"a head that was thrown out":  {"DELETE FROM audit_heads WHERE resource_id = $1", 5},
		"a forged row with its own hash": {"UPDATE audit_log l SET actor_id = 'mallory', hash = audit_row_hash(l) WHERE resource_id = $1 AND seq = 2",
			2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.FreshDatabase(t)
			s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
			n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeOffline)) // four rows
			other := dbtest.Node(t, s, dbtest.Active())
			requireWhole(t, s, "node", n.ID)

			exec(t, conn, "SET session_replication_role = replica") // no triggers
			exec(t, conn, c.sql, n.ID)

			broken, err := s.VerifyAudit(t.Context(), "node", n.ID)
			require.NoError(t, err)
			require.Equal(t, c.first, broken)
			requireWhole(t, s, "node", other.ID)
		})
	}
}

func TestADSNIsNeverPartOfAnError(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://slipway:hunter2@127.0.0.1:1/%zz"
	_, err := db.Open(t.Context(), dsn)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	err = db.Migrate(t.Context(), dsn)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}
