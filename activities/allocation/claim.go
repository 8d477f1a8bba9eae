package allocation

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A request looks for a node again after five seconds, then later and later, up to a minute.
const (
	defaultWait  = 5 * time.Second
	maxWaitTimes = 12
)

// ClaimNode claims a node for a requested allocation. It looks once. While none is free it fails
// with an error that has Temporal call it again later, so that requests which wait hold no slot of
// a worker. After the deadline of the request it fails with capacity_unavailable. An allocation
// whose release was asked for, or that has a node, is returned as it is.
func (a *Activities) ClaimNode(ctx context.Context, in contract.AllocationRef) (contract.AllocationFacts, error) {
	var row allocationdb.Allocation
	var left time.Duration
	done := false
	err := a.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		if row, err = allocationdb.Lock(ctx, tx, in.AllocationID); err != nil {
			return err
		}
		if done = row.Status != lifecycle.AllocationRequested; done {
			return nil
		}
		if row, done, err = allocationdb.Claim(ctx, tx, in.AllocationID, actor(ctx, in.JobID)); err != nil || done {
			return err
		}
		now, err := tx.Clock(ctx)
		left = 0
		if row.QueueDeadlineAt != nil {
			left = row.QueueDeadlineAt.Sub(now)
		}
		return err
	})
	switch {
	case db.IsUnavailable(err):
		return contract.AllocationFacts{}, a.lookAgain(ctx, lifecycle.FailStoreUnavailable, "Slipway's database did not answer", time.Minute)
	case err != nil:
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	case done:
		return a.facts(ctx, row)
	case left <= 0:
		return contract.AllocationFacts{}, fault.New(lifecycle.FailCapacity, "no node of the SKU became free in time")
	}
	return contract.AllocationFacts{}, a.lookAgain(ctx, lifecycle.FailCapacity, "no node of the SKU is free yet", left)
}

// lookAgain returns the error that has Temporal call the activity again: later with each attempt,
// but within most, and not at the same moment as all others that wait.
func (a *Activities) lookAgain(ctx context.Context, class lifecycle.FailureClass, why string, most time.Duration) error {
	attempt := int32(1)
	if activity.IsActivity(ctx) {
		attempt = activity.GetInfo(ctx).Attempt
	}
	first := cmp.Or(a.Wait, defaultWait)
	wait := min(first<<min(attempt-1, 10), maxWaitTimes*first)
	wait -= time.Duration(rand.Int64N(int64(wait)/4 + 1)) //nolint:gosec // spreads the load
	return temporal.NewApplicationErrorWithOptions(why, string(class), temporal.ApplicationErrorOptions{
		NextRetryDelay: min(wait, max(most, time.Second)), Category: temporal.ApplicationErrorCategoryBenign,
	})
}
