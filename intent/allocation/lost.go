package allocation

import (
	"context"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// LoseJob moves the allocation of a job that was parked because its workflow is lost. A release has
// failed then; resuming its job goes on with it. A provision, and a job that changes keys, never
// wait for an operator: the job ends, which LoseJob reports, and what Continue does follows.
func LoseJob(ctx context.Context, tx *db.Tx, job db.Job) (ended bool, err error) {
	actor := db.Actor{Owner: lifecycle.OwnerSystem, Comment: "the workflow of its job was lost", WorkflowID: job.WorkflowID}
	a, err := allocationdb.Lock(ctx, tx, job.ResourceID)
	if err != nil {
		return false, err
	}
	if job.Kind == string(contract.KindAllocationRelease) {
		if a.Status == lifecycle.AllocationReleasing {
			_, err = allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationFailRelease, Actor: actor})
		}
		return false, err
	}
	for _, t := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobCompensate, lifecycle.JobCancel} {
		if _, err := tx.TransitionJob(ctx, job.ID, t, nil, actor); err != nil {
			return false, err
		}
	}
	_, err = Continue(ctx, tx, a.ID)
	return true, err
}
