package allocation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Released is the answer to a release.
type Released struct {
	Allocation allocationdb.Allocation
	// Job is the live job of the allocation; nil when there is none.
	Job *db.Job
	// Action is what the job is asked to do, "" for nothing: to cancel itself at the next safe
	// point while it provisions, to try again after a release that failed. The API sends it as an
	// Update after the commit. The row says the first too, so that a lost Update loses nothing;
	// after a lost Update of the second the allocation is still release_failed, and its job still
	// parked.
	Action lifecycle.Action
}

// Release ends an allocation. The fence takes effect when the transaction commits. It can be
// repeated: an allocation that is ending or has ended is returned as it is. From release_failed it
// asks the same job for one more attempt, which moves it to releasing, and writes a job only when
// there is none.
func Release(ctx context.Context, tx *db.Tx, id, reason string, actor db.Actor) (Released, error) {
	a, err := allocationdb.Lock(ctx, tx, id)
	if err != nil {
		return Released{}, err
	}
	switch a.Status {
	case lifecycle.AllocationReleased, lifecycle.AllocationFailed:
		action := lifecycle.ActionCancel
		if a.Outcome == lifecycle.OutcomeReleased {
			action = "" // its job is about to end by itself
		}
		return withJob(ctx, tx, a, action, nil)
	case lifecycle.AllocationRequested:
		a, err = allocationdb.Cancel(ctx, tx, id, reason, actor)
		return withJob(ctx, tx, a, lifecycle.ActionCancel, err)
	case lifecycle.AllocationProvisioning:
		if err = allocationdb.RequestRelease(ctx, tx, id, reason); err == nil {
			a, err = allocationdb.Get(ctx, tx, id)
		}
		return withJob(ctx, tx, a, lifecycle.ActionCancel, err)
	case lifecycle.AllocationActive:
		a, err = allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: id, To: lifecycle.AllocationRelease, Reason: reason, Actor: actor})
	case lifecycle.AllocationReleaseFailed:
		// The job moves it with the step by which it goes on. Until then its release has failed,
		// and is listed as that also when the job is not reached.
		r, err := withJob(ctx, tx, a, lifecycle.ActionRetryStage, nil)
		if err != nil || r.Job != nil {
			return r, err
		}
		a, err = allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: id, To: lifecycle.AllocationRetryRelease, Reason: reason, Actor: actor})
		if err != nil {
			return Released{}, err
		}
	case lifecycle.AllocationReleasing:
	}
	if err != nil {
		return Released{}, err
	}
	return startRelease(ctx, tx, a, "", actor)
}

// withJob adds the live job of an allocation and what it is asked to do.
func withJob(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, action lifecycle.Action, err error) (Released, error) {
	if err != nil {
		return Released{}, err
	}
	job, err := tx.LiveJobOfResource(ctx, allocationdb.Resource, a.ID)
	if errors.Is(err, db.ErrNotFound) {
		return Released{Allocation: a}, nil
	}
	return Released{a, &job, action}, err
}

// startRelease returns the live job of an allocation in releasing, or writes the release job when
// there is none. A job that changes keys is to stop: the end of it writes the release job.
func startRelease(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, action lifecycle.Action, actor db.Actor) (Released, error) {
	r, err := withJob(ctx, tx, a, action, nil)
	if err != nil || r.Job != nil {
		if r.Job != nil && r.Job.Kind == string(contract.KindAllocationKeys) {
			r.Action = lifecycle.ActionCancel
		}
		return r, err
	}
	job, err := createJob(ctx, tx, contract.KindAllocationRelease, a, actor)
	return Released{Allocation: a, Job: &job}, err
}

// ForceRelease starts one more attempt to release an allocation, for an operator. It refuses an
// allocation that is not being released.
func ForceRelease(ctx context.Context, tx *db.Tx, id, reason string, actor db.Actor) (Released, error) {
	a, err := allocationdb.Lock(ctx, tx, id)
	if err != nil {
		return Released{}, err
	}
	if !a.Status.Releasing() {
		return Released{}, &intent.Refusal{Kind: intent.IllegalTransition, Existing: a.ID, Allowed: lifecycle.Allocation.Reachable(a.Status),
			Detail: fmt.Sprintf("the allocation is %s; force-release is for one whose release failed: release it", a.Status)}
	}
	return Release(ctx, tx, id, reason, actor)
}

// Continue gives an allocation that only a job moves on the job that it lacks. A request whose job
// has ended is failed. A provision whose job has ended is released: nobody knows how far its
// account was made, so that its node is cleaned. An active one gets the job that changes its keys
// when that is due. It returns the allocation as it is when it has a job or has ended. The sweeper
// calls it.
func Continue(ctx context.Context, tx *db.Tx, id string) (Released, error) {
	actor := db.Actor{Owner: lifecycle.OwnerSystem, Comment: "no job moved the allocation on"}
	a, err := allocationdb.Lock(ctx, tx, id)
	if err != nil {
		return Released{}, err
	}
	r, err := withJob(ctx, tx, a, "", nil)
	if err != nil || r.Job != nil {
		return r, err
	}
	switch a.Status {
	case lifecycle.AllocationRequested:
		a, err = allocationdb.Fail(ctx, tx, id, lifecycle.FailureProvision, "its job ended before a node was claimed", actor)
	case lifecycle.AllocationProvisioning:
		move := allocationdb.Move{ID: id, To: lifecycle.AllocationAbort, Actor: actor}
		if a.ReleaseRequestedAt == nil {
			move.Reason, move.FailureCode, move.FailureMessage = lifecycle.FailureProvision, lifecycle.FailureProvision, "its job ended before the node was ready"
		}
		a, err = allocationdb.MoveTo(ctx, tx, move)
		if err == nil {
			return startRelease(ctx, tx, a, "", actor)
		}
	case lifecycle.AllocationReleasing:
		return startRelease(ctx, tx, a, "", actor)
	case lifecycle.AllocationActive:
		actor.Comment = "keys of the allocation have changed"
		job, err := startKeys(ctx, tx, a, actor)
		return Released{Allocation: a, Job: job}, err
	case lifecycle.AllocationReleased, lifecycle.AllocationFailed, lifecycle.AllocationReleaseFailed:
	}
	return Released{Allocation: a}, err
}

// EndProject returns the function that releases every allocation of a project that is closed.
func EndProject(actor db.Actor) func(context.Context, *db.Tx, string) (int, error) {
	return func(ctx context.Context, tx *db.Tx, projectID string) (int, error) {
		live, err := allocationdb.List(ctx, tx, allocationdb.Filter{ProjectID: projectID, Statuses: liveStatuses()}, "", endBatch)
		if err != nil {
			return 0, err
		}
		running := 0
		for _, a := range live {
			r, err := Release(ctx, tx, a.ID, lifecycle.ReleaseProjectClosed, actor)
			if err != nil {
				return running, err
			}
			if r.Allocation.Status.Live() {
				running++
			}
		}
		return running, nil
	}
}

// endBatch is the most allocations that one transaction releases; closing a project again goes on.
const endBatch = 500

func liveStatuses() []lifecycle.AllocationStatus {
	var out []lifecycle.AllocationStatus
	for _, s := range lifecycle.Allocation.States {
		if !s.Terminal {
			out = append(out, s.State)
		}
	}
	return out
}

// ReleaseExpired releases allocations whose expiry is past, each in a transaction of its own, and
// returns how many. now is the time of this process: an expiry is past when the database's clock
// says so too. None is released while billing says that the clocks disagree, that an operator has
// to look first, or that its last tick is long ago: a clock that is ahead must not erase a tenant's
// node. An allocation that cannot be released does not stop the others.
func ReleaseExpired(ctx context.Context, store *db.Store, now time.Time, limit int) (int, error) {
	if why, err := ledgerdb.ReleaseStop(ctx, store, now); err != nil || why != "" {
		return 0, err
	}
	ids, err := allocationdb.ListDue(ctx, store, now, limit)
	if err != nil {
		return 0, err
	}
	actor := db.Actor{Owner: lifecycle.OwnerSystem, Comment: "its expires_at has passed"}
	released, errs := 0, []error{}
	for _, id := range ids {
		err := store.Tx(ctx, func(tx *db.Tx) error {
			_, err := Release(ctx, tx, id, lifecycle.ReleaseExpired, actor)
			return err
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		released++
	}
	return released, errors.Join(errs...)
}
