package agentapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// worker is a node with a journal: it makes the effect of a task once, keeps
// the result until it was taken, and forgets all else when it dies.
type worker struct {
	f       *field
	journal map[string]protocol.ResultRequest // by task: begun and done
	effects map[string]int
}

func newWorker(f *field) *worker {
	return &worker{f: f, journal: map[string]protocol.ResultRequest{}, effects: map[string]int{}}
}

// do makes the effect, unless the journal knows that it was made. A newer
// delivery of a task that is done is answered with the result that is kept.
func (w *worker) do(t protocol.Task) protocol.ResultRequest {
	r, known := w.journal[t.ID]
	if !known {
		w.effects[t.ID]++
		r = result(t)
	}
	r.LeaseID, r.Attempt = t.LeaseID, t.Attempt
	w.journal[t.ID] = r
	return r
}

func (w *worker) claim(in protocol.ClaimRequest) *protocol.Task {
	w.f.Helper()
	out := w.f.claim(in)
	if out.Task == nil {
		return nil
	}
	t := open(w.f.T, w.f.agent.cert.TaskKeys, out.Task)
	return &t
}

func (w *worker) send(r protocol.ResultRequest) (int, protocol.ResultResponse) {
	w.f.Helper()
	status, _, raw := w.f.agent.post(protocol.PathTaskResult, r)
	var out protocol.ResultResponse
	require.NoError(w.f, json.Unmarshal(raw, &out))
	return status, out
}

// settled sweeps until the task is in the state.
func (f *field) settled(id string, want lifecycle.TaskStatus) {
	f.Helper()
	require.Eventually(f, func() bool {
		_, err := f.db.SettleTasks(f.Context(), 10)
		require.NoError(f, err)
		return f.status(id) == want
	}, runenv.Patience(10*time.Second), 10*time.Millisecond)
}

func shortLease(c *agentapi.Config) { c.TaskLease = 300 * time.Millisecond }

// TestTask_AgentDiesAtEachStep: the effect is made once, the task ends, and
// the node's state is what it was.
func TestTask_AgentDiesAtEachStep(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(*worker, *protocol.Task){
		"before the claim is answered": func(*worker, *protocol.Task) {},
		"after the claim": func(w *worker, got *protocol.Task) {
			var out protocol.RenewTaskResponse
			w.f.agent.ok(protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: got.LeaseID, Attempt: got.Attempt}, &out)
		},
		"before the result": func(w *worker, got *protocol.Task) { w.do(*got) },
		"after the result was sent, and it sends it again": func(w *worker, got *protocol.Task) {
			status, _ := w.send(w.do(*got))
			require.Equal(w.f, http.StatusOK, status)
		},
	} {
		for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
			t.Run(name+" of "+string(kind), func(t *testing.T) {
				t.Parallel()
				f := newField(t, shortLease)
				node, err := f.db.Node(t.Context(), f.node)
				require.NoError(t, err)
				w := newWorker(f)
				made := f.enqueue(kind, "k")
				dies(w, w.claim(protocol.ClaimRequest{}))
				if f.status(made.ID) != lifecycle.TaskSucceeded {
					f.recover(w, made)
				} else {
					status, _ := w.send(w.journal[made.ID])
					require.Equal(t, http.StatusOK, status)
				}
				require.Equal(t, lifecycle.TaskSucceeded, f.status(made.ID))
				require.Equal(t, map[string]int{made.ID: 1}, w.effects, "once")
				after, err := f.db.Node(t.Context(), f.node)
				require.NoError(t, err)
				require.Equal(t, node.Status, after.Status)
				require.Equal(t, node.Version, after.Version)
			})
		}
	}
}

// recover brings a task whose agent died to its end, as kind and journal allow.
func (f *field) recover(w *worker, made db.NodeTask) {
	info, _ := lifecycle.TaskKindOf(made.Kind)
	if info.Redeliver {
		f.settled(made.ID, lifecycle.TaskQueued)
	} else {
		f.settled(made.ID, lifecycle.TaskUncertain)
		require.Nil(f, w.claim(protocol.ClaimRequest{}), "it is not handed out again by itself")
	}
	if kept, known := w.journal[made.ID]; known {
		status, out := w.send(kept)
		require.Equal(f, http.StatusOK, status)
		require.Equal(f, lifecycle.TaskSucceeded, out.Status)
		return
	}
	if !info.Redeliver { // an operator found that nothing was started
		require.NoError(f, f.db.Tx(f.Context(), func(tx *db.Tx) error {
			_, err := tx.RequeueTask(f.Context(), made.ID, db.Actor{Owner: lifecycle.OwnerAdmin})
			return err
		}))
	}
	got := w.claim(protocol.ClaimRequest{})
	require.NotNil(f, got)
	require.Equal(f, 2, got.Attempt)
	status, _ := w.send(w.do(*got))
	require.Equal(f, http.StatusOK, status)
}

func TestTask_NetworkCutBeyondLease(t *testing.T) {
	t.Parallel()
	f := newField(t, shortLease)
	w := newWorker(f)
	scrub := f.enqueue(lifecycle.TaskKindScrub, "s")
	got := w.claim(protocol.ClaimRequest{})
	kept := w.do(*got) // cut off, it works on
	f.settled(scrub.ID, lifecycle.TaskUncertain)
	f.agent.refused(409, protocol.ProblemLeaseLost, protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: got.LeaseID, Attempt: 1})
	require.Empty(t, f.claim(protocol.ClaimRequest{Unfinished: []string{got.ID}}).Dropped, "its result is still wanted")
	status, out := w.send(kept)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, lifecycle.TaskSucceeded, out.Status)

	drain := f.enqueue(lifecycle.TaskKindDrain, "d")
	first := w.claim(protocol.ClaimRequest{})
	f.settled(drain.ID, lifecycle.TaskQueued)
	second := w.claim(protocol.ClaimRequest{})
	f.agent.refused(409, protocol.ProblemLeaseLost, protocol.PathTaskResult, result(*first))
	status, _ = w.send(w.do(*second))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, lifecycle.TaskSucceeded, f.status(drain.ID))
}

// TestTask_TwoAgentsOneIdentity: a copied certificate gets no second delivery
// while the first holds, and when the node renews, the copy is shut out.
func TestTask_TwoAgentsOneIdentity(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.enqueue(lifecycle.TaskKindScrub, "a")
	f.enqueue(lifecycle.TaskKindDrain, "b")
	duplicate := f.with(f.agent.key, f.agent.cert)
	var mu sync.Mutex
	given := map[string]int{}
	var all sync.WaitGroup
	for _, a := range []*agent{f.agent, duplicate} {
		all.Go(func() {
			var out protocol.ClaimResponse
			a.ok(protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "boot-1", WaitSeconds: 0.3}, &out)
			if out.Task != nil {
				mu.Lock()
				defer mu.Unlock()
				given[open(t, a.cert.TaskKeys, out.Task).ID]++
			}
		})
	}
	all.Wait()
	require.Len(t, given, 1)
	for _, n := range given {
		require.Equal(t, 1, n)
	}
	waits, asked := make(chan int, 1), f.asked.Load()
	go func() {
		status, _, _ := duplicate.post(protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "boot-1", WaitSeconds: 30})
		waits <- status
	}()
	require.Eventually(t, func() bool { return f.asked.Load() > asked }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	key := newKey(t)
	var cert protocol.CertificateResponse
	f.agent.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, key)}, &cert)
	f.enqueue(lifecycle.TaskKindDrain, "c") // wakes the copy, whose certificate is checked again
	require.Equal(t, http.StatusForbidden, <-waits)
	f.agent.refused(403, protocol.ProblemSuperseded, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "boot-1"})
	for _, path := range []string{protocol.PathTaskRenew, protocol.PathTaskResult} {
		duplicate.refused(403, protocol.ProblemSuperseded, path, protocol.RenewTaskRequest{TaskID: "task_x", LeaseID: "l", Attempt: 1})
	}
	require.NoError(t, f.db.LockAgentIdentity(t.Context(), f.node, "copied"))
	f.with(key, cert).refused(403, protocol.ProblemLocked, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "boot-1"})
}

func TestTask_DeliveryOutlivesServer(t *testing.T) {
	t.Parallel()
	f := newField(t)
	made := f.enqueue(lifecycle.TaskKindScrub, "k")
	w := newWorker(f)
	got := w.claim(protocol.ClaimRequest{ClaimID: "c"})
	f.restart()
	again := w.claim(protocol.ClaimRequest{ClaimID: "c"})
	require.Equal(t, got.LeaseID, again.LeaseID, "an answer that was lost with the server is given again")
	var renewed protocol.RenewTaskResponse
	f.agent.ok(protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: got.LeaseID, Attempt: 1}, &renewed)
	key := newKey(t)
	var cert protocol.CertificateResponse
	f.agent.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, key)}, &cert)
	f.agent = f.with(key, cert)
	again = w.claim(protocol.ClaimRequest{Unfinished: []string{got.ID}})
	require.Equal(t, got.LeaseID, again.LeaseID, "a new certificate is no new delivery")
	require.EqualValues(t, 2, again.Generation)
	f.restart()
	for range 2 {
		status, _ := w.send(w.do(*got))
		require.Equal(t, http.StatusOK, status)
	}
	require.Equal(t, map[string]int{made.ID: 1}, w.effects)
}

// dumb signs nothing.
type dumb struct{ *signing.Ring }

func (dumb) Sign(context.Context, signing.Purpose, []byte) (signing.Signature, error) {
	return signing.Signature{}, context.DeadlineExceeded
}

func TestTask_UnsignedIsPutBack(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.tune = func(tune func(*agentapi.Config)) func(*agentapi.Config) {
		return func(c *agentapi.Config) { tune(c); c.TaskKeys = dumb{f.ring} }
	}(f.tune)
	f.restart()
	made := f.enqueue(lifecycle.TaskKindScrub, "k")
	f.agent.refused(503, protocol.ProblemUnavailable, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "b"})
	require.Equal(t, lifecycle.TaskQueued, f.status(made.ID))
}
