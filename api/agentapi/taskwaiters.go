package agentapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/db"
)

const (
	queuePollInterval = 5 * time.Second // in case a notification is lost
	queuePollTimeout  = 10 * time.Second
	// A node has one agent. A second claim may come while its cut connection is not noticed yet.
	claimsOfANode = 2
	maxTaskKeys   = 64
	keysFresh     = 5 * time.Second
)

// taskWaiters holds the claims that wait for a task. One connection of the process listens for new
// tasks and wakes the claims of their nodes. Besides, one query every few seconds looks for tasks
// of all nodes that wait.
type taskWaiters struct {
	store   TaskStore
	signer  TaskSigner
	log     *slog.Logger
	metrics *metrics
	bound   int
	closing chan struct{}

	mu     sync.Mutex
	once   sync.Once
	waits  map[string][]chan struct{}
	number int

	keyMu  sync.Mutex
	keys   []protocol.TaskKey
	keysAt time.Time
}

func newTaskWaiters(c Config, m *metrics) *taskWaiters {
	return &taskWaiters{store: c.Tasks, signer: c.TaskKeys, log: c.Log, metrics: m, bound: c.TaskWaiters,
		closing: make(chan struct{}), waits: map[string][]chan struct{}{}}
}

// enter adds a claim of a node. The caller must call leave. It returns a refusal when too many
// claims wait.
func (w *taskWaiters) enter(node string) (wake <-chan struct{}, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.waits[node]) >= claimsOfANode:
		return nil, nil, refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited",
			"Other claims of this node wait already; an agent asks for one task at a time.").after(5 * time.Second)
	case w.number >= w.bound:
		return nil, nil, refuse(http.StatusServiceUnavailable, protocol.ProblemBusy, "queue_full", "Too many claims wait here; ask again later.").after(busyWait)
	}
	ch := make(chan struct{}, 1)
	w.waits[node] = append(w.waits[node], ch)
	w.number++
	w.metrics.claims.Set(float64(w.number))
	return ch, func() { w.leave(node, ch) }, nil
}

func (w *taskWaiters) leave(node string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.waits[node], func(c chan struct{}) bool { return c == ch })
	w.waits[node] = left
	if len(left) == 0 {
		delete(w.waits, node)
	}
	w.number--
	w.metrics.claims.Set(float64(w.number))
}

func (w *taskWaiters) wake(nodes ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range nodes {
		for _, ch := range w.waits[node] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (w *taskWaiters) waiting() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.waits))
}

// close ends the wait of every claim, without a task.
func (w *taskWaiters) close() { w.once.Do(func() { close(w.closing) }) }

// run listens until ctx ends.
func (w *taskWaiters) run(ctx context.Context) {
	var done sync.WaitGroup
	defer done.Wait()
	connected := make(chan struct{}, 1)
	done.Go(func() {
		err := w.store.ListenFor(ctx, db.ChannelTasks, func(node string) {
			if node != "" {
				w.wake(node)
				return
			}
			select { // after a reconnect: poll for the notifications that were missed
			case connected <- struct{}{}:
			default:
			}
		})
		if ctx.Err() == nil {
			w.log.WarnContext(ctx, "the agent API gets no notifications of tasks any more and goes on polling", "error", err)
		}
	})
	t := time.NewTicker(queuePollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
		case <-t.C:
		}
		w.wakeQueued(ctx)
	}
}

// wakeQueued wakes the claims of nodes that have a queued task.
func (w *taskWaiters) wakeQueued(ctx context.Context) {
	nodes := w.waiting()
	if len(nodes) == 0 {
		return
	}
	queryCtx, cancel := context.WithTimeout(ctx, queuePollTimeout)
	defer cancel()
	due, err := w.store.NodesWithQueuedTasks(queryCtx, nodes)
	if err != nil {
		if ctx.Err() == nil {
			w.log.WarnContext(ctx, "queued tasks could not be looked up; will try again", "error", err)
		}
		return
	}
	w.wake(due...)
}

// publicKeys returns the keys that are sent to agents: the valid ones and, since each is signed by
// the one before it, those that a node needs to verify them.
func (w *taskWaiters) publicKeys(ctx context.Context) ([]protocol.TaskKey, error) {
	w.keyMu.Lock()
	defer w.keyMu.Unlock()
	if w.keys != nil && time.Since(w.keysAt) < keysFresh {
		return w.keys, nil
	}
	keys, err := w.signer.TaskKeys(ctx)
	if err != nil {
		return nil, err
	}
	w.keys, w.keysAt = keys, time.Now()
	return keys, nil
}

// signedBy drops the cached keys when they lack a key that has just signed, so that agents get it.
func (w *taskWaiters) signedBy(keyID string) {
	w.keyMu.Lock()
	defer w.keyMu.Unlock()
	if !slices.ContainsFunc(w.keys, func(k protocol.TaskKey) bool { return k.KeyID == keyID }) {
		w.keys = nil
	}
}

// taskKeys returns the keys for an answer, or nil when they cannot be read: the agent gets them
// with a later heartbeat.
func (s *Server) taskKeys(ctx context.Context) []protocol.TaskKey {
	if s.tasks == nil {
		return nil
	}
	keys, err := s.tasks.publicKeys(ctx)
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "the keys of tasks could not be read; agents learn them later", "error", err)
		return nil
	}
	return keys
}

// unknownKeys returns all keys, or nil when the agent has named exactly these.
func (s *Server) unknownKeys(ctx context.Context, known []string) []protocol.TaskKey {
	keys := s.taskKeys(ctx)
	missing := func(k protocol.TaskKey) bool { return !slices.Contains(known, k.KeyID) }
	if len(keys) == len(known) && !slices.ContainsFunc(keys, missing) {
		return nil
	}
	return keys
}
