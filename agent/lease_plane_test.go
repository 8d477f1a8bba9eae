package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The lease tests of issue 4, with the real agent, the real agent API and its
// database: whatever breaks, effects are made once and no node changes its state
// because a lease ended.

func argsOf(kind lifecycle.TaskKind) string {
	return map[lifecycle.TaskKind]string{lifecycle.TaskKindDrain: `{"grace_seconds":0}`, lifecycle.TaskKindScrub: `{"run_id":"r"}`}[kind]
}

// settles does what the worker's relay does with leases that ended, until the
// test ends.
func (p *realPlane) settles() {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if _, err := p.store.SettleTasks(p.Context(), 10); err != nil && p.Context().Err() == nil {
					p.Error(err)
				}
			}
		}
	}()
	p.Cleanup(func() { close(over); <-ended })
}

// untouched: the node is as active as it was, and no row of its tasks is outside
// the audit chain.
func (p *realPlane) untouched(ids ...string) {
	p.Helper()
	n, err := p.store.Node(p.Context(), p.id)
	require.NoError(p, err)
	require.Equal(p, lifecycle.NodeActive, n.Status)
	require.Equal(p, p.moves, p.transitions(), "nothing has moved the node")
	for _, id := range ids {
		broken, err := p.store.VerifyAudit(p.Context(), "node_task", id)
		require.NoError(p, err)
		require.Zero(p, broken)
	}
}

// transitions counts the moves of the node.
func (p *realPlane) transitions() (n int) {
	p.Helper()
	all, err := p.store.ResourceTimeline(p.Context(), "node", p.id, 0, 100)
	require.NoError(p, err)
	for _, e := range all {
		if e.Kind == db.EntryTransition {
			n++
		}
	}
	return n
}

// noted reports that the agent spoke of a task that was settled without it.
func (p *realPlane) noted(id string) bool {
	p.Helper()
	all, err := p.store.ResourceTimeline(p.Context(), lifecycle.NodeTask.Resource, id, 0, 100)
	require.NoError(p, err)
	return slices.ContainsFunc(all, func(e db.AuditRow) bool { return e.Name == "late_result" })
}

func (p *realPlane) requeue(id string) {
	p.Helper()
	require.NoError(p, p.store.Tx(p.Context(), func(tx *db.Tx) error {
		_, err := tx.RequeueTask(p.Context(), id, db.Actor{Owner: lifecycle.OwnerAdmin})
		return err
	}))
}

func TestAnAgentThatIsKilledAtEachStepOfATask(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, time.Second)
	p.settles()
	n := p.node
	n.process()
	var ids []string
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		for _, point := range []string{"before one", "after one", "before two", "after two", "before three", "after three"} {
			require.NoError(t, os.WriteFile(filepath.Join(n.cfg.Root, "kill-at"), []byte(point), 0o600))
			id := p.put(kind, string(kind)+point, argsOf(kind))
			ids = append(ids, id)
			if kind == lifecycle.TaskKindScrub { // nobody may repeat it by themselves
				require.Eventually(t, func() bool {
					got := p.task(id) // the lease may have ended before it was back
					return got.Status == lifecycle.TaskUncertain && (got.Result != nil || p.noted(id))
				}, runenv.Patience(30*time.Second), 10*time.Millisecond, "the journal of the agent that came back says so")
				p.untouched()
				p.requeue(id)
			}
			p.ends(id)
			require.Equal(t, lifecycle.TaskSucceeded, p.task(id).Status, "%s %s", kind, point)
			require.Empty(t, n.file("kill-at"), "it was killed")
		}
	}
	p.untouched(ids...)
	seen := map[string]bool{}
	for line := range strings.Lines(n.file("effects")) {
		require.False(t, seen[line], "%q was done twice", line)
		seen[line] = true
	}
	for _, id := range ids[:6] {
		for _, step := range []string{"one", "two", "three"} {
			require.True(t, seen[fmt.Sprintf("%s 0 %s\n", id, step)])
		}
	}
}

func TestANetworkThatIsCutForLongerThanTheRealLease(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			p := newRealPlane(t, 400*time.Millisecond)
			p.settles()
			g := newGate()
			p.node.with(g, kind)
			id := p.put(kind, "k", argsOf(kind))
			<-g.begun
			p.cut.Store(true)
			p.node.s.http.CloseClientConnections()
			want := lifecycle.TaskQueued
			if kind == lifecycle.TaskKindScrub {
				want = lifecycle.TaskUncertain
			}
			require.Eventually(t, func() bool { return p.task(id).Status == want }, runenv.Patience(20*time.Second), 10*time.Millisecond, "the lease is over")
			p.untouched(id)
			close(g.open)
			p.cut.Store(false)
			p.ends(id)
			require.Equal(t, lifecycle.TaskSucceeded, p.task(id).Status)
			require.Equal(t, []string{"two"}, g.ran, "once")
			p.untouched(id)
		})
	}
}

func TestTheOlderOfTwoInstallationsIsShutOut(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, 400*time.Millisecond)
	p.settles()
	held := newGate()
	p.node.with(held, lifecycle.TaskKindDrain)
	id := p.put(lifecycle.TaskKindDrain, "k", argsOf(lifecycle.TaskKindDrain))
	<-held.begun
	// The node was installed again, and its old disk still runs somewhere.
	newer := p.machine(p.node.s)
	next := newGate()
	close(next.open)
	newer.with(next, lifecycle.TaskKindDrain)
	p.ends(id)
	got := p.task(id)
	require.Equal(t, lifecycle.TaskSucceeded, got.Status)
	require.EqualValues(t, 2, got.Generation)
	require.Equal(t, []string{"two"}, next.ran)
	select { // it learns of the newer one when it renews its lease, if not by the lease's end
	case <-held.ended:
	case <-time.After(runenv.Patience(20 * time.Second)):
		require.Fail(t, runenv.Deadline+"the older one goes on")
	}
	close(held.open)
	second := p.ask(lifecycle.TaskKindDrain, "l", argsOf(lifecycle.TaskKindDrain))
	require.EqualValues(t, 2, second.Generation, "the older one is given nothing more")
	held.mu.Lock()
	defer held.mu.Unlock()
	require.Empty(t, held.ran, "and begins no further step")
	p.untouched(id, second.ID)
}

func TestARealServerThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, 5*time.Second)
	p.settles()
	g := newGate()
	p.node.with(g, lifecycle.TaskKindScrub) // one that nobody would repeat
	id := p.put(lifecycle.TaskKindScrub, "k", argsOf(lifecycle.TaskKindScrub))
	<-g.begun
	p.cut.Store(true)
	p.node.s.http.CloseClientConnections()
	p.shut()
	p.serve()
	p.cut.Store(false)
	close(g.open)
	p.ends(id)
	got := p.task(id)
	require.Equal(t, lifecycle.TaskSucceeded, got.Status)
	require.Equal(t, 1, got.Attempt, "the delivery outlives the server")
	require.Equal(t, []string{"two"}, g.ran)
	p.untouched(id)
}
