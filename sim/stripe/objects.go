package stripesim

import "time"

// The state behind Stripe's objects. Times are the simulator's.

type session struct {
	id, reference, currency, product    string
	successURL, cancelURL, email        string
	created, expires                    time.Time
	amount                              int64 // of all line items, in minor units
	quantity                            int64
	metadata, intentMetadata            map[string]string
	methods                             []string
	adaptivePricing, promotionCodes     *bool
	automaticTax                        bool
	status, paymentStatus               string // open, complete, expired; unpaid, paid
	intent                              *intent
	cancelTimer                         func()
	locale, submitType, customerCreates string
}

type intent struct {
	id, currency, status string // requires_payment_method, processing, succeeded, canceled
	amount, received     int64
	created              time.Time
	canceled             time.Time
	metadata             map[string]string
	methods              []string
	charge               *charge
	declined             bool
	secret               string
}

type charge struct {
	id, currency, status string // pending, succeeded, failed
	method               string
	amount, refunded     int64
	created              time.Time
	intent               *intent
	email                string
	disputed             bool
	movement             *movement
}

type refund struct {
	id, status, reason string // pending, succeeded, failed
	amount             int64
	created            time.Time
	charge             *charge
	metadata           map[string]string
	movement, failure  *movement
}

type dispute struct {
	id, status, reason string // needs_response, won, lost
	amount             int64
	created            time.Time
	charge             *charge
	movements          []*movement
}

// movement is a balance transaction.
type movement struct {
	id, kind, category, currency, source string
	amount, fee                          int64
	created                              time.Time
}

type event struct {
	id, kind, version string
	created           time.Time
	data              object // of the object, as it was
	requestID, key    string
	deliveries        []*delivery // one for each endpoint
}

// Session states and payment states, as Stripe names them.
const (
	statusOpen     = "open"
	statusComplete = "complete"
	statusExpired  = "expired"

	unpaid = "unpaid"
	paid   = "paid"

	statusSucceeded = "succeeded"
	statusPending   = "pending"
	statusFailed    = "failed"

	disputeOpen = "needs_response"
	disputeWon  = "won"
	disputeLost = "lost"
)
