package agentapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const flushTimeout = 10 * time.Second

var errQueueFull = errors.New("too many heartbeats wait to be written")

// batcher keeps the newest heartbeat of each node until the next write. It holds a bounded number
// of nodes.
type batcher struct {
	store   Store
	log     *slog.Logger
	metrics *metrics
	every   time.Duration
	size    int // heartbeats in a statement
	bound   int // nodes in the queue

	mu      sync.Mutex
	waiting map[string]Heartbeat
	kick    chan struct{}
}

func newBatcher(c Config, m *metrics) *batcher {
	return &batcher{store: c.Store, log: c.Log, metrics: m, every: c.FlushInterval, size: c.FlushSize,
		bound: c.QueueSize, waiting: map[string]Heartbeat{}, kick: make(chan struct{}, 1)}
}

// add queues a heartbeat. It returns errQueueFull when the queue is full and does not have the node
// already.
func (b *batcher) add(h Heartbeat) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, have := b.waiting[h.NodeID]
	if !have && len(b.waiting) >= b.bound {
		return errQueueFull
	}
	if have {
		h = newer(old, h)
	}
	b.waiting[h.NodeID] = h
	b.metrics.waiting.Set(float64(len(b.waiting)))
	if len(b.waiting) >= b.size {
		select {
		case b.kick <- struct{}{}:
		default:
		}
	}
	return nil
}

// hasReport returns whether a report of this boot waits to be written.
func (b *batcher) hasReport(node, boot string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.waiting[node].Report
	return r != nil && r.BootID == boot
}

// newer returns the later of two heartbeats of a node. It takes the report from the earlier one
// when the later has none and both are of the same boot.
func newer(a, b Heartbeat) Heartbeat {
	if a.At.After(b.At) {
		a, b = b, a
	}
	if b.Report == nil && a.Report != nil && a.Report.BootID == b.BootID {
		b.Report = a.Report
	}
	return b
}

// run writes batches until ctx ends. After a failed write it waits for the next tick, also when the
// queue is full, so that it does not overload a database that is down.
func (b *batcher) run(ctx context.Context) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	failed := false
	for {
		kick := b.kick
		if failed {
			kick = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-kick:
		}
		fctx, cancel := context.WithTimeout(ctx, flushTimeout)
		failed = b.flush(fctx) != nil
		cancel()
	}
}

// flush writes the queued heartbeats. It puts back those whose write failed and may be tried again,
// unless a newer heartbeat of the node is queued.
func (b *batcher) flush(ctx context.Context) error {
	b.mu.Lock()
	taken := b.waiting
	b.waiting = map[string]Heartbeat{}
	b.metrics.waiting.Set(0)
	b.mu.Unlock()
	heartbeats := make([]Heartbeat, 0, len(taken))
	for _, h := range taken {
		heartbeats = append(heartbeats, h)
	}
	// One order of rows in all processes, so that two writers cannot deadlock.
	slices.SortFunc(heartbeats, func(x, y Heartbeat) int { return cmp.Compare(x.NodeID, y.NodeID) })
	var first error
	for chunk := range slices.Chunk(heartbeats, b.size) {
		if first == nil {
			first = b.write(ctx, chunk)
			if first == nil {
				continue
			}
			b.metrics.failures.Inc()
			b.log.ErrorContext(ctx, "heartbeats could not be written; they are tried again", "nodes", len(chunk), "error", first)
		}
		b.putBack(chunk)
	}
	return first
}

// write stores a chunk. When the database refuses a row, write halves the chunk until that row is
// alone, and drops it. So one bad row does not lose the heartbeats of the other nodes.
func (b *batcher) write(ctx context.Context, chunk []Heartbeat) error {
	err := b.store.WriteHeartbeats(ctx, chunk)
	switch {
	case err == nil:
		b.metrics.flushed.Add(float64(len(chunk)))
		return nil
	case !errors.Is(err, ErrRejected):
		return err
	case len(chunk) == 1:
		b.metrics.dropped.Inc()
		b.log.ErrorContext(ctx, "the database refuses a node's heartbeat", "node", chunk[0].NodeID, "error", err)
		return nil
	}
	half := len(chunk) / 2
	return errors.Join(b.write(ctx, chunk[:half]), b.write(ctx, chunk[half:]))
}

func (b *batcher) putBack(chunk []Heartbeat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, old := range chunk {
		now, have := b.waiting[old.NodeID]
		switch {
		case have:
			b.waiting[old.NodeID] = newer(old, now)
		case len(b.waiting) < b.bound:
			b.waiting[old.NodeID] = old
		default:
			b.metrics.dropped.Inc()
		}
	}
	b.metrics.waiting.Set(float64(len(b.waiting)))
}
