// Package relay carries intent out of the database: it starts the workflows
// that the API asked for and gives events their cursor. Any number of relays
// may run; each row is done once. When Temporal is away the rows wait.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
)

// Starter starts job workflows; repeating a start is success.
type Starter interface {
	StartJob(ctx context.Context, in contract.JobInput, summary string) (runID string, err error)
}

// Waker tells the job of a request that a node became free.
type Waker interface {
	WakeClaim(ctx context.Context, jobID string) error
}

// Relay is one relay; Name tells the claims of several apart.
type Relay struct {
	Store   *db.Store
	Starter Starter
	Tasks   Completer // nil: tasks of nodes are another's business
	Claims  Waker     // nil: requests that wait for a node are another's business
	Name    string
	Log     *slog.Logger
	// Poll is how long a relay sleeps when nobody wakes it; 0 is 2 s.
	Poll time.Duration
	// Lease is how long a row is claimed for; 0 is 30 s. A pass ends after five sixths of it, and
	// the rest is left to write what came of it.
	Lease   time.Duration
	Started prometheus.Counter
	Failed  prometheus.Counter
}

const (
	gather = 30 * time.Millisecond
	// A relay claims what it can start at once: with Temporal away a start takes
	// its whole time, and no claim may outlast its lease.
	claimSize  = 16
	eventBatch = 500
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// lease returns how long a row is claimed for.
func (r *Relay) lease() time.Duration {
	if r.Lease == 0 {
		return 30 * time.Second
	}
	return r.Lease
}

// noteLimit bounds the write of what came of a row.
func (r *Relay) noteLimit() time.Duration { return r.lease() / 6 }

// passLimit bounds a pass: with the write after it, it ends before its claims do.
func (r *Relay) passLimit() time.Duration { return r.lease() - r.noteLimit() }

// Run works until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	poll := r.Poll
	if poll == 0 {
		poll = 2 * time.Second
	}
	starts, events, claims := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	go r.listen(ctx, db.ChannelOutbox, starts, events, claims)
	// Events go on while Temporal is away and every start waits for it.
	var both sync.WaitGroup
	both.Go(func() {
		r.loop(ctx, poll, events, "events not relayed", func(ctx context.Context) (int, error) { return r.Store.RelayEvents(ctx, eventBatch) })
	})
	both.Go(func() { r.loop(ctx, poll, starts, "workflows not started", r.starts) })
	if r.Claims != nil {
		both.Go(func() { r.loop(ctx, poll, claims, "requests not told of free nodes", r.wakes) })
	}
	if r.Tasks != nil {
		ends := make(chan struct{}, 1)
		go r.listen(ctx, db.ChannelTaskEnds, ends)
		both.Go(func() { r.loop(ctx, poll, ends, "ends of tasks not told", r.tasks) })
	}
	both.Wait()
}

// listen wakes loops at every notification of a channel, until ctx ends.
func (r *Relay) listen(ctx context.Context, channel string, loops ...chan struct{}) {
	err := r.Store.Listen(ctx, channel, func() {
		for _, wake := range loops {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("relay no longer hears notifications and goes on polling", "channel", channel, "error", err)
	}
}

// loop does one kind of work whenever it is woken, and at every poll.
func (r *Relay) loop(ctx context.Context, every time.Duration, wake <-chan struct{}, failed string, work func(context.Context) (int, error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		r.pass(ctx, failed, work)
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-t.C:
		}
		// A burst of notifications is one pass, not one pass each.
		if poll.Sleep(ctx, gather) != nil {
			return
		}
	}
}

// pass empties the outbox as far as it can.
func (r *Relay) pass(ctx context.Context, failed string, work func(context.Context) (int, error)) {
	ctx, cancel := context.WithTimeout(ctx, r.passLimit())
	defer cancel()
	for {
		done, err := work(ctx)
		if err != nil {
			r.complain(ctx, failed, err)
			return
		}
		if done == 0 {
			return
		}
	}
}

func (r *Relay) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.Log.Warn("relay: "+what, "error", err)
	}
}

// starts claims due start rows and starts their workflows, all at once, so that
// one that hangs holds up no other.
func (r *Relay) starts(ctx context.Context) (int, error) {
	rows, err := r.Store.ClaimOutbox(ctx, r.Name, claimSize, r.lease())
	if err != nil {
		return 0, err
	}
	failed := make([]error, len(rows))
	var all sync.WaitGroup
	for i, row := range rows {
		all.Go(func() { failed[i] = r.start(ctx, row) })
	}
	all.Wait()
	return len(rows), errors.Join(failed...)
}

func (r *Relay) start(ctx context.Context, row db.Start) error {
	in := contract.JobInput{JobID: row.JobID, Kind: contract.JobKind(row.Kind), NodeID: deref(row.NodeID), SiteID: deref(row.SiteID), ResourceID: row.ResourceID, Hostname: row.Hostname}
	about := strings.TrimSpace(in.Hostname + " " + in.NodeID)
	if about == "" {
		about = in.JobID // of a job about a BMC that no node has
	}
	_, err := r.Starter.StartJob(ctx, in, row.Kind+" of "+about)
	// The outcome is written even when the pass is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.noteLimit())
	defer cancel()
	if err != nil {
		count(r.Failed)
		wait := min(retryFirst<<min(row.Attempts, 6), retryMost)
		r.Log.Warn("workflow not started; will try again", "job", row.JobID, "attempt", row.Attempts, "in", wait, "error", err)
		return r.Store.FailOutbox(ctx, row.ID, err, wait)
	}
	count(r.Started)
	return r.Store.CompleteOutbox(ctx, row.ID)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func count(c prometheus.Counter) {
	if c != nil {
		c.Inc()
	}
}
