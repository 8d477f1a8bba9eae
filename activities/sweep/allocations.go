package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// allocationsBatch bounds how many allocations a pass releases, and how many it gives a job.
const allocationsBatch = 50

// sweepAllocations releases allocations whose expiry is past, gives those that only a job moves on
// the job that they lack, and starts the jobs that change keys. Each has a transaction of its own:
// an error about one does not stop the others.
func (a *Activities) sweepAllocations(ctx context.Context, r *StartsReport) error {
	var errs []error
	var err error
	if r.Expired, err = allocation.ReleaseExpired(ctx, a.Store, time.Now(), allocationsBatch); err != nil {
		errs = append(errs, err)
	}
	ids, err := allocationdb.ListWithoutJob(ctx, a.Store, a.pace().Quiet, allocationsBatch)
	if err != nil {
		errs = append(errs, err)
	}
	for _, id := range ids {
		err := a.Store.Tx(ctx, func(tx *db.Tx) error {
			_, err := allocation.Continue(ctx, tx, id)
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("allocation %s: %w", id, err))
			continue
		}
		r.Continued = append(r.Continued, id)
	}
	if r.Expired > 0 || len(r.Continued) > 0 {
		a.Log.WarnContext(ctx, "sweeper: allocations were moved on", "expired", r.Expired, "without_job", r.Continued)
	}
	return errors.Join(append(errs, a.sweepKeys(ctx, r))...)
}

// sweepKeys withdraws keys of allocations that their projects do not have any more, and starts the
// jobs that bring changed keys to nodes: those that another job kept from being started, and those
// that have to try again.
func (a *Activities) sweepKeys(ctx context.Context, r *StartsReport) error {
	withdrawn, err := allocationdb.WithdrawEndedKeys(ctx, a.Store, allocationsBatch)
	if err != nil {
		return err
	}
	r.KeyJobs, err = allocation.StartKeyJobs(ctx, a.Store, "", actor, allocationsBatch)
	if withdrawn > 0 || len(r.KeyJobs) > 0 {
		a.Log.WarnContext(ctx, "sweeper: keys of allocations are changed", "withdrawn", withdrawn, "jobs_of", r.KeyJobs)
	}
	return err
}

// parkLost parks a job whose workflow is lost, and its subject with it. It returns whether the job
// was parked, and whether it was ended then because another one takes over.
func (p *pass) parkLost(ctx context.Context, tx *db.Tx, j db.LiveJob, cause string) (parked, ended bool, err error) {
	job, err := tx.Job(ctx, j.ID)
	if err != nil {
		return false, false, err
	}
	s := subject.Of(contract.JobKind(job.Kind))
	if _, err := s.Lock(ctx, tx, subject.Ref{JobID: job.ID, ID: job.ResourceID}); err != nil { // before its job, as a projection does
		return false, false, err
	}
	if parked, err = tx.ParkLost(ctx, j, cause, actor); err != nil || !parked {
		return false, false, err
	}
	ended, err = s.Park(ctx, tx, job, lifecycle.FailWorkflowLost, actor)
	return true, ended, err
}
