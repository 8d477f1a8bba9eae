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
	// heartbeatsLimit is shorter than the workflow's timeout, so that the report still arrives.
	heartbeatsLimit = 12 * time.Second
)

// heartbeatActor is the actor in the audit log.
var heartbeatActor = db.Actor{Owner: lifecycle.OwnerHeartbeat, ID: "sweeper"}

// HeartbeatsReport counts the nodes that were moved because heartbeats stopped or came back.
type HeartbeatsReport struct {
	Offline int `json:"offline,omitempty"`
	Back    int `json:"back,omitempty"`
	// AgentAPISilent is set when no agent API has listened long enough to decide.
	AgentAPISilent bool `json:"agent_api_silent,omitempty"`
	More           bool `json:"more,omitempty"` // the next pass continues
}

// SweepHeartbeats moves active nodes without a heartbeat for OfflineAfter to offline. It moves
// offline nodes with heartbeats and a healthy report back to active. It moves no node offline when
// no agent API has listened for OfflineAfter: after an outage of the control plane every node would
// seem silent. Each node is read again under its lock. The activity may be repeated.
func (a *Activities) SweepHeartbeats(ctx context.Context) (HeartbeatsReport, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatsLimit)
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
		a.Log.InfoContext(ctx, "nodes moved because of their heartbeats", "offline", r.Offline, "back", r.Back)
	}
	return r, fault.Internal(ctx, err)
}

// moveAll moves the nodes that find returns, a batch at a time. It returns more when ctx ended or a
// batch moved nothing, so that nodes may be left.
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
