// Package paymentjob is the job that reconciles a payment: it reads what the payment provider has
// received, and credits it once. The row of the payment session is the only state before the payer
// has finished the page; from then on there is at most one live job for each session.
package paymentjob

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a job of a payment knows; it is checkpointed with each projection.
type State struct {
	Job     contract.JobRef       `json:"job"`
	Request contract.PaymentInput `json:"request"`
	Facts   contract.PaymentFacts `json:"facts,omitzero"`
	// Decision is what an operator decided about the money when the operator adopted what the
	// payment provider shows; "" while nobody has.
	Decision lifecycle.Resolution `json:"decision,omitempty"`
}

// PaymentReconcile is the workflow that reconciles a payment. Its name is that of the workflow:
// Temporal would run a function named Reconcile for the workflow Reconcile of another package.
func PaymentReconcile(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, ReconcileJob(in), in)
}

// unavailableTries is how often the payment provider is asked again while it does not answer: once
// a minute, until the deadline of the stage. A class of failure alone would give up after minutes.
const unavailableTries = 200

// rejectedTries is how often an answer that rejects a request is asked for: a proxy may have given
// it.
const rejectedTries = 5

// ReconcileJob is the reconciliation for one input. Nothing of it is undone: what is booked of a
// payment stays booked.
func ReconcileJob(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:   contract.KindPaymentReconcile,
		Stages: reconcileStages(),
		Init: func(s *State, input []byte) error {
			s.Job = in.Ref()
			if err := json.Unmarshal(input, &s.Request); err != nil {
				return fmt.Errorf("request of a payment: %w", err)
			}
			if s.Request.SessionID == "" || s.Request.SessionID != in.ResourceID {
				return errors.New("the request names no payment session")
			}
			return nil
		},
		Moves: func(s *State, at contract.Step) *contract.Move {
			if at.Entered == "" {
				return nil
			}
			return contract.PaymentMove{}.Move(s.Request.SessionID)
		},
		Attempts: func(s *State, class lifecycle.FailureClass, dflt int) int {
			switch class { //nolint:exhaustive // every other class keeps its number
			case lifecycle.FailPaymentsUnavailable:
				return unavailableTries
			case lifecycle.FailPaymentsRejected:
				return rejectedTries
			case lifecycle.FailPaymentCredit:
				return max(s.Facts.CreditAttempts, 1)
			}
			return dflt
		},
	}
}
