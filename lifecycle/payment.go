package lifecycle

// PaymentStatus is the state of a payment session: of one amount that a customer wants to add to
// the balance of a billing account.
type PaymentStatus string

// The states of a payment session.
const (
	PaymentInitiated         PaymentStatus = "initiated"
	PaymentCheckoutCompleted PaymentStatus = "checkout_completed"
	PaymentCredited          PaymentStatus = "credited"
	PaymentFailedReconcile   PaymentStatus = "failed_reconcile"
	PaymentExpired           PaymentStatus = "expired"
)

// The transitions of a payment session. Each follows what the payment provider answers to a
// question with the platform's own key, never what a webhook says.
var (
	PaymentComplete = Transition[PaymentStatus]{
		Name: "complete", From: []PaymentStatus{PaymentInitiated, PaymentExpired}, To: PaymentCheckoutCompleted,
		Owners: []Owner{OwnerSystem, OwnerCustomer, OwnerAdmin}, Doc: "the payment provider says that the payer has finished the payment page",
	}
	PaymentCredit = Transition[PaymentStatus]{
		Name: "credit", From: []PaymentStatus{PaymentCheckoutCompleted}, To: PaymentCredited,
		Owners: []Owner{OwnerSystem, OwnerCustomer, OwnerAdmin}, Doc: "it is paid in full, and the same transaction posted it to the balance",
	}
	PaymentFail = Transition[PaymentStatus]{
		Name: "fail", From: []PaymentStatus{PaymentCheckoutCompleted}, To: PaymentFailedReconcile,
		Owners: []Owner{OwnerSystem, OwnerCustomer, OwnerAdmin, OwnerJob}, Doc: "its job is parked or was cancelled: what was paid differs from what was asked for, or could not be credited",
	}
	PaymentRetry = Transition[PaymentStatus]{
		Name: "retry", From: []PaymentStatus{PaymentFailedReconcile}, To: PaymentCheckoutCompleted,
		Owners: []Owner{OwnerAdmin, OwnerJob}, Doc: "an operator has a payment reconciled again that is booked nowhere yet",
	}
	PaymentResolve = Transition[PaymentStatus]{
		Name: "resolve", From: []PaymentStatus{PaymentFailedReconcile}, To: PaymentCredited,
		Owners: []Owner{OwnerAdmin, OwnerEngine}, Doc: "an operator decided that what was paid is credited",
	}
	PaymentExpire = Transition[PaymentStatus]{
		Name: "expire", From: []PaymentStatus{PaymentInitiated}, To: PaymentExpired,
		Owners: []Owner{OwnerSystem, OwnerCustomer, OwnerAdmin}, Doc: "the payment page is closed and nothing was paid, or there never was one",
	}
)

// Payment is the lifecycle of a payment session.
var Payment = Machine[PaymentStatus]{
	Resource: "payment_session",
	Initial:  []PaymentStatus{PaymentInitiated},
	States: []StateInfo[PaymentStatus]{
		{State: PaymentInitiated, Doc: "the payment page is open, or is being made"},
		{State: PaymentCheckoutCompleted, Doc: "the payer has finished the page; it is credited when the money has arrived"},
		{State: PaymentCredited, Doc: "the amount is in the balance", Terminal: true},
		{State: PaymentFailedReconcile, Doc: "money came that could not be credited; it requires operator action"},
		{State: PaymentExpired, Doc: "nothing was paid in time; a payment that is found later is credited all the same"},
	},
	Transitions: []Transition[PaymentStatus]{PaymentComplete, PaymentCredit, PaymentFail, PaymentRetry, PaymentResolve, PaymentExpire},
}

// The stages of a job that reconciles a payment session.
const (
	StageReadSession = "read_session"
	StageMatchAmount = "match_amount"
	StagePostCredit  = "post_credit"
	StageConfirm     = "confirm"
)

// PaymentReconcileStages lists the stages of a job that reconciles a payment session, in order.
func PaymentReconcileStages() []string {
	return []string{StageReadSession, StageMatchAmount, StagePostCredit, StageConfirm}
}

// The values of the payment status of a session.
const (
	PaidNot    = "unpaid"       // nothing, or a delayed method has not paid yet
	PaidFull   = "paid"         // the payment provider has it
	PaidFailed = "async_failed" // a delayed method did not pay
)

// The codes of a payment session that expired or failed.
const (
	PaymentCreateFailed = "create_failed" // the payment provider knows no page of it
	PaymentOtherMode    = "other_mode"    // it is of the other mode: test or live
	PaymentOff          = "payments_off"  // its page closed while payments were off
	PaymentMismatch     = "payment_mismatch"
	PaymentCreditFailed = "credit_failed"
)

// Resolution is what an operator decided about a payment session.
type Resolution string

// The resolutions.
const (
	ResolveCredit   Resolution = "credit"
	ResolveRefund   Resolution = "refund"
	ResolveWriteOff Resolution = "write_off"
)

// Resolutions lists all resolutions of a payment session.
var Resolutions = []Resolution{ResolveCredit, ResolveRefund, ResolveWriteOff}

// ResolveSuspense is no resolution of a session: an operator who adopts what the payment provider
// shows has it booked to suspense by this, and the session still needs a resolution.
const ResolveSuspense Resolution = "suspense"

// AdoptResolutions lists what an operator may decide about the money of a payment when the operator
// adopts what the payment provider shows.
var AdoptResolutions = []Resolution{ResolveCredit, ResolveSuspense, ResolveWriteOff}

// RefundState is the state of a refund.
type RefundState string

// The states of a refund. A refund that has succeeded can still fail days later.
const (
	RefundRequested RefundState = "requested" // held back of the balance; the payment provider was not asked, or did not answer
	RefundPending   RefundState = "pending"   // the payment provider has accepted it
	RefundSucceeded RefundState = "succeeded"
	RefundFailed    RefundState = "failed" // the amount is in the balance again
)

// RefundStates lists all states of a refund.
var RefundStates = []RefundState{RefundRequested, RefundPending, RefundSucceeded, RefundFailed}

// DisputeState is the state of a dispute.
type DisputeState string

// The states of a dispute.
const (
	DisputeOpen DisputeState = "open" // the amount is held, and the billing account is frozen
	DisputeWon  DisputeState = "won"
	DisputeLost DisputeState = "lost" // the billing account is frozen until an operator clears it
)
