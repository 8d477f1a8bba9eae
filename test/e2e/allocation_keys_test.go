package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// keyOf returns the key of an allocation that a member has.
func (w *world) keyOf(t *testing.T, id string, m *stack.Tenant) allocationdb.Key {
	t.Helper()
	keys, err := allocationdb.ListKeys(t.Context(), w.App.Store, id)
	require.NoError(t, err)
	for _, k := range keys {
		if k.Fingerprint == m.Key.Fingerprint {
			return k
		}
	}
	require.FailNow(t, "the allocation has no such key")
	return allocationdb.Key{}
}

// TestAllocation_RemovedMember removes a member whose key is on a node: the node refuses it from
// then on, and takes the others'. An agent that answers OK and does nothing is found out, and a key
// that is put in by a member is accepted.
func TestAllocation_RemovedMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	var m *simhw.Machine
	for m = range w.activeNodes(t) {
	}
	node, store := w.Sims.Nodes[m.Spec().ID], w.App.Store
	anna := w.newTenant(t)
	bob, err := anna.AddMember(t.Context(), store, "bob")
	require.NoError(t, err)
	got := anna.allocate(t)
	active := w.becomes(t, got.Allocation.ID, got.Job.ID, lifecycle.AllocationActive)
	admits := func(who *stack.Tenant) bool {
		_, err := who.Run(t.Context(), active.Connection, "id -u")
		return err == nil
	}
	require.True(t, admits(anna.Tenant))
	require.True(t, admits(bob))

	began := time.Now()
	require.NoError(t, bob.Leave(t.Context(), store))
	require.Eventually(t, func() bool { return w.keyOf(t, active.ID, bob).RefusedAt != nil }, runenv.Patience(time.Minute), 50*time.Millisecond)
	t.Logf("the node was seen to refuse the key %s after the member was removed", time.Since(began).Round(time.Millisecond))
	require.False(t, admits(bob))
	require.True(t, admits(anna.Tenant))
	require.Equal(t, bob.Member.ID, w.keyOf(t, active.ID, bob).WithdrawnMember)
	require.Equal(t, lifecycle.AllocationActive, w.allocation(t, active.ID).Status)
	document := func() string {
		raw, err := os.ReadFile(filepath.Join(node.Root(), metadata.Path))
		require.NoError(t, err)
		return string(raw)
	}
	w.withoutJob(t, active.ID)
	require.NotContains(t, document(), bob.Key.PublicKey)
	require.Contains(t, document(), anna.Key.PublicKey)

	carol, err := anna.AddMember(t.Context(), store, "carol")
	require.NoError(t, err)
	require.False(t, admits(carol), "a new key is on no node that is there already")
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := allocation.SetKeys(t.Context(), tx, active.ID, []string{anna.Key.ID, carol.Key.ID}, admin)
		return err
	}))
	require.Eventually(t, func() bool { return w.keyOf(t, active.ID, carol).AcceptedAt != nil }, runenv.Patience(time.Minute), 50*time.Millisecond)
	require.True(t, admits(carol))
	require.False(t, admits(bob))
	w.withoutJob(t, active.ID)

	// The agent answers OK, and the node lets her in as before.
	faults := node.Faults()
	faults.SSHKeepsAccess = true
	require.NoError(t, node.SetFaults(faults))
	require.NoError(t, carol.Leave(t.Context(), store))
	job, err := store.LiveJobOfResource(t.Context(), allocationdb.Resource, active.ID)
	require.NoError(t, err)
	ended := w.ends(t, job.ID, 6*time.Minute)
	require.Equal(t, lifecycle.JobCancelled, ended.Status, "it keeps nobody from the node")
	require.True(t, admits(carol))
	require.Nil(t, w.keyOf(t, active.ID, carol).RefusedAt, "what the agent says proves nothing")
	require.Eventually(t, func() bool {
		rows, err := store.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionKeys}, db.AttentionPlace{}, 10)
		return err == nil && len(rows) == 1
	}, runenv.Patience(2*time.Minute), 200*time.Millisecond, "operators are told")

	faults.SSHKeepsAccess = false
	require.NoError(t, node.SetFaults(faults))
	_, err = store.DBTX().Exec(t.Context(), "UPDATE allocation_keys SET tried_at = tried_at - $1::interval", allocationdb.KeysAgain.String())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.keyOf(t, active.ID, carol).RefusedAt != nil }, runenv.Patience(2*time.Minute), 100*time.Millisecond, "the sweeper tries again")
	require.False(t, admits(carol))
	require.True(t, admits(anna.Tenant))
}

// withoutJob waits until an allocation has no live job.
func (w *world) withoutJob(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		jobs, err := w.App.Store.LiveJobsOfResources(t.Context(), allocationdb.Resource, []string{id})
		return err == nil && len(jobs) == 0
	}, runenv.Patience(time.Minute), 50*time.Millisecond)
}
