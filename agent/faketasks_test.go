package agent_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// fakeTasks hands out tasks as the agent API does, in memory and with faults. It
// stands in front of the real API, which enrols, renews and takes heartbeats.
type fakeTasks struct {
	t     *testing.T
	s     *server
	key   ed25519.PrivateKey
	keyID string
	lease time.Duration

	mu    sync.Mutex
	tasks map[string]*fakeTask
	order []string
	down  bool // every connection breaks
	// onResult is called before a result is taken; true loses it.
	onResult func(r protocol.ResultRequest) bool
	// seen is how far each task came, for people.
	seen map[string][]string
}

type fakeTask struct {
	protocol.Task
	status  lifecycle.TaskStatus
	until   time.Time
	results map[int][]lifecycle.TaskResult // by attempt
}

func newFakeTasks(t *testing.T, s *server) *fakeTasks {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	d := &fakeTasks{t: t, s: s, key: key, keyID: "key-1", lease: 5 * time.Second, tasks: map[string]*fakeTask{}, seen: map[string][]string{}}
	keys := []protocol.TaskKey{{KeyID: d.keyID, Public: pub, Generation: 1}}
	s.front = func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		d.mu.Lock()
		down := d.down
		d.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		switch r.URL.Path {
		case protocol.PathTaskClaim:
			answer(d, w, r, d.claim)
		case protocol.PathTaskRenew:
			answer(d, w, r, d.renew)
		case protocol.PathTaskResult:
			answer(d, w, r, d.finish)
		case protocol.PathHeartbeat:
			d.heartbeat(w, r, api, keys)
		default:
			api.ServeHTTP(w, r)
		}
	}
	return d
}

// heartbeat is the real one's answer, with the keys where the agent lacks them.
func (d *fakeTasks) heartbeat(w http.ResponseWriter, r *http.Request, api http.Handler, keys []protocol.TaskKey) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var in protocol.Heartbeat
	_ = json.Unmarshal(raw, &in)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	rec := httptest.NewRecorder()
	api.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	if rec.Code == http.StatusOK && !slices.Equal(in.TaskKeyIDs, []string{d.keyID}) {
		var out protocol.HeartbeatResponse
		_ = json.Unmarshal(body, &out)
		out.TaskKeys = keys
		body, _ = json.Marshal(out)
	}
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

type problem struct {
	status int
	kind   string
}

func answer[T any](d *fakeTasks, w http.ResponseWriter, r *http.Request, do func(nodeca.Identity, T, *http.Request) (any, *problem)) {
	var in T
	id, err := nodeca.IdentityOf(r.TLS.PeerCertificates[0])
	if err != nil || json.NewDecoder(r.Body).Decode(&in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var out any
	bad := &problem{http.StatusForbidden, protocol.ProblemSuperseded}
	if now, err := d.s.store.Identity(r.Context(), id.NodeID); err == nil && now.Current.Generation == id.Generation {
		out, bad = do(id, in, r)
	}
	if bad != nil {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(bad.status)
		_ = json.NewEncoder(w).Encode(protocol.Problem{Type: bad.kind})
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (d *fakeTasks) put(node, id string, kind lifecycle.TaskKind, args string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, _ := lifecycle.TaskKindOf(kind)
	d.order = append(d.order, id)
	d.tasks[id] = &fakeTask{Task: protocol.Task{ID: id, Kind: kind, SchemaVersion: max(info.Version, 1), Args: json.RawMessage(args), NodeID: node,
		Deadline: time.Now().Add(10 * time.Minute)}, status: lifecycle.TaskQueued, results: map[int][]lifecycle.TaskResult{}}
}

func (t *fakeTask) open() bool { return !lifecycle.NodeTask.Terminal(t.status) }

// settle sets the status of a task whose delivery has ended.
func (t *fakeTask) settle() {
	info, _ := lifecycle.TaskKindOf(t.Kind)
	t.status = lifecycle.TaskUncertain
	if info.Redeliver {
		t.status = lifecycle.TaskQueued
	}
}

func (d *fakeTasks) claim(id nodeca.Identity, in protocol.ClaimRequest, r *http.Request) (any, *problem) {
	over := time.After(time.Duration(in.WaitSeconds * float64(time.Second)))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if out := d.look(id, in); out.Task != nil || len(out.Dropped) > 0 {
			return out, nil
		}
		select {
		case <-r.Context().Done():
			return protocol.ClaimResponse{}, nil
		case <-over:
			return protocol.ClaimResponse{}, nil
		case <-tick.C:
		}
	}
}

func (d *fakeTasks) look(id nodeca.Identity, in protocol.ClaimRequest) (out protocol.ClaimResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range in.Unfinished {
		if t := d.tasks[name]; t == nil || !t.open() {
			out.Dropped = append(out.Dropped, name)
		}
	}
	var next *fakeTask
	for _, name := range d.order {
		t := d.tasks[name]
		if t.NodeID != id.NodeID {
			continue
		}
		if t.status == lifecycle.TaskDispatched {
			mine := t.BootID == in.BootID
			switch {
			case mine && slices.Contains(in.Unfinished, name):
				t.until = time.Now().Add(d.lease)
				return out
			case mine && time.Now().Before(t.until):
				return out
			}
			t.settle()
		}
		if t.status == lifecycle.TaskQueued && next == nil {
			next = t
		}
	}
	if next == nil {
		return out
	}
	next.Attempt++
	next.LeaseID, next.BootID, next.Generation = fmt.Sprintf("lease-%s-%d", next.ID, next.Attempt), in.BootID, id.Generation
	next.LeaseSeconds, next.status, next.until = d.lease.Seconds(), lifecycle.TaskDispatched, time.Now().Add(d.lease)
	raw, _ := json.Marshal(next.Task)
	out.Task = &protocol.SignedTask{Payload: raw, KeyID: d.keyID, Signature: ed25519.Sign(d.key, append([]byte(protocol.TaskContext), raw...))}
	return out
}

// delivery finds the task that a lease is of.
func (d *fakeTasks) delivery(task, lease string, attempt int) (*fakeTask, *problem) {
	t := d.tasks[task]
	switch {
	case t == nil:
		return nil, &problem{http.StatusConflict, protocol.ProblemTaskEnded}
	case t.LeaseID != lease || t.Attempt != attempt:
		return nil, &problem{http.StatusConflict, protocol.ProblemLeaseLost}
	}
	return t, nil
}

func (d *fakeTasks) renew(_ nodeca.Identity, in protocol.RenewTaskRequest, _ *http.Request) (any, *problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, bad := d.delivery(in.TaskID, in.LeaseID, in.Attempt)
	if bad != nil {
		return nil, bad
	}
	if t.status != lifecycle.TaskDispatched {
		return nil, &problem{http.StatusConflict, protocol.ProblemLeaseLost}
	}
	d.seen[in.TaskID] = append(d.seen[in.TaskID], in.Progress)
	t.until = time.Now().Add(d.lease)
	return protocol.RenewTaskResponse{LeaseSeconds: d.lease.Seconds()}, nil
}

func (d *fakeTasks) finish(_ nodeca.Identity, in protocol.ResultRequest, _ *http.Request) (any, *problem) {
	d.mu.Lock()
	hook := d.onResult
	d.mu.Unlock()
	if hook != nil && hook(in) {
		panic(http.ErrAbortHandler)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, bad := d.delivery(in.TaskID, in.LeaseID, in.Attempt)
	if bad != nil {
		return nil, bad
	}
	t.results[in.Attempt] = append(t.results[in.Attempt], in.Result)
	switch {
	case !t.open():
	case in.Result.OK:
		t.status = lifecycle.TaskSucceeded
	case in.Result.Code == lifecycle.TaskCodeUncertain:
		t.status = lifecycle.TaskUncertain
	default:
		t.status = lifecycle.TaskFailed
	}
	return protocol.ResultResponse{Status: t.status}, nil
}

// with looks at a task under the lock.
func (d *fakeTasks) with(id string, f func(*fakeTask)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.tasks[id])
}

func (d *fakeTasks) status(id string) (s lifecycle.TaskStatus) {
	d.with(id, func(t *fakeTask) { s = t.status })
	return s
}

func (d *fakeTasks) last(id string) (r lifecycle.TaskResult) {
	d.with(id, func(t *fakeTask) {
		if all := t.results[t.Attempt]; len(all) > 0 {
			r = all[len(all)-1]
		}
	})
	return r
}

func (d *fakeTasks) becomes(id string, want lifecycle.TaskStatus) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return d.status(id) == want }, runenv.Patience(20*time.Second), 5*time.Millisecond, "task %s does not become %s", id, want)
}

// cut disconnects the network or connects it again.
func (d *fakeTasks) cut(down bool) {
	d.mu.Lock()
	d.down = down
	d.mu.Unlock()
	d.s.http.CloseClientConnections()
}
