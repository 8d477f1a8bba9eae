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

// batcher keeps the newest beat of each node until the next write. Its memory
// is bounded by the number of nodes it holds.
type batcher struct {
	store   Store
	log     *slog.Logger
	metrics *metrics
	every   time.Duration
	size    int // beats a statement
	bound   int // nodes that may wait

	mu      sync.Mutex
	waiting map[string]Beat
	kick    chan struct{}
}

func newBatcher(c Config, m *metrics) *batcher {
	return &batcher{store: c.Store, log: c.Log, metrics: m, every: c.FlushInterval, size: c.FlushSize,
		bound: c.QueueSize, waiting: map[string]Beat{}, kick: make(chan struct{}, 1)}
}

// add queues a beat; errQueueFull when the node is not waiting already and
// there is no room.
func (b *batcher) add(beat Beat) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, have := b.waiting[beat.NodeID]
	if !have && len(b.waiting) >= b.bound {
		return errQueueFull
	}
	if have {
		beat = newer(old, beat)
	}
	b.waiting[beat.NodeID] = beat
	b.metrics.waiting.Set(float64(len(b.waiting)))
	if len(b.waiting) >= b.size {
		select {
		case b.kick <- struct{}{}:
		default:
		}
	}
	return nil
}

// reports says whether a report of this boot waits to be written.
func (b *batcher) reports(node, boot string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.waiting[node].Report
	return r != nil && r.BootID == boot
}

// newer joins two beats of a node: the later one, with the report that the
// other may carry. A report of an earlier boot is worth nothing any more.
func newer(a, b Beat) Beat {
	if a.At.After(b.At) {
		a, b = b, a
	}
	if b.Report == nil && a.Report != nil && a.Report.BootID == b.BootID {
		b.Report = a.Report
	}
	return b
}

// run writes until ctx ends. After a failed write it waits for its time rather
// than for its size, or a full queue would hammer a database that is down.
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

// flush writes what waits now. What could not be written for a passing reason
// waits again, unless a newer beat came meanwhile.
func (b *batcher) flush(ctx context.Context) error {
	b.mu.Lock()
	taken := b.waiting
	b.waiting = map[string]Beat{}
	b.metrics.waiting.Set(0)
	b.mu.Unlock()
	beats := make([]Beat, 0, len(taken))
	for _, beat := range taken {
		beats = append(beats, beat)
	}
	// One order of rows in all processes, so that two writers cannot deadlock.
	slices.SortFunc(beats, func(x, y Beat) int { return cmp.Compare(x.NodeID, y.NodeID) })
	var first error
	for chunk := range slices.Chunk(beats, b.size) {
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

// write stores a chunk. When the database refuses what a row holds, the chunk
// is halved until that row is alone and given up, so that one bad row cannot
// keep a thousand nodes silent.
func (b *batcher) write(ctx context.Context, chunk []Beat) error {
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

func (b *batcher) putBack(chunk []Beat) {
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
