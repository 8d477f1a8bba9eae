package nodeaction_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func accept(t *testing.T, store *db.Store, nodeID string, action lifecycle.NodeAction, version int64) (r nodeaction.Result, err error) {
	t.Helper()
	info, ok := lifecycle.NodeActionOf(action)
	require.True(t, ok)
	err = store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		r, err = nodeaction.Accept(t.Context(), tx, nodeaction.Request{
			NodeID: nodeID, Action: info, Reason: "fan 3", GraceSeconds: 5, Version: version,
		}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	return r, err
}

// TestAccept_Refuses asks for what the node, its job or its version does not allow.
func TestAccept_Refuses(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	busy := dbtest.Job(t, store, dbtest.Active(), dbtest.Kind("agent_update"))
	for name, c := range map[string]struct {
		node     string
		action   lifecycle.NodeAction
		kind     intent.Kind
		existing string
		detail   string
	}{
		"another job holds it":   {*busy.NodeID, lifecycle.NodeActionRetire, intent.LiveJob, busy.ID, "then retire"},
		"not retired":            {dbtest.Node(t, store, dbtest.Active()).ID, lifecycle.NodeActionRemove, intent.ActionRefused, "", "retire it first"},
		"gone":                   {dbtest.Node(t, store, dbtest.Status(lifecycle.NodeDeleted)).ID, lifecycle.NodeActionDrain, intent.ActionRefused, "", "never comes back"},
		"boots from the network": {dbtest.PXENode(t, store, "02:00:00:00:00:01", lifecycle.NodeActive).ID, lifecycle.NodeActionDrain, intent.ActionRefused, "", "set its state"},
	} {
		_, err := accept(t, store, c.node, c.action, 0)
		refusal := intent.AsRefusal(err)
		require.NotNil(t, refusal, "%s: %v", name, err)
		require.Equal(t, []any{c.kind, c.existing}, []any{refusal.Kind, refusal.Existing}, name)
		require.Contains(t, refusal.Detail, c.detail, name)
		require.NotContains(t, refusal.Allowed, string(c.action), name)
	}
	n := dbtest.Node(t, store, dbtest.Active())
	_, err := accept(t, store, n.ID, lifecycle.NodeActionRetire, n.Version+1)
	require.ErrorIs(t, err, db.ErrStale)
}

// TestAccept_RepeatedRequestChangesNothing repeats requests with the version that they were first
// made for: a client that got no answer does not know that there is another.
func TestAccept_RepeatedRequestChangesNothing(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	started, err := accept(t, store, n.ID, lifecycle.NodeActionRetire, n.Version)
	require.NoError(t, err)
	require.Equal(t, []any{nodeaction.EffectStarted, lifecycle.NodeDraining}, []any{started.Effect, started.Node.Status})
	job, err := store.Job(t.Context(), started.JobID)
	require.NoError(t, err)
	var in contract.DecommissionInput
	require.NoError(t, json.Unmarshal(job.Input, &in))
	require.Equal(t, []any{lifecycle.ModeRetire, "fan 3", 5, lifecycle.NodeActive}, []any{in.Mode, in.Reason, in.GraceSeconds, in.From})
	again, err := accept(t, store, n.ID, lifecycle.NodeActionRetire, n.Version)
	require.NoError(t, err)
	require.Equal(t, []any{nodeaction.EffectNoop, started.JobID, started.Node.Version}, []any{again.Effect, again.JobID, again.Node.Version})
	_, err = accept(t, store, n.ID, lifecycle.NodeActionDrain, 0) // another mode is not what the job does
	require.Equal(t, intent.LiveJob, intent.AsRefusal(err).Kind)

	q := dbtest.Node(t, store, dbtest.Active())
	moved, err := accept(t, store, q.ID, lifecycle.NodeActionQuarantine, q.Version)
	require.NoError(t, err)
	require.Equal(t, nodeaction.EffectMoved, moved.Effect)
	again, err = accept(t, store, q.ID, lifecycle.NodeActionQuarantine, q.Version)
	require.NoError(t, err)
	require.Equal(t, []any{nodeaction.EffectNoop, moved.Node.Version}, []any{again.Effect, again.Node.Version})
}
