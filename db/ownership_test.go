package db_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var errTried = errors.New("only tried")

// ownership is the table of owners of node states, written down here once more:
// who owns each transition. Slipway's own additions are marked.
func ownership() map[string][]lifecycle.Owner {
	return map[string][]lifecycle.Owner{
		"bootstrap_issued -> enrolling": {lifecycle.OwnerAdmin, lifecycle.OwnerOnboarding},
		"enrolling -> active":           {lifecycle.OwnerOnboarding},
		"enrolling -> quarantined":      {lifecycle.OwnerOnboarding, lifecycle.OwnerAdmin},
		"active -> offline":             {lifecycle.OwnerHeartbeat, lifecycle.OwnerReconciler},
		"offline -> active":             {lifecycle.OwnerHeartbeat, lifecycle.OwnerReconciler},
		"active -> quarantined":         {lifecycle.OwnerReconciler, lifecycle.OwnerDecommission, lifecycle.OwnerAdmin}, // admin: an investigation (section 3.1)
		"offline -> quarantined":        {lifecycle.OwnerReconciler, lifecycle.OwnerDecommission, lifecycle.OwnerAdmin}, // the same
		"quarantined -> active":         {lifecycle.OwnerAdmin, lifecycle.OwnerReconciler, lifecycle.OwnerOnboarding},   // onboarding: ADR 4
		"active -> draining":            {lifecycle.OwnerAdmin, lifecycle.OwnerCustomer},                                // customer: his run takes the node (ADR 17)
		"offline -> draining":           {lifecycle.OwnerAdmin, lifecycle.OwnerCustomer},                                // the same
		"quarantined -> draining":       {lifecycle.OwnerAdmin, lifecycle.OwnerCustomer},                                // the same
		"draining -> retired":           {lifecycle.OwnerDrain, lifecycle.OwnerDecommission},
		"draining -> offline":           {lifecycle.OwnerDrain, lifecycle.OwnerDecommission, lifecycle.OwnerAdmin},
		"retired -> offline":            {lifecycle.OwnerAdmin},
		"retired -> removing":           {lifecycle.OwnerAdmin, lifecycle.OwnerDecommission},
		"removing -> retired":           {lifecycle.OwnerDecommission, lifecycle.OwnerAdmin}, // admin: operator rollback (section 3.2)
		"removing -> deleted":           {lifecycle.OwnerDecommission},
	}
}

func owners() []lifecycle.Owner {
	return []lifecycle.Owner{
		lifecycle.OwnerAdmin, lifecycle.OwnerOnboarding, lifecycle.OwnerDecommission, lifecycle.OwnerDrain, lifecycle.OwnerHeartbeat,
		lifecycle.OwnerReconciler, lifecycle.OwnerNodeReport, lifecycle.OwnerCustomer, lifecycle.OwnerJob, lifecycle.OwnerEngine, lifecycle.OwnerSystem,
	}
}

// Every transition of section 3.3 is tried by every owner, in every state: it is
// taken where the table says so, and nowhere else.
func TestEachTransitionBelongsToItsOwners(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	table, taken := ownership(), map[string]bool{}
	for _, from := range lifecycle.NodeMAAS.States {
		n := dbtest.Node(t, s, dbtest.Status(from.State))
		for _, move := range lifecycle.NodeMAAS.Transitions {
			edge := string(from.State) + " -> " + string(move.To)
			for _, owner := range owners() {
				err := s.Tx(t.Context(), func(tx *db.Tx) error {
					if _, err := tx.TransitionNode(t.Context(), n.ID, move, move.Needs, db.Actor{Owner: owner}); err != nil {
						return err
					}
					return errTried
				})
				may := slices.Contains(move.From, from.State) && slices.Contains(table[edge], owner)
				if !may {
					require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, "%s by %s as %s", edge, owner, move.Name)
					continue
				}
				require.ErrorIs(t, err, errTried, "%s by %s as %s", edge, owner, move.Name)
				taken[edge] = true
			}
			// Without what it needs it is refused to its owners too.
			if len(move.Needs) > 0 && slices.Contains(move.From, from.State) {
				err := s.Tx(t.Context(), func(tx *db.Tx) error {
					_, err := tx.TransitionNode(t.Context(), n.ID, move, move.Needs[1:], db.Actor{Owner: move.Owners[0]})
					return err
				})
				require.ErrorContains(t, err, string(move.Needs[0]), edge)
			}
		}
		now, err := s.Node(t.Context(), n.ID)
		require.NoError(t, err)
		require.Equal(t, n, now)
	}
	require.Len(t, taken, len(table), "every row of the table is a transition")
}

// Neither silence nor a good report moves a node that is draining or being
// removed, and the reconciler has no transition that would.
func TestHeartbeatsAndReconcilerLeaveNodesInBetweenAlone(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for _, state := range []lifecycle.NodeStatus{lifecycle.NodeDraining, lifecycle.NodeRemoving, lifecycle.NodeRetired} {
		silent, healthy := dbtest.Node(t, s, dbtest.Status(state)), dbtest.Node(t, s, dbtest.Status(state))
		require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{
			{NodeID: silent.ID, BootID: "b", Generation: 1, ReceivedAt: time.Now().Add(-time.Hour)},
			{NodeID: healthy.ID, BootID: "b", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{}},
		}))
		later := time.Now().Add(time.Hour)
		for _, owner := range []lifecycle.Owner{lifecycle.OwnerHeartbeat, lifecycle.OwnerReconciler} {
			a := db.Actor{Owner: owner}
			moved, err := s.NodeSilent(t.Context(), silent.ID, later, a)
			require.NoError(t, err)
			require.False(t, moved)
			moved, err = s.NodeHeardAgain(t.Context(), healthy.ID, time.Now().Add(-time.Hour), a)
			require.NoError(t, err)
			require.False(t, moved)
			for _, move := range lifecycle.NodeMAAS.Transitions {
				err := s.Tx(t.Context(), func(tx *db.Tx) error {
					_, err := tx.TransitionNode(t.Context(), healthy.ID, move, move.Needs, a)
					return err
				})
				require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, "%s by %s", move.Name, owner)
			}
		}
		overdue, err := s.NodesOverdue(t.Context(), later, 10)
		require.NoError(t, err)
		require.Empty(t, overdue)
		back, err := s.NodesBack(t.Context(), time.Now().Add(-time.Hour), 10)
		require.NoError(t, err)
		require.Empty(t, back)
		for _, n := range []db.Node{silent, healthy} {
			now, err := s.Node(t.Context(), n.ID)
			require.NoError(t, err)
			require.Equal(t, n, now)
		}
	}
}

// Each decommission is one row of the read model.
func TestViewOfDecommissions(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s, dbtest.Active())
	var job db.Job
	in(t, s, func(tx *db.Tx) (err error) {
		job, n, err = tx.StartNodeJob(t.Context(), db.NodeJob{Mode: lifecycle.ModeReimage, Node: n, Job: db.NewJob{Kind: "decommission", Input: []byte(`{"mode": "reimage"}`), Actor: admin}})
		return err
	})
	require.Equal(t, lifecycle.NodeDraining, n.Status)
	dbtest.Job(t, s)
	rows, err := conn.Query(t.Context(), "SELECT id || ' ' || status || ' ' || mode FROM node_decommissions")
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{job.ID + " pending reimage"}, got)
}

// A request is checked on the node as it is, not as it was when it was planned.
func TestStartNodeJob_ChecksUnderTheLock(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	seen := dbtest.Node(t, s, dbtest.Active())
	start := func(mode lifecycle.DecommissionMode) error {
		return s.Tx(t.Context(), func(tx *db.Tx) error {
			_, _, err := tx.StartNodeJob(t.Context(), db.NodeJob{Mode: mode, Node: seen, Job: db.NewJob{Kind: "decommission", Actor: admin}})
			return err
		})
	}
	require.ErrorIs(t, start("burn"), db.ErrInvalid)
	require.ErrorIs(t, start(lifecycle.ModeRemove), lifecycle.ErrIllegalTransition)
	in(t, s, func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), seen.ID, lifecycle.NodeQuarantine, nil, admin)
		return err
	})
	require.ErrorIs(t, start(lifecycle.ModeSoftReset), db.ErrStale)
	var err error
	seen, err = s.Node(t.Context(), seen.ID)
	require.NoError(t, err)
	require.NoError(t, s.SetNodeMachine(t.Context(), seen.ID, db.NodeMachine{SystemID: "abc123"}))
	require.ErrorIs(t, start(lifecycle.ModeSoftReset), db.ErrStale, "another machine")
	seen, err = s.Node(t.Context(), seen.ID)
	require.NoError(t, err)
	require.NoError(t, start(lifecycle.ModeSoftReset))
	var conflict *db.ConflictError
	require.ErrorAs(t, start(lifecycle.ModeSoftReset), &conflict)
	require.Equal(t, "live_job", conflict.What)
}
