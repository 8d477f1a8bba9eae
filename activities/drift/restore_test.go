package drift_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// markFor marks the machine in MAAS for an allocation, "" for none.
func (w *world) markFor(allocation string) {
	w.t.Helper()
	require.NoError(w.t, w.maas.SetWorkloadAnnotations(w.t.Context(), w.id, map[string]string{lifecycle.MAASAllocationMark: allocation}))
}

// claimed is a node whose tenant a restored database has forgotten, or a free one.
type claimed struct {
	mark   string  // what MAAS has
	agent  *string // what its agent says; nil does not say
	silent bool    // its agent was last heard before the restore
}

// restore says of the database that it was restored from a backup.
func (w *world) restore() {
	w.t.Helper()
	planned, err := w.store.PlanEndOfAccess(w.t.Context())
	require.NoError(w.t, err)
	_, err = w.store.EndRestoredAccess(w.t.Context(), planned.Hash)
	require.NoError(w.t, err)
}

// claimAll has many clients claim nodes of the world's SKU at once. It returns who got each node.
func (w *world) claimAll(clients int) map[string][]string {
	w.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string][]string{}
	by := db.Actor{Owner: lifecycle.OwnerCustomer, ID: "test"}
	for range clients {
		project := dbtest.Project(w.t, w.store)
		wg.Go(func() {
			err := w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
				a, err := allocationdb.Create(w.t.Context(), tx, allocationdb.New{ProjectID: project.ID, SKUID: *w.node.SKUID, RequestedBy: "test", Actor: by})
				if err != nil {
					return err
				}
				a, found, err := allocationdb.Claim(w.t.Context(), tx, a.ID, by)
				if err == nil && found {
					mu.Lock()
					out[*a.NodeID] = append(out[*a.NodeID], a.ID)
					mu.Unlock()
				}
				return err
			})
			if err != nil {
				w.t.Error(err)
			}
		})
	}
	wg.Wait()
	return out
}

// TestRestore_YesterdaysDatabase restores a backup of before four tenants came, under their feet:
// the database has their nodes as free. No claim takes one of them, whichever of MAAS and the agent
// says so, and free nodes are claimed again once both have said that they are free.
func TestRestore_YesterdaysDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, none := "alc_of_today", ""
	fleet := []claimed{
		{mark: tenant, agent: &tenant},
		{mark: tenant, agent: &none}, // the agent of a root tenant lies
		{agent: &tenant},             // the mark is lost
		{mark: tenant, silent: true}, // the tenant has stopped the agent
		{agent: &none}, {agent: &none}, {agent: &none},
		{}, // an agent of before says nothing
	}
	nodes := make([]db.Node, len(fleet))
	heartbeats := func() {
		for i, c := range fleet {
			w.recordHeartbeatOf(nodes[i].ID, "boot-of-"+nodes[i].ID, func(b *db.Heartbeat) {
				if b.Allocation = c.agent; c.silent {
					b.ReceivedAt = w.now().Add(-24 * time.Hour)
				}
			})
		}
		w.recordHeartbeat(func(b *db.Heartbeat) { b.Allocation = &none })
	}
	for i := range fleet {
		nodes[i] = dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
		w.sql("UPDATE nodes SET maas_system_id = $2 WHERE id = $1", nodes[i].ID, fmt.Sprintf("copy%02d", i))
	}
	list := func() {
		w.front.says(func(all []map[string]any) []map[string]any {
			out := slices.Clone(all)
			for i, c := range fleet {
				m := maps.Clone(all[0])
				m["system_id"], m["hostname"], m["fqdn"] = fmt.Sprintf("copy%02d", i), nodes[i].Hostname, nodes[i].Hostname+".maas"
				m["workload_annotations"] = map[string]any{"slipway-job": mark, lifecycle.MAASAllocationMark: c.mark}
				out = append(out, m)
			}
			return out
		})
	}
	w.restore()
	heartbeats()
	require.Empty(t, w.claimAll(16), "nothing is claimed before anybody was asked")

	list()
	w.pass()
	heartbeats()
	got := w.claimAll(32)
	want := []string{nodes[4].ID, nodes[5].ID, nodes[6].ID, w.node.ID}
	slices.Sort(want)
	require.Equal(t, want, slices.Sorted(maps.Keys(got)), "those of which both say that they are free")
	for id, who := range got {
		require.Len(t, who, 1, id)
	}
	open := w.open()
	require.Contains(t, open, lifecycle.DriftMAASOccupant)
	require.Contains(t, open, lifecycle.DriftAgentOccupant)
	rows, err := w.store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionRestore}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 2, "one line for all nodes and one for all BMCs")
	require.True(t, strings.HasPrefix(rows[0].Message, "5 nodes have not agreed"), rows[0].Message)
	require.True(t, strings.HasPrefix(rows[1].Message, "the stored login is older than the restore"), rows[1].Message)

	// The first tenant's node is cleaned, so that MAAS and the agent forget him.
	fleet[0] = claimed{agent: &none}
	heartbeats()
	list()
	w.pass()
	require.Equal(t, []string{nodes[0].ID}, slices.Sorted(maps.Keys(w.claimAll(8))))
	for _, n := range nodes[1:4] { // seen twice
		root, err := w.store.HoldsRootTenant(t.Context(), n.ID)
		require.NoError(t, err)
		require.True(t, root, "what its system says proves nothing")
	}

	// MAAS has a tenant of today on a node that the database gives to another one.
	held := func(i int) (string, bool) {
		a, err := allocationdb.Get(t.Context(), w.store, got[nodes[i].ID][0])
		require.NoError(t, err)
		by, unread, err := allocationdb.HeldForAnother(t.Context(), w.store, a)
		require.NoError(t, err)
		return by, unread
	}
	fleet[4].mark = tenant
	heartbeats()
	list()
	w.pass()
	by, unread := held(4)
	require.Equal(t, tenant, by)
	require.False(t, unread)
	by, unread = held(5)
	require.Empty(t, by)
	require.False(t, unread)

	// Another restore asks all of them again.
	for _, who := range got {
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := allocationdb.Fail(t.Context(), tx, who[0], lifecycle.FailureProvision, "", db.Actor{Owner: lifecycle.OwnerJob})
			return err
		}))
	}
	w.restore()
	require.Empty(t, w.claimAll(8))
	by, unread = held(5)
	require.Empty(t, by)
	require.True(t, unread, "nothing has looked since")
}

// TestRestore_GivenBackSince restores a backup of before a tenant gave his node back: the database
// has him on it and charges him. The agent's word ends no charge, since a tenant who is root could
// say so. MAAS's does, in the second pass, and an operator is told.
func TestRestore_GivenBackSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := dbtest.Occupy(t, w.store, w.node.ID)
	charged := func() (running bool) {
		require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT end_time IS NULL FROM usage_records WHERE allocation_id = $1", a.ID).Scan(&running))
		return running
	}
	none := ""
	passes := func(n int) {
		for range n {
			w.recordHeartbeat(func(b *db.Heartbeat) { b.Allocation = &none })
			w.pass()
		}
	}
	passes(2)
	require.Empty(t, w.open(), "a mark that is missing says nothing before a restore")

	w.markFor(a.ID)
	w.restore()
	passes(3)
	require.Equal(t, []string{lifecycle.DriftAgentOccupant}, w.open())
	require.True(t, charged(), "the tenant's agent may lie")

	w.markFor("")
	passes(1)
	require.Contains(t, w.open(), lifecycle.DriftMAASOccupant)
	require.True(t, charged(), "one pass may have read in between")
	passes(2)
	require.False(t, charged())
	rows, err := w.store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionDrift}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(rows, func(r db.Attention) bool {
		return r.NodeID == w.node.ID && strings.Contains(r.Message, "MAAS has the machine marked for nobody, and the database says allocation "+a.ID)
	}), "%+v", rows)
	audit, err := w.store.ResourceTimeline(t.Context(), lifecycle.Allocation.Resource, a.ID, 0, 100)
	require.NoError(t, err)
	caps := slices.DeleteFunc(audit, func(r db.AuditRow) bool { return r.Name != "cap_charge" })
	require.Len(t, caps, 1, "the charge is capped once")
}

// TestRestore_BoundsChargesThatEnd: after a restore the marks of a whole fleet are gone in MAAS. No
// charge ends before an operator has decided; few end by themselves, within each hour.
func TestRestore_BoundsChargesThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const fleet = 60
	for range fleet {
		node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(w.site.ID), dbtest.Of(*w.node.SKUID))
		dbtest.Occupy(t, w.store, node.ID)
	}
	w.restore()
	w.pass()
	p := w.last
	w.sql("UPDATE drift_findings SET version = version + 1, status = 'closed', closed_at = now(), outcome = 'not of this test' WHERE status = 'open'")
	// The findings of the region's list: one list of sixty machines is not needed for them.
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftMAASOccupant)
	observe := func() {
		rows, err := w.store.DBTX().Query(t.Context(), "SELECT node_id, id FROM allocations WHERE status = 'active' ORDER BY id")
		require.NoError(t, err)
		var seen []driftdb.Observation
		var node, id string
		_, err = pgx.ForEachRow(rows, []any{&node, &id}, func() error {
			seen = append(seen, driftdb.Observation{Detector: d, Subject: node, NodeID: node, Key: "none/" + id, Message: "MAAS has it for nobody", Evidence: map[string]any{"held_for": "", "occupant": id}})
			return nil
		})
		require.NoError(t, err)
		_, err = driftdb.ObserveFindings(t.Context(), w.store, w.site.ID, seen)
		require.NoError(t, err)
	}
	charged := func() (n int) {
		require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM usage_records WHERE end_time IS NULL").Scan(&n))
		return n
	}
	observe()
	r, err := w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Empty(t, r.Capped, "once seen is not enough")
	w.sql("UPDATE drift_findings SET streak = 2")
	r, err = w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Empty(t, r.Capped, "sixty of sixty are no tenants who left")
	require.EqualValues(t, fleet, r.Uncapped)
	f := w.finding(lifecycle.DriftChargeBreaker)
	require.JSONEq(t, `{"limit": 3, "capped": 0, "waiting": 60}`, string(f.Evidence))
	rows, err := w.store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionDrift}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(rows, func(a db.Attention) bool {
		return strings.Contains(a.Message, "60 allocations") && strings.Contains(a.Message, "3 charges")
	}))
	require.Equal(t, fleet, charged())

	// An operator ignores all but two: these are few enough.
	const ignoreAllBut = "UPDATE drift_findings SET version = version + 1, status = 'ignored' WHERE status = 'open' AND detector = $1 AND id NOT IN (SELECT id FROM drift_findings WHERE status = 'open' AND detector = $1 ORDER BY id LIMIT $2)"
	w.sql(ignoreAllBut, lifecycle.DriftMAASOccupant, 2)
	again, err := w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, again.Capped, 2)
	require.Equal(t, fleet-2, charged())
	require.NotContains(t, w.open(), lifecycle.DriftChargeBreaker)
	w.sql("UPDATE drift_findings SET version = version + 1, status = 'open' WHERE id IN (SELECT id FROM drift_findings WHERE status = 'ignored' ORDER BY id LIMIT 2)")
	again, err = w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Empty(t, again.Capped, "four within the hour are more than three")
	require.EqualValues(t, 2, again.Uncapped)

	// The hour counts from the end of the charge, and not from what was written to the allocation
	// since.
	w.sql("SET session_replication_role = replica; UPDATE audit_log SET at = at - interval '61 minutes' WHERE name = 'cap_charge'; UPDATE allocations SET updated_at = now()")
	again, err = w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, again.Capped, 2)
	require.Equal(t, fleet-4, charged())
	w.sql("UPDATE drift_findings SET version = version + 1, status = 'closed', closed_at = now(), outcome = 'they agree' WHERE detector = $1", lifecycle.DriftMAASOccupant)
	_, err = w.acts.QuarantineDrifted(t.Context(), p)
	require.NoError(t, err)
	require.NotContains(t, w.open(), lifecycle.DriftChargeBreaker)
}
