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
	deskPoll  = 5 * time.Second // behind the notifications: one query a process
	deskQuery = 10 * time.Second
	// A node has one agent. A second claim is that of a connection that was cut
	// and is not noticed yet.
	claimsOfANode = 2
	maxTaskKeys   = 64
	keysFresh     = 5 * time.Second
)

// taskDesk is where claims wait. One connection of the process listens for
// tasks and wakes the claims of the node that is told; nobody asks the database
// while nothing happens, but for one query every few seconds in all.
type taskDesk struct {
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

func newTaskDesk(c Config, m *metrics) *taskDesk {
	return &taskDesk{store: c.Tasks, signer: c.TaskKeys, log: c.Log, metrics: m, bound: c.TaskWaiters,
		closing: make(chan struct{}), waits: map[string][]chan struct{}{}}
}

// enter lets a node's claim wait; it must leave.
func (d *taskDesk) enter(node string) (wake <-chan struct{}, leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(d.waits[node]) >= claimsOfANode:
		return nil, nil, refuse(http.StatusTooManyRequests, protocol.ProblemTooMany, "rate_limited",
			"Other claims of this node wait already; an agent asks for one task at a time.").after(5 * time.Second)
	case d.number >= d.bound:
		return nil, nil, refuse(http.StatusServiceUnavailable, protocol.ProblemBusy, "queue_full", "Too many claims wait here; ask again later.").after(busyWait)
	}
	ch := make(chan struct{}, 1)
	d.waits[node] = append(d.waits[node], ch)
	d.number++
	d.metrics.claims.Set(float64(d.number))
	return ch, func() { d.leave(node, ch) }, nil
}

func (d *taskDesk) leave(node string, ch chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := slices.DeleteFunc(d.waits[node], func(c chan struct{}) bool { return c == ch })
	d.waits[node] = left
	if len(left) == 0 {
		delete(d.waits, node)
	}
	d.number--
	d.metrics.claims.Set(float64(d.number))
}

func (d *taskDesk) wake(nodes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range nodes {
		for _, ch := range d.waits[node] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (d *taskDesk) waiting() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.waits))
}

// close answers every claim that waits, with nothing.
func (d *taskDesk) close() { d.once.Do(func() { close(d.closing) }) }

// run listens until ctx ends.
func (d *taskDesk) run(ctx context.Context) {
	var done sync.WaitGroup
	defer done.Wait()
	connected := make(chan struct{}, 1)
	done.Go(func() {
		err := d.store.ListenFor(ctx, db.ChannelTasks, func(node string) {
			if node != "" {
				d.wake(node)
				return
			}
			select { // what was told while there was no connection is looked up
			case connected <- struct{}{}:
			default:
			}
		})
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "the agent API no longer hears of tasks and goes on polling", "error", err)
		}
	})
	t := time.NewTicker(deskPoll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
		case <-t.C:
		}
		d.look(ctx)
	}
}

// look wakes those that wait beside a task.
func (d *taskDesk) look(ctx context.Context) {
	nodes := d.waiting()
	if len(nodes) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, deskQuery)
	defer cancel()
	due, err := d.store.NodesWithQueuedTasks(asking, nodes)
	if err != nil {
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "queued tasks could not be looked up; will try again", "error", err)
		}
		return
	}
	d.wake(due...)
}

// publicKeys are the keys that agents are told of: those that count and, since
// each is signed by the one before it, those that a node needs to follow.
func (d *taskDesk) publicKeys(ctx context.Context) ([]protocol.TaskKey, error) {
	d.keyMu.Lock()
	defer d.keyMu.Unlock()
	if d.keys != nil && time.Since(d.keysAt) < keysFresh {
		return d.keys, nil
	}
	keys, err := d.signer.TaskKeys(ctx)
	if err != nil {
		return nil, err
	}
	d.keys, d.keysAt = keys, time.Now()
	return keys, nil
}

// signedBy makes sure that agents who ask now are told of a key that has just
// signed.
func (d *taskDesk) signedBy(keyID string) {
	d.keyMu.Lock()
	defer d.keyMu.Unlock()
	if !slices.ContainsFunc(d.keys, func(k protocol.TaskKey) bool { return k.KeyID == keyID }) {
		d.keys = nil
	}
}

// taskKeys are the keys for an answer that is good without them: an agent that
// does not get them here gets them with a heartbeat.
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

// unknownKeys are all keys, unless they are the ones that the agent named.
func (s *Server) unknownKeys(ctx context.Context, known []string) []protocol.TaskKey {
	keys := s.taskKeys(ctx)
	missing := func(k protocol.TaskKey) bool { return !slices.Contains(known, k.KeyID) }
	if len(keys) == len(known) && !slices.ContainsFunc(keys, missing) {
		return nil
	}
	return keys
}
