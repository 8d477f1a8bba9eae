package chaos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/stack"
)

// keptNode is a node in service that a case has left.
func keptNode(t *testing.T, s *db.Store, sims *stack.Sims, name string) *Target {
	t.Helper()
	hw := simhw.GPUServer("Dell", len(sims.Nodes))
	hw.ID = name
	m := simhw.NewMachine(t.Context(), simhw.NewClock(1), hw)
	n, err := simnode.New(simnode.Options{Machine: m, Dir: filepath.Join(t.TempDir(), name), AgentBinary: "none"})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(n.Root(), 0o700))
	for _, d := range hw.Disks {
		require.NoError(t, n.WriteSystem(d)) // a machine that never ran has no disks
	}
	sims.Nodes[name] = n
	target := &Target{
		Stack: &stack.Stack{Sims: sims}, Store: s, Machine: m, NodeID: dbtest.Node(t, s, dbtest.Active()).ID, Job: db.Job{ID: "job_of_" + name}, log: newMachineLog(m),
	}
	t.Cleanup(target.leave)
	return target
}

// TestTakeClean_BlamesTheCaseThatLeftTheNode: no case gets a node with anything of a former tenant,
// and what is found names the tenant, and the job of the case that left it.
func TestTakeClean_BlamesTheCaseThatLeftTheNode(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	sims := &stack.Sims{Nodes: map[string]*simnode.Node{}}
	hidden, keyed, marked, occupied, good := keptNode(t, s, sims, "hidden"), keptNode(t, s, sims, "keyed"), keptNode(t, s, sims, "marked"),
		keptNode(t, s, sims, "occupied"), keptNode(t, s, sims, "good")
	require.NoError(t, hidden.leaveData("alloc_former", "as root", func() error { return hidden.node().Plant("sshd") }))
	keys := filepath.Join(keyed.node().Root(), "home/alloc/.ssh")
	require.NoError(t, os.MkdirAll(keys, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(keys, "authorized_keys"), []byte(simnode.TenantKey+"\n"), 0o600))
	left := dbtest.Occupy(t, s, marked.NodeID)
	dbtest.EndTenancy(t, s, left.ID)
	there := dbtest.Occupy(t, s, occupied.NodeID)

	e := &environment{store: s, pool: map[lifecycle.NodeStatus][]*Target{lifecycle.NodeActive: {hidden, keyed, marked, occupied, good}}}
	got, err := e.takeClean(t.Context(), lifecycle.NodeActive)
	require.NoError(t, err)
	require.Same(t, good, got)
	got, err = e.takeClean(t.Context(), lifecycle.NodeActive)
	require.NoError(t, err)
	require.Nil(t, got, "none is left")
	require.Len(t, e.uncleanNodes, 4)
	for i, want := range []struct {
		of    *Target
		texts []string
	}{
		{hidden, []string{"/usr/sbin/sshd (of alloc_former)", "tenant alloc_former leaves data, as root", hidden.NodeID, "machine hidden"}},
		{keyed, []string{"/home/alloc/.ssh/authorized_keys"}},
		{marked, []string{"a tenant left it at", "tenant " + left.ID + " came, root", "tenant " + left.ID + " left: released"}},
		{occupied, []string{"it has allocation " + there.ID}},
	} {
		require.Equal(t, want.of.Job.ID, e.uncleanNodes[i].whose)
		for _, text := range want.texts {
			require.Contains(t, e.uncleanNodes[i].text, text)
		}
	}
}

// TestFreeUnclean_FindsFreeNodesAtTheEnd: a node that is free when a run ends holds nothing either.
// A node that nobody gets may hold something.
func TestFreeUnclean_FindsFreeNodesAtTheEnd(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	sims := &stack.Sims{Nodes: map[string]*simnode.Node{}}
	free, left, good := keptNode(t, s, sims, "free"), keptNode(t, s, sims, "left"), keptNode(t, s, sims, "good")
	e := &environment{store: s}
	for _, target := range []*Target{free, left, good} {
		e.targets.Store(target.Job.ID, target)
	}
	for _, target := range []*Target{free, left} {
		require.NoError(t, target.leaveData("alloc_former", "on disks", target.node().Fill))
	}
	dbtest.EndTenancy(t, s, dbtest.Occupy(t, s, left.NodeID).ID)
	found, err := e.freeUnclean(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, free.NodeID, found[0].whose)
	require.Contains(t, found[0].text, "/dev/nvme0n1 (of alloc_former)")
}
