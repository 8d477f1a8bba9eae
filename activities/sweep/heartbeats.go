package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	silentBatch  = 1000
	silentMovers = 8
	// beatPart leaves time to report before the workflow stops waiting.
	beatPart = 12 * time.Second
)

// heartbeatActor is who the audit log names.
var heartbeatActor = db.Actor{Owner: lifecycle.OwnerHeartbeat, ID: "sweeper"}

// HeartbeatsReport is what was done about nodes that fell silent or spoke again.
type HeartbeatsReport struct {
	Offline int `json:"offline,omitempty"`
	Back    int `json:"back,omitempty"`
	// AgentAPISilent says why nobody was judged: no agent API has listened long enough.
	AgentAPISilent bool `json:"agent_api_silent,omitempty"`
	More           bool `json:"more,omitempty"` // the next pass goes on
}

// SweepHeartbeats moves active nodes that have been silent for OfflineAfter to
// offline, and offline ones that beat and report well back to active (seed 001
// section 3.3, owner heartbeat). It judges only as far back as an agent API has
// listened: after an outage of our own every node would seem silent. Each node
// is read again under its lock. Repeatable.
func (a *Activities) SweepHeartbeats(ctx context.Context) (HeartbeatsReport, error) {
	ctx, cancel := context.WithTimeout(ctx, beatPart)
	defer cancel()
	var r HeartbeatsReport
	now, err := a.clock(ctx)
	if err != nil {
		return r, err
	}
	cutoff := now.Add(-a.OfflineAfter)
	since, err := a.Store.ListenedSince(ctx)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	if r.AgentAPISilent = since.IsZero() || since.After(cutoff); !r.AgentAPISilent {
		if r.Offline, r.More, err = a.moveAll(ctx, cutoff, a.Store.NodesOverdue, a.Store.NodeSilent); err != nil {
			return r, fault.Internal(ctx, err)
		}
	}
	var more bool
	r.Back, more, err = a.moveAll(ctx, cutoff, a.Store.NodesBack, a.Store.NodeHeardAgain)
	r.More = r.More || more
	if r.Offline > 0 || r.Back > 0 {
		a.Log.InfoContext(ctx, "heartbeats judged", "offline", r.Offline, "back", r.Back)
	}
	return r, fault.Internal(ctx, err)
}

// moveAll moves the nodes that find lists, some at once, until none is left or
// the time is up; more says that some are left.
func (a *Activities) moveAll(
	ctx context.Context, cutoff time.Time, find func(context.Context, time.Time, int) ([]string, error),
	move func(context.Context, string, time.Time, db.Actor) (bool, error),
) (moved int, more bool, err error) {
	for {
		ids, err := find(ctx, cutoff, silentBatch)
		if err != nil || len(ids) == 0 {
			return moved, false, err
		}
		n, err := a.moveSome(ctx, ids, cutoff, move)
		moved += n
		switch {
		case ctx.Err() != nil:
			return moved, true, nil
		case err != nil:
			return moved, true, err
		case len(ids) < silentBatch || n == 0:
			return moved, n == 0, nil
		}
	}
}

func (a *Activities) moveSome(ctx context.Context, ids []string, cutoff time.Time, move func(context.Context, string, time.Time, db.Actor) (bool, error)) (int, error) {
	var (
		mu    sync.Mutex
		moved int
		first error
		all   sync.WaitGroup
	)
	next := make(chan string, len(ids))
	for _, id := range ids {
		next <- id
	}
	close(next)
	for range silentMovers {
		all.Go(func() {
			for id := range next {
				did, err := move(ctx, id, cutoff, heartbeatActor)
				mu.Lock()
				if did && err == nil {
					moved++
				}
				if err != nil && first == nil {
					first = err
				}
				mu.Unlock()
				if ctx.Err() != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return moved, first
}
