package subject

import (
	"context"
	"encoding/json"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var paymentSessions = Subject{
	Kind: contract.SubjectPayment,
	Lock: func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error) {
		s, err := paymentsdb.Lock(ctx, tx, ref.ID)
		return func(ctx context.Context, tx *db.Tx, p contract.Projection, _ json.RawMessage) error {
			var class lifecycle.FailureClass
			problem := "its job was cancelled"
			if p.Failure != nil {
				class, problem = p.Failure.Class, p.Failure.Message
			}
			return payments.FollowJob(ctx, tx, s, p.Status, class, problem, by(p))
		}, err
	},
	Park: func(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, _ db.Actor) (bool, error) {
		s, err := paymentsdb.Lock(ctx, tx, job.ResourceID)
		if err != nil {
			return false, err
		}
		actor := db.Actor{Owner: lifecycle.OwnerJob, WorkflowID: job.WorkflowID}
		return false, payments.FollowJob(ctx, tx, s, lifecycle.Failure(class).ParkStatus(), class, "its job is parked: "+string(class), actor)
	},
	EndUnstarted: func(ctx context.Context, tx *db.Tx, job db.Job, actor db.Actor) error {
		s, err := paymentsdb.Lock(ctx, tx, job.ResourceID)
		if err != nil {
			return err
		}
		actor.WorkflowID = job.WorkflowID
		return payments.FollowJob(ctx, tx, s, lifecycle.JobCancelled, "", "its job was cancelled before it began", actor)
	},
}
