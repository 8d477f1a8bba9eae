package db_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// withoutGuards runs statements whose triggers do not fire.
func withoutGuards(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	exec(t, conn, "SET session_replication_role = replica")
	exec(t, conn, sql, args...)
	exec(t, conn, "RESET session_replication_role")
}

// requireGuard requires that the schema accepts an update exactly where lifecycle has the edge. The
// update is undone.
func requireGuard(t testing.TB, conn *pgx.Conn, edges []lifecycle.Edge, from, to, sql string, args ...any) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), sql, args...)
	require.NoError(t, tx.Rollback(t.Context()))
	if slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == from && e.To == to }) {
		require.NoError(t, err, "%q to %q", from, to)
		return
	}
	require.Error(t, err, "%q to %q", from, to)
	requireState(t, err, "SW001")
}

const insertFinding = `INSERT INTO drift_findings (id, site_id, detector, scope, subject, severity, status, key, message, closed_at)
	VALUES ('drift_' || $2, $1, 'gpu_count_differs', 'node', $2, 'critical', $2, 'k', 'm', CASE WHEN $2 = 'closed' THEN now() END)`

func TestDriftFinding_EdgesBySQL(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	site, conn, edges := dbtest.Site(t, dbtest.Open(t, dsn)), dbtest.Owner(t, dsn), lifecycle.DriftFinding.Edges()
	const move = `UPDATE drift_findings SET status = $2, closed_at = CASE WHEN $2 = 'closed' THEN now() END, version = version + $3 WHERE id = 'drift_' || $1`
	for _, from := range lifecycle.DriftFinding.States {
		requireGuard(t, conn, edges, "", string(from.State), insertFinding, site.ID, from.State)
		withoutGuards(t, conn, insertFinding, site.ID, from.State)
		for _, to := range lifecycle.DriftFinding.States {
			if from.State != to.State {
				requireGuard(t, conn, edges, string(from.State), string(to.State), move, from.State, to.State, 1)
				requireGuard(t, conn, nil, string(from.State), string(to.State), move, from.State, to.State, 0)
			}
		}
	}
}

func TestBMCRotation_EdgesBySQL(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, conn, edges := dbtest.Open(t, dsn), dbtest.Owner(t, dsn), lifecycle.BMCRotation.Edges()
	for _, from := range rotationStates() {
		b := rotatingBMC(t, s, conn, from)
		for _, to := range lifecycle.BMCRotation.States {
			if from == to.State {
				continue
			}
			set := "candidate_ref = 'bmc/new', rotation_state = '" + string(to.State) + "'"
			if lifecycle.BMCRotation.Terminal(to.State) {
				set = "candidate_ref = '', rotation_state = ''"
			}
			if to.State == lifecycle.RotationRotated {
				set += ", credential_ref = 'bmc/new', rotated_at = now()"
			}
			if from == lifecycle.RotationNone && lifecycle.BMCRotation.Terminal(to.State) {
				continue // such an update changes no state
			}
			requireGuard(t, conn, edges, string(from), string(to.State), "UPDATE bmcs SET version = version + 1, "+set+" WHERE id = $1", b.ID)
			requireGuard(t, conn, nil, string(from), string(to.State), "UPDATE bmcs SET "+set+" WHERE id = $1", b.ID)
		}
		if from == lifecycle.RotationVerified {
			requireGuard(t, conn, nil, string(from), "rotated with another login", `UPDATE bmcs SET version = version + 1, credential_ref = 'bmc/third',
				candidate_ref = '', rotation_state = '', rotated_at = now() WHERE id = $1`, b.ID)
		}
		if from != lifecycle.RotationNone {
			requireGuard(t, conn, edges, "", string(from), `INSERT INTO bmcs (id, address, protocol, credential_ref, candidate_ref, rotation_state)
				VALUES ('bmc_x', 'https://192.0.2.250', 'redfish', 'bmc/a', 'bmc/new', $1)`, from)
		}
	}
}

// rotationStates lists the states that a BMC can have.
func rotationStates() []lifecycle.RotationState {
	states := []lifecycle.RotationState{lifecycle.RotationNone}
	for _, info := range lifecycle.BMCRotation.States {
		if !info.Terminal {
			states = append(states, info.State)
		}
	}
	return states
}

func rotatingBMC(t testing.TB, s *db.Store, conn *pgx.Conn, state lifecycle.RotationState) db.BMC {
	t.Helper()
	b, err := s.CreateBMC(t.Context(), db.NewBMC{Address: "https://192.0.2.1/" + string(state), Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	if state != lifecycle.RotationNone {
		withoutGuards(t, conn, "UPDATE bmcs SET candidate_ref = 'bmc/new', rotation_state = $2 WHERE id = $1", b.ID, state)
	}
	return b
}

// TestBMCRotation_RefusesIllegalMoves checks the transitions in Go: those that do not lead from the
// state the caller saw, and those whose state has changed since.
func TestBMCRotation_RefusesIllegalMoves(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s := dbtest.Open(t, dsn)
	b := rotatingBMC(t, s, dbtest.Owner(t, dsn), lifecycle.RotationApplying)
	move := func(from lifecycle.RotationState, m lifecycle.Transition[lifecycle.RotationState]) error {
		return s.MoveBMCRotation(t.Context(), b.ID, "bmc/new", from, m)
	}
	require.ErrorIs(t, move(lifecycle.RotationApplying, lifecycle.RotationVerify), lifecycle.ErrIllegalTransition)
	require.ErrorIs(t, move(lifecycle.RotationApplied, lifecycle.RotationVerify), db.ErrStale)
	require.ErrorIs(t, s.CommitBMCRotation(t.Context(), b.ID, "bmc/new", "m"), db.ErrStale)
	require.ErrorIs(t, s.DropBMCRotation(t.Context(), b.ID, "bmc/new", "m"), db.ErrStale)
	require.NoError(t, move(lifecycle.RotationApplying, lifecycle.RotationAccept))
	require.NoError(t, move(lifecycle.RotationApplied, lifecycle.RotationVerify))
	require.NoError(t, s.CommitBMCRotation(t.Context(), b.ID, "bmc/new", "m"))
}
