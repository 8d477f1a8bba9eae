package relay

import (
	"context"
	"errors"
	"sync"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/db"
)

// Completer ends an activity that waits, by its ids; gone says that it does not
// wait any more.
type Completer interface {
	CompleteActivity(ctx context.Context, workflowID, runID, activityID string, result any, failure error) (gone bool, err error)
}

// settleSize is how many overdue tasks one pass settles.
const settleSize = 100

// tasks settles tasks whose lease or deadline has ended, and completes the activities that wait for
// them. A completion may be sent twice and is never lost: when a relay dies, another one takes over
// after the end of its claim.
func (r *Relay) tasks(ctx context.Context) (int, error) {
	settled, err := r.Store.SettleTasks(ctx, settleSize)
	if n := settled.Uncertain + settled.Expired + settled.Requeued; n > 0 {
		r.Log.InfoContext(ctx, "tasks of nodes were overdue", "requeued", settled.Requeued, "uncertain", settled.Uncertain, "expired", settled.Expired)
	}
	ends, claimErr := r.Store.ClaimTaskEnds(ctx, claimSize, r.lease())
	if claimErr != nil {
		return 0, errors.Join(err, claimErr)
	}
	failed := make([]error, len(ends))
	var all sync.WaitGroup
	for i, t := range ends {
		all.Go(func() { failed[i] = r.tell(ctx, t) })
	}
	all.Wait()
	return len(ends), errors.Join(append(failed, err)...)
}

func (r *Relay) tell(ctx context.Context, t db.NodeTask) error {
	result, failure := agenttask.Outcome(t)
	gone, err := r.Tasks.CompleteActivity(ctx, t.WaiterWorkflowID, t.WaiterRunID, t.WaiterActivityID, result, failure)
	if err != nil {
		return err // told again when the claim is over
	}
	// The outcome is written even when the pass is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.noteLimit())
	defer cancel()
	if gone {
		return r.Store.DeleteTaskWaiter(ctx, t)
	}
	return r.Store.MarkTaskTold(ctx, t)
}
