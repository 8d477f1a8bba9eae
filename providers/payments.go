package providers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Payments takes payments through pages that the payment provider hosts. Amounts are in minor units
// of the currency; the provider's own exponents are those of ISO 4217. Each call has a deadline.
//
// A mutation takes a key from the caller. Sent again with the same key and parameters within
// KeyLife, it changes nothing and returns what the first one made. Where its outcome is not known
// the error is KindUncertain: send it again with the same key, or list what is there.
type Payments interface {
	// CreateSession opens a payment page. It returns KindInvalid when the provider refuses the
	// parameters, and an error that IsKeySpent when the key will never make a session.
	CreateSession(ctx context.Context, in SessionCreate) (PaymentSession, error)
	// Session reads a session. It returns KindNotFound when there is none, and KindForeign when it
	// is of the other mode.
	Session(ctx context.Context, id string) (PaymentSession, error)
	// ExpireSession closes an open page. It returns KindStateConflict when the session is not open:
	// read it.
	ExpireSession(ctx context.Context, id string) (PaymentSession, error)
	// Sessions lists sessions.
	Sessions(ctx context.Context, q PaymentQuery) (PaymentPage[PaymentSession], error)

	// Events lists events of the last 30 days. It returns KindNotFound when the cursor is too old.
	Events(ctx context.Context, q EventQuery) (PaymentPage[PaymentEvent], error)
	// Movements lists the movements of the account's balance.
	Movements(ctx context.Context, q PaymentQuery) (PaymentPage[PaymentMovement], error)

	// CreateRefund returns a part of a payment to the payer. It returns KindStateConflict when the
	// provider refuses: more than is left, or disputed.
	CreateRefund(ctx context.Context, in RefundCreate) (PaymentRefund, error)
	// Refund reads a refund. It returns KindNotFound when there is none.
	Refund(ctx context.Context, id string) (PaymentRefund, error)
	// Refunds lists the refunds of a payment, those made in the provider's dashboard too.
	Refunds(ctx context.Context, paymentID string, q PaymentQuery) (PaymentPage[PaymentRefund], error)
	// Dispute reads a dispute. It returns KindNotFound when there is none.
	Dispute(ctx context.Context, id string) (PaymentDispute, error)
	// Disputes lists the disputes of a payment.
	Disputes(ctx context.Context, paymentID string, q PaymentQuery) (PaymentPage[PaymentDispute], error)
}

// KeyLife is how long a key of a mutation may be used. The provider keeps keys for 24 hours; after
// that the same key would make a second session, so the caller stops an hour earlier.
const KeyLife = 23 * time.Hour

// ErrKeySpent is the cause of an error after which the same key will never succeed: the provider
// has stored a failure with it, and replays that. The mutation may have taken effect all the same:
// list the sessions before another key is used.
var ErrKeySpent = errors.New("the key is spent")

// IsKeySpent reports whether the key of the mutation will never succeed.
func IsKeySpent(err error) bool { return errors.Is(err, ErrKeySpent) }

// PaymentsAccount is the account at the payment provider.
type PaymentsAccount struct {
	// Rule says to which addresses the client may connect.
	Rule spec.AddressRule
	// URL is the base of the provider's API.
	URL string
	Key Secret
	// Live says that real money moves. The key must be one of this mode.
	Live bool
}

// PaymentsOpener opens clients of the payment provider. It sends nothing.
type PaymentsOpener interface {
	OpenPayments(account PaymentsAccount) (Payments, error)
}

// SessionCreate is a payment page for one amount.
type SessionCreate struct {
	// Key makes the call repeatable: a new one for each attempt, at most 255 characters.
	Key string
	// Reference is the id of our own row; the provider shows it in the session.
	Reference string
	// Installation tells our sessions from others in the same account.
	Installation string
	Amount       int64
	Currency     string // ISO 4217, upper or lower case
	Product      string // what the payer reads
	// SuccessURL and CancelURL are where the payer's browser goes. {CHECKOUT_SESSION_ID} in them
	// becomes the id of the session.
	SuccessURL, CancelURL string
	// Email is put into the page; "" lets the payer type one.
	Email string
	// Expires is when the page closes: 30 minutes to 24 hours from now.
	Expires time.Time
}

// SessionStatus is the state of a payment page.
type SessionStatus string

// The states of a payment page.
const (
	SessionOpen     SessionStatus = "open"
	SessionComplete SessionStatus = "complete"
	SessionExpired  SessionStatus = "expired"
)

// PaymentSession is a payment page and what came of it. Only a session that is Paid may be
// credited: a complete one waits for a delayed payment method.
type PaymentSession struct {
	ID           string
	Status       SessionStatus
	Paid         bool
	Amount       int64
	Currency     string // upper case
	Reference    string
	Installation string
	PaymentID    string // "" before the payer tried to pay
	URL          string // "" when the page is closed
	Live         bool
	Created      time.Time
	Expires      time.Time
}

// PaymentQuery is one page of a list. At most one of After and Before is set.
type PaymentQuery struct {
	// After lists what is newer than this id, the oldest first; Before what is older, the newest
	// first.
	After, Before string
	// From and Until bound the time of creation, in whole seconds; zero is no bound. Until is
	// excluded.
	From, Until time.Time
	// Limit is the most items, 1 to 100; 0 is 100.
	Limit int
}

// PaymentPage is one page of a list: the oldest first where the query has After, else the newest
// first. The next page continues after its last item.
type PaymentPage[T any] struct {
	Items []T
	More  bool
}

// EventQuery is one page of the list of events.
type EventQuery struct {
	PaymentQuery
	// Types are at most 20 types; none is all.
	Types []string
	// Undelivered lists only those that no webhook has accepted.
	Undelivered bool
}

// PaymentEvent says that something happened to an object. It is a reason to read the object, never
// a proof of what it says.
type PaymentEvent struct {
	ID         string
	Type       string // such as checkout.session.completed
	ObjectKind string // such as checkout.session; "" when the event has no object
	ObjectID   string
	Live       bool
	// Release is the version of the provider's API that Object is written in.
	Release string
	// KnownRelease says that Object can be decoded by this build.
	KnownRelease bool
	Created      time.Time
	Object       json.RawMessage
}

// PaymentMovement is one movement of the account's balance. The sum of all Amounts of a currency is
// the balance before fees.
type PaymentMovement struct {
	ID       string
	Kind     string // such as charge, payment, refund, adjustment
	Category string // such as charge, refund, dispute
	Source   string // id of the object that caused it
	Amount   int64
	Fee      int64
	Currency string // upper case
	// Converted says that what was paid is of another currency than Currency, in which the provider
	// settles.
	Converted bool
	Created   time.Time
}

// RefundCreate returns a part of a payment to the payer.
type RefundCreate struct {
	// Key makes the call repeatable: the id of our own refund.
	Key       string
	PaymentID string
	Reference string // the id of our own refund
	Amount    int64
}

// RefundStatus is the state of a refund.
type RefundStatus string

// The states of a refund. A refund that has succeeded can still fail days later.
const (
	RefundPending   RefundStatus = "pending"
	RefundSucceeded RefundStatus = "succeeded"
	RefundFailed    RefundStatus = "failed"
	RefundCanceled  RefundStatus = "canceled"
	RefundAction    RefundStatus = "requires_action"
)

// PaymentRefund is money on its way back to the payer.
type PaymentRefund struct {
	ID        string
	Status    RefundStatus
	Amount    int64
	Currency  string // upper case
	PaymentID string
	Reference string // "" for one of the provider's dashboard
	Created   time.Time
}

// PaymentDispute is a payment that the payer's bank takes back.
type PaymentDispute struct {
	ID        string
	Status    string // such as needs_response
	Won, Lost bool   // neither while it is open
	Warning   bool   // an inquiry, or one that was prevented: it takes no money
	Amount    int64
	Currency  string // upper case
	PaymentID string
	Live      bool
	Created   time.Time
}
