// Package paymentsdb stores payments: the sessions of customers, what the payment provider told of
// them, refunds, disputes, and how far both sides were compared. It is a package below db. Locks
// are taken in this order: payment session, refund or dispute, billing account, ledger accounts.
package paymentsdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/payments/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The rows.
type (
	Session    = gen.PaymentSession
	Refund     = gen.PaymentRefund
	Dispute    = gen.PaymentDispute
	Foreign    = gen.PaymentForeignSession
	Difference = gen.PaymentDifference
	Control    = gen.PaymentControl
	Total      = gen.TotalsRow
	DueEvent   = gen.ClaimEventsRow
	SettledJob = gen.SettledJobsRow
)

// Conn runs queries: a *db.Store, a *db.Tx, or a *db.ProjectTx, which sees the sessions of one
// project and nothing else of payments.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

var what = db.Named("payment session")

// Resource is the kind of payment sessions in the audit log and in events.
var Resource = lifecycle.Payment.Resource

// New is a session that somebody asks for.
type New struct {
	ID                          string
	BillingAccountID, ProjectID string
	RequestedBy, Key            string
	RequestHash                 []byte
	AmountMinor                 int64
	Currency                    string
	Live                        bool
	SuccessURL, CancelURL       string
	ExpiresAt, NextLook         time.Time
	Actor                       db.Actor
}

// Create writes a session in its first state, with its audit row and its event. It returns a
// *db.ConflictError when the same user has used the key.
func Create(ctx context.Context, tx *db.Tx, in New) (Session, error) {
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Session{}, err
	}
	first := lifecycle.Payment.Initial[0]
	payload, err := eventPayload(Session{ID: in.ID, ProjectID: in.ProjectID}, "", first)
	if err != nil {
		return Session{}, err
	}
	_, err = queries(tx).InsertSession(ctx, gen.InsertSessionParams{
		ID: in.ID, BillingAccountID: in.BillingAccountID, ProjectID: in.ProjectID, RequestedBy: in.RequestedBy, IdempotencyKey: in.Key, RequestHash: in.RequestHash,
		Status: first, RequestedAmountMinor: in.AmountMinor, Currency: in.Currency, Live: in.Live, SuccessURL: in.SuccessURL, CancelURL: in.CancelURL,
		ExpiresAt: in.ExpiresAt, NextLookAt: in.NextLook, EventID: db.NewID("evt"), EventType: first.EventType(), Payload: payload, AuditID: st.AuditID,
		TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if err != nil {
		return Session{}, db.MapError(what(in.ID), err)
	}
	return Get(ctx, tx, in.ID)
}

// eventPayload is what the members of the project are told: no amounts, which viewers do not read.
func eventPayload(s Session, from, to lifecycle.PaymentStatus) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"payment_session_id": s.ID, "project_id": s.ProjectID, "from": from, "status": to,
	})
}

// Transition is a transition of a session.
type Transition = lifecycle.Transition[lifecycle.PaymentStatus]

// Move is one change of the status of a session. An empty field keeps the stored value; after a nil
// NextLook the session is not polled again.
type Move struct {
	To                          Transition
	PaymentStatus               string
	ReceivedMinor               *int64
	ReceivedCurrency            string
	PaymentID                   *string
	CreditedMinor               *int64
	LedgerEntry, SuspenseEntry  *int64
	FailureCode, FailureMessage string
	Resolution                  lifecycle.Resolution
	ResolutionReason            string
	NextLook                    *time.Time
	Actor                       db.Actor
}

// MoveTo moves a locked session, with its audit row and its event. It returns
// *lifecycle.IllegalTransitionError when its status or the owner forbids it.
func MoveTo(ctx context.Context, tx *db.Tx, s Session, m Move) (Session, error) {
	from := s.Status
	err := db.CommitTransition(lifecycle.Payment, m.To, from, nil, m.Actor, func(st db.AuditStamp) error {
		payload, err := eventPayload(s, from, m.To.To)
		if err != nil {
			return err
		}
		_, err = queries(tx).MoveSession(ctx, gen.MoveSessionParams{
			ID: s.ID, FromState: string(from), ToState: m.To.To, Version: s.Version, Name: m.To.Name, PaymentStatus: m.PaymentStatus,
			ReceivedMinor: m.ReceivedMinor, ReceivedCurrency: m.ReceivedCurrency, StripePaymentIntentID: m.PaymentID, CreditedAmountMinor: m.CreditedMinor,
			LedgerEntryID: m.LedgerEntry, SuspenseEntryID: m.SuspenseEntry, FailureCode: m.FailureCode,
			FailureMessage: db.ClipText(m.FailureMessage, db.MaxMessage), Resolution: string(m.Resolution), ResolutionReason: m.ResolutionReason,
			ResolvedBy: ActorName(m.Actor), NextLookAt: m.NextLook, EventID: db.NewID("evt"), EventType: m.To.To.EventType(), Payload: payload,
			AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
			WorkflowID: st.WorkflowID,
		})
		return db.MapError("move "+what(s.ID), err)
	})
	if err != nil {
		return Session{}, err
	}
	return Get(ctx, tx, s.ID)
}

const maxActor = 300

// ActorName is how rows name who did something.
func ActorName(a db.Actor) string {
	if a.ID == "" {
		return string(a.Owner)
	}
	return db.ClipText(a.ID, maxActor)
}

// Get returns one session, or db.ErrNotFound.
func Get(ctx context.Context, c Conn, id string) (Session, error) {
	row, err := queries(c).Session(ctx, id)
	return row, db.MapError(what(id), err)
}

// GetOfProject returns a session of a project, or db.ErrNotFound.
func GetOfProject(ctx context.Context, c Conn, projectID, id string) (Session, error) {
	row, err := queries(c).SessionOfProject(ctx, gen.SessionOfProjectParams{ProjectID: projectID, ID: id})
	return row, db.MapError(what(id), err)
}

// Lock returns one session and keeps others from changing it until the transaction ends.
func Lock(ctx context.Context, tx *db.Tx, id string) (Session, error) {
	row, err := queries(tx).LockSession(ctx, id)
	return row, db.MapError(what(id), err)
}

// FindByRequest returns the session that somebody asked for with a key, or db.ErrNotFound.
func FindByRequest(ctx context.Context, c Conn, requestedBy, key string) (Session, error) {
	row, err := queries(c).SessionByRequest(ctx, gen.SessionByRequestParams{RequestedBy: requestedBy, IdempotencyKey: key})
	return row, db.MapError("payment session of a request", err)
}

// FindByPage returns the session of a page of the payment provider, or db.ErrNotFound.
func FindByPage(ctx context.Context, c Conn, pageID string) (Session, error) {
	row, err := queries(c).SessionByStripe(ctx, pageID)
	return row, db.MapError("payment session of page "+pageID, err)
}

// FindByPayment returns the session of a payment of the payment provider, or db.ErrNotFound.
func FindByPayment(ctx context.Context, c Conn, paymentID string) (Session, error) {
	row, err := queries(c).SessionByIntent(ctx, paymentID)
	return row, db.MapError("payment session of payment "+paymentID, err)
}

// Filter narrows a list; empty fields match all. Stuck keeps those that an operator may have to
// look at: initiated for over an hour, paid and not credited for over an hour, or failed_reconcile
// without a resolution.
type Filter struct {
	ProjectID, BillingAccountID string
	Statuses                    []lifecycle.PaymentStatus
	Stuck                       bool
}

// List lists sessions, newest first, from the one after the id given.
func List(ctx context.Context, c Conn, f Filter, after string, limit int) ([]Session, error) {
	p := gen.ListSessionsParams{
		After: after, ProjectID: f.ProjectID, BillingAccountID: f.BillingAccountID, Statuses: []string{}, Stuck: f.Stuck, MaxRows: db.PageLimit(limit),
	}
	for _, s := range f.Statuses {
		p.Statuses = append(p.Statuses, string(s))
	}
	rows, err := queries(c).ListSessions(ctx, p)
	return rows, db.MapError("list payment sessions", err)
}

// CountRequested returns how many sessions somebody has asked for since a time.
func CountRequested(ctx context.Context, c Conn, requestedBy string, since time.Time) (int64, error) {
	n, err := queries(c).CountRequested(ctx, gen.CountRequestedParams{RequestedBy: requestedBy, Since: since})
	return n, db.MapError("count payment sessions", err)
}

// CountOfAccount returns how many sessions were asked for since a time for a billing account.
func CountOfAccount(ctx context.Context, c Conn, accountID string, since time.Time) (int64, error) {
	n, err := queries(c).CountOfAccount(ctx, gen.CountOfAccountParams{BillingAccountID: accountID, Since: since})
	return n, db.MapError("count payment sessions", err)
}

// StorePage stores the page that the payment provider has made for a session. It can be repeated.
func StorePage(ctx context.Context, tx *db.Tx, id, pageID, url string, nextLook time.Time) error {
	_, err := queries(tx).StorePage(ctx, gen.StorePageParams{ID: id, StripeID: pageID, URL: url, NextLookAt: nextLook})
	return db.MapError(what(id), err)
}

// NextAttempt stores that the payment provider is asked with another key from now on. It returns
// db.ErrStale when the attempt is not the one given, or the session has a page.
func NextAttempt(ctx context.Context, tx *db.Tx, id string, attempt int) error {
	n, err := queries(tx).NextAttempt(ctx, gen.NextAttemptParams{ID: id, Attempt: attempt})
	return db.CheckGuarded(what(id), n, err)
}

// StorePaid stores what was paid for a session, without a change of its status.
func StorePaid(ctx context.Context, tx *db.Tx, id, paymentStatus string, minor int64, currency string, paymentID *string) error {
	return db.MapError(what(id), queries(tx).StorePaid(ctx, gen.StorePaidParams{
		ID: id, PaymentStatus: paymentStatus, ReceivedMinor: &minor, ReceivedCurrency: currency, StripePaymentIntentID: paymentID,
	}))
}

// StoreAsyncFailed stores that a delayed payment method did not pay.
func StoreAsyncFailed(ctx context.Context, tx *db.Tx, id string) error {
	return db.MapError(what(id), queries(tx).StoreAsyncFailed(ctx, id))
}

// CountCreditAttempt counts a credit that failed, and stores why.
func CountCreditAttempt(ctx context.Context, tx *db.Tx, id, problem string) error {
	return db.MapError(what(id), queries(tx).CountCreditAttempt(ctx, gen.CountCreditAttemptParams{ID: id, LastError: db.ClipText(problem, db.MaxMessage)}))
}

// ScheduleLook stores when a session is looked at again; nil ends the looks.
func ScheduleLook(ctx context.Context, c Conn, id string, at *time.Time, problem string) error {
	return db.MapError(what(id), queries(c).ScheduleLook(ctx, gen.ScheduleLookParams{ID: id, NextLookAt: at, LastError: db.ClipText(problem, db.MaxMessage)}))
}

// ListDue lists sessions that are to be looked at.
func ListDue(ctx context.Context, c Conn, limit int) ([]string, error) {
	ids, err := queries(c).SessionsDue(ctx, db.PageLimit(limit))
	return ids, db.MapError("list payment sessions that are due", err)
}

// ListLeft lists sessions whose pages closed before a time and that nobody has looked at since.
func ListLeft(ctx context.Context, c Conn, before time.Time, limit int) ([]string, error) {
	ids, err := queries(c).SessionsLeft(ctx, gen.SessionsLeftParams{Before: before, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("list payment sessions that are left", err)
}

// StoreSuspense stores the transaction that booked a payment which could not be credited.
func StoreSuspense(ctx context.Context, tx *db.Tx, id string, transactionID int64) error {
	return db.MapError(what(id), queries(tx).StoreSuspense(ctx, gen.StoreSuspenseParams{ID: id, TransactionID: transactionID}))
}

// StoreResolution stores what an operator decided about a session that stays failed. It returns
// db.ErrStale when somebody has decided before, otherwise than by a refund.
func StoreResolution(ctx context.Context, tx *db.Tx, id string, r lifecycle.Resolution, reason string, a db.Actor) error {
	n, err := queries(tx).StoreResolution(ctx, gen.StoreResolutionParams{ID: id, Resolution: r, Reason: reason, ResolvedBy: ActorName(a)})
	return db.CheckGuarded(what(id), n, err)
}

// AddRefunded adds to what of a session was asked back or went back; a negative amount takes from
// it.
func AddRefunded(ctx context.Context, tx *db.Tx, id string, minor int64) error {
	return db.MapError(what(id), queries(tx).AddRefunded(ctx, gen.AddRefundedParams{ID: id, AmountMinor: minor}))
}

// TakeLook reports whether a session may be compared with the payment provider now: nobody who
// waits for it has had that done for a time.
func TakeLook(ctx context.Context, c Conn, id string, every time.Duration) (bool, error) {
	n, err := queries(c).TakeLook(ctx, gen.TakeLookParams{ID: id, EverySeconds: every.Seconds()})
	return n > 0, db.MapError(what(id), err)
}

// ListSettledJobs lists parked jobs whose session is credited or resolved, so that nobody has to
// decide anything about them.
func ListSettledJobs(ctx context.Context, c Conn, limit int) ([]SettledJob, error) {
	rows, err := queries(c).SettledJobs(ctx, db.PageLimit(limit))
	return rows, db.MapError("list the parked jobs of settled payment sessions", err)
}
