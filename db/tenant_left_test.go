package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// left puts a tenant on a node and ends it.
func left(t testing.TB, s *db.Store, nodeID string) time.Time {
	t.Helper()
	dbtest.EndTenancy(t, s, dbtest.Occupy(t, s, nodeID).ID)
	n, err := s.Node(t.Context(), nodeID)
	require.NoError(t, err)
	require.Nil(t, n.AllocationID)
	require.NotNil(t, n.TenantLeftAt, "marked in the same statement")
	return *n.TenantLeftAt
}

// TestNoNodeGoesBackDirty: what a tenant left keeps a node from becoming active,
// by a heartbeat and by an operator, until a certificate that is of later proves it
// clean. The sweeper does not ask for what it would be refused.
func TestNoNodeGoesBackDirty(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for _, state := range []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeQuarantined} {
		n := dbtest.Node(t, s, dbtest.Status(state))
		require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{
			{NodeID: n.ID, BootID: "b", Generation: 1, ReceivedAt: time.Now(), Report: &spec.HealthReport{}},
		}))
		cutoff := time.Now().Add(-time.Hour)
		at := left(t, s, n.ID)
		move := func(tr lifecycle.Transition[lifecycle.NodeStatus]) (db.Node, error) {
			return do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
				return tx.TransitionNode(ctx, n.ID, tr, tr.Needs, db.Actor{Owner: lifecycle.OwnerReconciler})
			})
		}
		up := lifecycle.NodeComeBack
		if state == lifecycle.NodeQuarantined {
			up = lifecycle.NodeUnquarantine
		}
		refused := func(why string) {
			_, err := move(up)
			require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, why)
			require.ErrorContains(t, err, "a tenant left node "+n.Hostname)
			require.NotContains(t, err.Error(), "allowed now: active")
			back, err := s.NodesBack(t.Context(), cutoff, 10)
			require.NoError(t, err)
			require.NotContains(t, back, n.ID, why)
			moved, err := s.NodeHeardAgain(t.Context(), n.ID, cutoff, db.Actor{Owner: lifecycle.OwnerHeartbeat})
			require.NoError(t, err, "not in a loop either")
			require.False(t, moved)
		}
		refused("nothing proves it clean")
		now, err := s.Node(t.Context(), n.ID)
		require.NoError(t, err)
		require.Equal(t, at, *now.TenantLeftAt, "to end it again is no news")
		health, err := do(t, s, func(ctx context.Context, tx *db.Tx) ([]string, error) { return tx.NodeHealth(ctx, now) })
		require.NoError(t, err)
		require.Contains(t, health, db.SanitizeRequired(now))

		prove := func(since time.Time) {
			in(t, s, func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), n.ID, since) })
		}
		prove(at)
		refused("a scrub from before the tenant left proves nothing")
		again := dbtest.Occupy(t, s, n.ID)
		if state == lifecycle.NodeOffline {
			back, err := s.NodesBack(t.Context(), cutoff, 10)
			require.NoError(t, err)
			require.Contains(t, back, n.ID, "who is on the node has its own data there")
		}
		dbtest.EndTenancy(t, s, again.ID)
		refused("it left as well")
		prove(time.Now().Add(time.Minute))
		now, err = move(up)
		require.NoError(t, err)
		require.Nil(t, now.TenantLeftAt)
	}
}

// TestHoldsRootTenant_ForgottenTenant: a tenant of whom the database does not know may have been
// root, whatever the last tenant was of whom it does.
func TestHoldsRootTenant_ForgottenTenant(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), s, false))
	n := dbtest.Node(t, s, dbtest.Active())
	holds := func() bool {
		root, err := s.HoldsRootTenant(t.Context(), n.ID)
		require.NoError(t, err)
		return root
	}
	alter := func(sql string) {
		_, err := s.DBTX().Exec(t.Context(), sql, n.ID)
		require.NoError(t, err)
	}
	a := dbtest.Occupy(t, s, n.ID)
	alter("UPDATE skus SET tenant_root = false WHERE id = (SELECT sku_id FROM allocations WHERE node_id = $1)")
	require.False(t, holds(), "the tenant who is on it is not root")
	dbtest.EndTenancy(t, s, a.ID)
	require.False(t, holds(), "the tenant who left it was not root")
	in(t, s, func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), n.ID, time.Now().Add(time.Minute)) })
	require.False(t, holds(), "it is proven clean")

	alter("UPDATE nodes SET tenant_left_at = now() WHERE id = $1") // as the reconciler does after a restore
	require.True(t, holds(), "somebody else left it since")
	in(t, s, func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), n.ID, time.Now().Add(time.Minute)) })
	require.False(t, holds())
	dbtest.Occupy(t, s, n.ID)
	alter("UPDATE nodes SET tenant_left_at = now() WHERE id = $1")
	alter("UPDATE skus SET tenant_root = false WHERE id IN (SELECT sku_id FROM allocations WHERE node_id = $1)")
	require.True(t, holds(), "what another one left is there beside the tenant")
}

// TestARetiredNodeThatATenantLeft may be reactivated under its identity, which leads to offline and
// no further. Deleted it is nobody's.
func TestARetiredNodeThatATenantLeft(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeRetired))
	left(t, s, n.ID)
	move := func(id string, tr lifecycle.Transition[lifecycle.NodeStatus], owner lifecycle.Owner) (db.Node, error) {
		return do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
			return tx.TransitionNode(ctx, id, tr, tr.Needs, db.Actor{Owner: owner})
		})
	}
	now, err := move(n.ID, lifecycle.NodeReactivate, lifecycle.OwnerAdmin)
	require.NoError(t, err)
	require.NotNil(t, now.TenantLeftAt)
	_, err = move(n.ID, lifecycle.NodeComeBack, lifecycle.OwnerHeartbeat)
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition)

	gone := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeRemoving))
	machine := db.NodeMachine{Serial: "SN-1", MACs: []string{"02:00:00:00:09:98"}}
	require.NoError(t, s.SetNodeMachine(t.Context(), gone.ID, machine))
	left(t, s, gone.ID)
	_, err = move(gone.ID, lifecycle.NodeDelete, lifecycle.OwnerDecommission)
	require.NoError(t, err)
	now, err = s.Node(t.Context(), gone.ID)
	require.NoError(t, err)
	require.NotNil(t, now.TenantLeftAt)

	// The machine comes back as another node: his disks are in it.
	again := dbtest.Node(t, s)
	require.NoError(t, s.SetNodeMachine(t.Context(), again.ID, machine))
	now, err = s.Node(t.Context(), again.ID)
	require.NoError(t, err)
	require.NotNil(t, now.TenantLeftAt)
	other := dbtest.Node(t, s)
	require.NoError(t, s.SetNodeMachine(t.Context(), other.ID, db.NodeMachine{Serial: "another", MACs: []string{"02:00:00:00:09:99"}}))
	now, err = s.Node(t.Context(), other.ID)
	require.NoError(t, err)
	require.Nil(t, now.TenantLeftAt)
}

// TestATenantsDisksDoNotMove into other hardware; with new disks what the tenant
// left stays behind.
func TestATenantsDisksDoNotMove(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(950), lifecycle.NodeActive)
	j, err := begin(t, s, n.ID, lifecycle.ModeMigrate)
	require.NoError(t, err)
	plan := func(disks string) error {
		_, err := do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
			now, err := tx.Node(ctx, n.ID)
			if err != nil {
				return now, err
			}
			return tx.PlanHardware(ctx, n.ID, now.Version, db.PlannedHardware{MACs: []string{mac(951)}, Disks: disks}, pxeAdmin)
		})
		return err
	}
	apply := func() error {
		_, err := do(t, s, func(ctx context.Context, tx *db.Tx) (db.PlannedHardware, error) {
			return tx.ApplyHardware(ctx, n.ID, j.ID, db.Actor{Owner: lifecycle.OwnerDecommission, ID: j.ID})
		})
		return err
	}
	require.NoError(t, plan(db.DisksMoved), "nobody was ever on it")
	tenant := dbtest.Occupy(t, s, n.ID)
	conflict(t, plan(db.DisksMoved), "tenant", n.ID)
	dbtest.EndTenancy(t, s, tenant.ID)
	conflict(t, plan(db.DisksMoved), "tenant", n.ID)
	conflict(t, apply(), "tenant", n.ID)
	require.NoError(t, plan(db.DisksNew))
	require.NoError(t, apply())
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Nil(t, now.TenantLeftAt)
}
