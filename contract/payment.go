package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// PaymentInput is the accepted request of a job of a payment: everything else is read from the
// payment provider and from the session.
type PaymentInput struct {
	SessionID string `json:"session_id"`
}

// PaymentFacts is what an activity found of a payment. Amounts are in minor units.
type PaymentFacts struct {
	SessionID string `json:"session_id,omitempty"`

	Status   lifecycle.PaymentStatus `json:"status,omitempty"`
	Paid     bool                    `json:"paid,omitempty"`
	Received int64                   `json:"received_minor,omitempty"`
	Currency string                  `json:"currency,omitempty"`
	// Settled says that the session is credited, or that an operator has decided about it.
	Settled bool `json:"settled,omitempty"`
	// CreditAttempts is how often a credit is tried, by the settings.
	CreditAttempts int    `json:"credit_attempts,omitempty"`
	Note           string `json:"note,omitempty"`
}

// TimelineNote is what the timeline says.
func (f PaymentFacts) TimelineNote() string { return f.Note }

// ActionMetadata is what the action log says of the payment.
func (f PaymentFacts) ActionMetadata() lifecycle.ActionMetadata {
	if f.SessionID == "" {
		return lifecycle.ActionMetadata{}
	}
	return lifecycle.ActionMetadata{Payment: &lifecycle.PaymentInfo{SessionID: f.SessionID, Status: string(f.Status), ReceivedMinor: f.Received, Currency: f.Currency}}
}

// The states of a payment that a job observes.
const (
	PaymentUnpaid      = "unpaid"
	PaymentPaidInFull  = "paid_in_full"
	PaymentOtherAmount = "paid_other_amount"
	PaymentSettled     = "settled"
)

// PaymentObservation is what the payment provider shows of a payment.
type PaymentObservation struct {
	State string `json:"state"`
	Note  string `json:"note,omitempty"`
}

// PaymentDecision is what an operator decides about the money of a payment by an action. Entry is
// the action with its proof, and RunID the run that carries it out.
type PaymentDecision struct {
	JobRef
	Entry ActionEntry `json:"entry"`
	RunID string      `json:"run_id"`
}

// PaymentMove tells the payment session of its job. The projection says in which status the job is.
type PaymentMove struct{}

// Move returns the move of a payment session.
func (m PaymentMove) Move(sessionID string) *Move {
	return newMove(SubjectPayment, sessionID, false, m)
}
