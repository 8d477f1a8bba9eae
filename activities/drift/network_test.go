package drift_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// probes lists the network probes that a node's agent was asked for, newest first.
func (w *world) probes(nodeID string) []db.NodeTask {
	w.t.Helper()
	all, err := w.store.ListTasks(w.t.Context(), db.TaskFilter{NodeID: nodeID, Kind: lifecycle.TaskKindProbeNetwork}, "", 100)
	require.NoError(w.t, err)
	return all
}

// answerProbe has the node's agent do the newest probe that it was asked for, or that one once
// more, with the targets that are open.
func (w *world) answerProbe(open ...string) {
	w.t.Helper()
	asked := w.probes(w.node.ID)
	require.NotEmpty(w.t, asked)
	var args spec.ProbeNetworkArgs
	require.NoError(w.t, json.Unmarshal(asked[0].Args, &args))
	if lifecycle.NodeTask.Terminal(asked[0].Status) {
		require.NoError(w.t, driftdb.AskProbe(w.t.Context(), w.store, w.node.ID, time.Now().UnixNano(), args, db.Actor{Owner: lifecycle.OwnerReconciler}))
	}
	w.endProbe(spec.ProbeNetworkResult{Tried: len(args.Targets), Open: open})
}

// endProbe takes the task that is queued and ends it as the agent does.
func (w *world) endProbe(result spec.ProbeNetworkResult) {
	w.t.Helper()
	out, err := json.Marshal(result)
	require.NoError(w.t, err)
	got, err := w.store.ClaimTask(w.t.Context(), db.TaskClaim{NodeID: w.node.ID, BootID: "boot-1", Generation: 1, Lease: time.Minute})
	require.NoError(w.t, err)
	require.NotNil(w.t, got.Task)
	_, err = w.store.FinishTask(w.t.Context(), db.TaskFence{NodeID: w.node.ID, TaskID: got.Task.ID, LeaseID: got.Task.LeaseID, Attempt: got.Task.Attempt},
		lifecycle.TaskResult{OK: true, BootID: "boot-1", Output: out})
	require.NoError(w.t, err)
}

// targets are those of the newest probe of a node, by name.
func (w *world) targets(nodeID string) map[string]string {
	w.t.Helper()
	var args spec.ProbeNetworkArgs
	require.NoError(w.t, json.Unmarshal(w.probes(nodeID)[0].Args, &args))
	out := map[string]string{}
	for _, t := range args.Targets {
		out[t.Name] = t.Address
	}
	return out
}

// TestNetworks_WhoIsAsked: a pass has nodes in service try the control plane, MAAS, BMCs and other
// nodes. The node of a tenant who is root is not told where they are, and a node is asked again
// only after a while.
func TestNetworks_WhoIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Len(t, w.probes(w.node.ID), 1, "two passes have asked once")
	got := w.targets(w.node.ID)
	require.Equal(t, "10.0.0.1:5432", got["postgres"])
	require.Equal(t, strings.TrimPrefix(w.front.url, "http://"), got["maas"])
	require.Equal(t, strings.TrimPrefix(strings.TrimSuffix(w.rec.Address, "/"), "https://"), got["bmc "+w.rec.ID])

	silent := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	free := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	root := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	dbtest.Occupy(t, w.store, root.ID)
	left := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
	w.sql("UPDATE nodes SET tenant_left_at = now() WHERE id = $1", left.ID)
	for i, n := range []db.Node{free, root, left} {
		w.recordHeartbeatOf(n.ID, "boot-of-"+n.ID, nil)
		w.sql("UPDATE nodes SET ip_addresses = ARRAY[$2] WHERE id = $1", n.ID, []string{"10.2.0.1", "10.2.0.2", "10.2.0.3"}[i])
	}
	w.recordHeartbeat(nil)
	r := w.pass()
	require.Equal(t, 1, r.Networks.Asked, "the free one")
	got = w.targets(free.ID)
	require.Equal(t, "10.2.0.2:22", got["node "+root.ID])
	require.NotContains(t, got, "node "+free.ID, "it is itself")
	for _, n := range []db.Node{silent, root, left} {
		require.Empty(t, w.probes(n.ID), n.ID)
	}

	w.acts.Network.Allowed = []string{"maas", "bmc"}
	w.answerProbe()
	w.acts.Policy.NetworkEvery = 1000 * time.Hour // the region's time is ahead of the database's
	w.recordHeartbeat(nil)
	require.Zero(t, w.pass().Networks.Asked, "it was asked a moment ago")
	w.acts.Policy.NetworkEvery = -time.Hour // as if it was long ago
	w.recordHeartbeat(nil)
	require.Equal(t, 1, w.pass().Networks.Asked, "the other one has not answered yet")
	got = w.targets(w.node.ID)
	require.Contains(t, got, "postgres")
	require.NotContains(t, got, "maas", "the operator allows it")
	require.NotContains(t, got, "bmc "+w.rec.ID)
}

// TestNetworks_OpenNodeIsNotClaimed: whatever answers on the node's network keeps the node from
// tenants, and names itself in the attention list, until it is closed or an operator ignores it.
func TestNetworks_OpenNodeIsNotClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bmc := "bmc " + w.rec.ID
	again := func() {
		w.acts.Policy.NetworkEvery = -time.Hour
		w.recordHeartbeat(nil)
		w.pass()
	}
	w.answerProbe(bmc)
	w.recordHeartbeat(nil)
	w.pass()
	require.Equal(t, []string{lifecycle.DriftNetworkOpen}, w.open())
	require.Empty(t, w.claimAll(4))
	rows, err := w.store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionDrift}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(rows, func(r db.Attention) bool { return r.NodeID == w.node.ID && strings.Contains(r.Message, bmc) }), "%v", rows)

	// It is tried again although the draw of the next passes may leave it out, and a node that
	// answers for less than it was asked clears nothing.
	again()
	require.Contains(t, w.targets(w.node.ID), bmc)
	w.endProbe(spec.ProbeNetworkResult{Tried: 1})
	w.recordHeartbeat(nil)
	w.acts.Policy.NetworkEvery = 1000 * time.Hour
	w.pass()
	require.Equal(t, []string{lifecycle.DriftNetworkOpen}, w.open())
	require.Empty(t, w.claimAll(2))

	again()
	w.answerProbe()
	w.recordHeartbeat(nil)
	w.pass()
	require.Empty(t, w.open())
	require.Len(t, w.claimAll(2), 1)
}

// TestNetworks_IgnoredIsClaimed: an operator who ignores the finding has decided.
func TestNetworks_IgnoredIsClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answerProbe("postgres")
	w.recordHeartbeat(nil)
	w.pass()
	require.Empty(t, w.claimAll(2))
	_, err := w.act(w.finding(lifecycle.DriftNetworkOpen).ID, lifecycle.DriftIgnore)
	require.NoError(t, err)
	require.Len(t, w.claimAll(2), 1)
}
