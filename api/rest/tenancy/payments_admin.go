package tenancy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AccountPayment is a payment session as operators see it.
type AccountPayment struct {
	PaymentSession
	RequestedBy      string `json:"requested_by"`
	ReceivedMinor    *int64 `json:"received_minor,omitempty" doc:"What Stripe has received"`
	ReceivedCurrency string `json:"received_currency,omitempty"`
	StripePaymentID  string `json:"stripe_payment_intent_id,omitempty"`
	LedgerEntryID    *int64 `json:"ledger_entry_id,omitempty" doc:"The transaction that credited it"`
	SuspenseEntryID  *int64 `json:"suspense_entry_id,omitempty" doc:"The transaction that booked a payment which could not be credited"`
	CreditAttempts   int    `json:"credit_attempts" doc:"Credits that failed"`
	LastError        string `json:"last_error,omitempty"`
	ResolvedBy       string `json:"resolved_by,omitempty"`
}

func (d digits) accountPaymentView(s paymentsdb.Session) AccountPayment {
	return AccountPayment{
		d.paymentView(s), s.RequestedBy, s.ReceivedMinor, s.ReceivedCurrency, text(s.StripePaymentIntentID), s.LedgerEntryID, s.SuspenseEntryID, s.CreditAttempts, s.LastError, s.ResolvedBy,
	}
}

// PaymentDetail is a payment session with what went back of it.
type PaymentDetail struct {
	AccountPayment
	Refunds  []PaymentRefund  `json:"refunds" nullable:"false"`
	Disputes []PaymentDispute `json:"disputes" nullable:"false"`
}

// PaymentRefund is money on its way back to a payer.
type PaymentRefund struct {
	ID             string                `json:"id" doc:"rfd_..."`
	SessionID      string                `json:"session_id"`
	Origin         string                `json:"origin" enum:"operator,dashboard" doc:"dashboard: it was made at Stripe"`
	AmountMinor    int64                 `json:"amount_minor"`
	Currency       string                `json:"currency"`
	State          lifecycle.RefundState `json:"state" enum:"requested,pending,succeeded,failed" doc:"failed: the amount is in the balance again"`
	StripeRefundID string                `json:"stripe_refund_id,omitempty"`
	Reason         string                `json:"reason,omitempty"`
	RequestedBy    string                `json:"requested_by"`
	LastError      string                `json:"last_error,omitempty"`
	CreatedAt      time.Time             `json:"created_at"`
	EndedAt        *time.Time            `json:"ended_at,omitempty"`
}

func refundView(r paymentsdb.Refund) PaymentRefund {
	return PaymentRefund{
		r.ID, r.SessionID, r.Origin, r.AmountMinor, r.Currency, r.State, text(r.StripeRefundID), r.Reason, r.RequestedBy, r.LastError, r.CreatedAt.UTC(), utc(r.EndedAt),
	}
}

// PaymentDispute is a payment that a payer's bank takes back.
type PaymentDispute struct {
	ID               string                 `json:"id" doc:"Of Stripe"`
	SessionID        string                 `json:"session_id"`
	BillingAccountID string                 `json:"billing_account_id"`
	AmountMinor      int64                  `json:"amount_minor"`
	Currency         string                 `json:"currency"`
	State            lifecycle.DisputeState `json:"state" enum:"open,won,lost"`
	OpenedAt         time.Time              `json:"opened_at"`
	ClosedAt         *time.Time             `json:"closed_at,omitempty"`
	ClearedAt        *time.Time             `json:"cleared_at,omitempty" doc:"When an operator let the billing account go on"`
	ClearedBy        string                 `json:"cleared_by,omitempty"`
	ClearedReason    string                 `json:"cleared_reason,omitempty"`
}

func disputeView(d paymentsdb.Dispute) PaymentDispute {
	return PaymentDispute{
		d.ID, d.SessionID, d.BillingAccountID, d.AmountMinor, d.Currency, d.State, d.OpenedAt.UTC(), utc(d.ClosedAt), utc(d.ClearedAt), d.ClearedBy, d.ClearedReason,
	}
}

// PaymentDifference is what differs between Stripe and the ledger.
type PaymentDifference struct {
	Kind           string     `json:"kind" enum:"session,total,refund,dispute"`
	Subject        string     `json:"subject" doc:"What differs: an id of Stripe, or a currency"`
	Message        string     `json:"message"`
	AmountMinor    int64      `json:"amount_minor"`
	FoundAt        time.Time  `json:"found_at"`
	CheckedAt      time.Time  `json:"checked_at"`
	AcknowledgedAt *time.Time `json:"acknowledged_at,omitempty"`
	AcknowledgedBy string     `json:"acknowledged_by,omitempty"`
	Reason         string     `json:"reason,omitempty"`
}

func differenceView(d paymentsdb.Difference) PaymentDifference {
	return PaymentDifference{d.Kind, d.Subject, d.Message, d.AmountMinor, d.FoundAt.UTC(), d.CheckedAt.UTC(), utc(d.AcknowledgedAt), d.AcknowledgedBy, d.Reason}
}

// ForeignPayment is a session of the same account at Stripe that is not of this installation.
type ForeignPayment struct {
	ID           string    `json:"id" doc:"Of Stripe"`
	Installation string    `json:"installation,omitempty" doc:"The installation that it names"`
	Reference    string    `json:"reference,omitempty"`
	AmountMinor  int64     `json:"amount_minor"`
	Currency     string    `json:"currency"`
	Paid         bool      `json:"paid"`
	CreatedAt    time.Time `json:"created_at"`
	FoundAt      time.Time `json:"found_at"`
}

func foreignView(f paymentsdb.Foreign) ForeignPayment {
	return ForeignPayment{f.ID, f.Installation, f.Reference, f.AmountMinor, f.Currency, f.Paid, f.CreatedAt.UTC(), f.FoundAt.UTC()}
}

// ResolveRequest decides about a payment that could not be credited.
type ResolveRequest struct {
	Resolution string `json:"resolution" required:"true" maxLength:"20" enum:"credit,refund,write_off" doc:"credit gives what was paid to the balance; refund returns it to the payer; write_off books it away"`
	Reason     string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"Those who pay for the project see it"`
}

// RefundRequest asks to return a part of a credited payment to the payer.
type RefundRequest struct {
	AmountMinor int64  `json:"amount_minor" required:"true" minimum:"1" maximum:"1000000000000" doc:"At most what of the payment is not refunded, and what of the balance is neither spent nor held back"`
	Reason      string `json:"reason" required:"true" minLength:"3" maxLength:"500" doc:"Those who pay for the project see it"`
}

// AdminPaymentPath is the path of a payment session for operators.
type AdminPaymentPath struct {
	PaymentID string `path:"payment_id" maxLength:"200" doc:"pay_..."`
}

// actionRoute declares a POST that changes what is there.
func (s *paymentServer) actionRoute(id, path, summary, description string) huma.Operation {
	return huma.Operation{OperationID: id, Method: http.MethodPost, Path: path, Tags: []string{"billing"}, Summary: summary, Description: description}
}

func (s *paymentServer) registerAdmin() {
	const sessions, one = "/admin/payments/sessions", "/admin/payments/sessions/{payment_id}"
	billingRoute(s.server, "list-account-payments", http.MethodGet, sessions, "List payments of all billing accounts, newest first",
		"Without a filter, and with stuck=true, the list has those that an operator may have to look at: initiated for over an hour, paid and not credited for over an hour, or failed_reconcile without a resolution.", s.listAccountPayments)
	billingRoute(s.server, "get-account-payment", http.MethodGet, one, "Read a payment with its refunds and disputes", "", s.getAccountPayment)
	reconcile := s.actionRoute("reconcile-payment", one+"/reconcile", "Have a payment compared with Stripe, and credited when it is paid",
		"The answer names the job that does so: a new one, or the one that is under way. GET /admin/jobs/{id} follows it.")
	reconcile.DefaultStatus = http.StatusAccepted
	op.Add(s.api, reconcile, s.reconcilePayment)
	resolve := s.actionRoute("resolve-payment", one+"/resolve", "Decide about a payment that could not be credited",
		"Only a session that is failed_reconcile is resolved. A parked job of it ends with the next pass. Repeating the same decision changes nothing.")
	resolve.DefaultStatus = http.StatusOK
	op.Add(s.api, resolve, s.resolvePayment)
	billingRoute(s.server, "create-refund", http.MethodPost, one+"/refunds", "Return a part of a credited payment to the payer",
		"The amount is taken from the balance at once, and comes back when Stripe refuses the refund. Repeating it with its Idempotency-Key refunds nothing more, at any later time too.", s.createRefund)
	freeing := s.actionRoute("clear-dispute", "/admin/payments/disputes/{dispute_id}/clear", "Let the billing account of a lost dispute go on",
		"Until then it gets no new allocation.")
	freeing.DefaultStatus = http.StatusNoContent
	op.Add(s.api, freeing, s.clearDispute)
	billingRoute(s.server, "list-payment-differences", http.MethodGet, "/admin/payments/differences", "List what differs between Stripe and the ledger", "", s.listDifferences)
	acknowledge := s.actionRoute("acknowledge-payment-difference", "/admin/payments/differences/{kind}/{subject}/acknowledge", "Say that a difference is known",
		"It requires operator action again when its amount changes.")
	acknowledge.DefaultStatus = http.StatusNoContent
	op.Add(s.api, acknowledge, s.acknowledgeDifference)
	billingRoute(s.server, "list-foreign-payments", http.MethodGet, "/admin/payments/foreign-sessions", "List sessions of the same account at Stripe that are not of this installation",
		"They are in no total.", s.listForeign)
}

// AccountPaymentsFilter narrows the list of payments of all billing accounts.
type AccountPaymentsFilter struct {
	op.Page
	Stuck            bool   `query:"stuck" doc:"true: only those that an operator may have to look at, which is also the list without any filter. false: all"`
	Status           string `query:"status" maxLength:"30" enum:"initiated,checkout_completed,credited,failed_reconcile,expired" doc:"Only those of this status"`
	BillingAccountID string `query:"billing_account_id" maxLength:"200" doc:"Only of this billing account"`
	ProjectID        string `query:"project_id" maxLength:"200" doc:"Only those that were asked for in this project"`
}

// Resolve implements huma.Resolver: a request without a filter is for what an operator may have to
// look at.
func (f *AccountPaymentsFilter) Resolve(c huma.Context) []error {
	if c.Query("stuck") == "" && f.Status == "" && f.BillingAccountID == "" && f.ProjectID == "" {
		f.Stuck = true
	}
	return nil
}

func (s *paymentServer) listAccountPayments(ctx context.Context, in *AccountPaymentsFilter) (*op.Listed[AccountPayment], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	filter := paymentsdb.Filter{ProjectID: in.ProjectID, BillingAccountID: in.BillingAccountID, Statuses: ofStatus(in.Status), Stuck: in.Stuck}
	known, err := readDigits(ctx, s.api.Store())
	if err != nil {
		return nil, err
	}
	rows, err := paymentsdb.List(ctx, s.api.Store(), filter, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, paymentID, known.accountPaymentView), nil
}

func (s *paymentServer) getAccountPayment(ctx context.Context, in *AdminPaymentPath) (*op.Versioned[PaymentDetail], error) {
	row, err := paymentsdb.Get(ctx, s.api.Store(), in.PaymentID)
	if err != nil {
		return nil, err
	}
	refunds, err := paymentsdb.ListRefunds(ctx, s.api.Store(), row.ID)
	if err != nil {
		return nil, err
	}
	disputes, err := paymentsdb.ListDisputes(ctx, s.api.Store(), row.ID)
	if err != nil {
		return nil, err
	}
	known, err := readDigits(ctx, s.api.Store())
	out := PaymentDetail{known.accountPaymentView(row), []PaymentRefund{}, []PaymentDispute{}}
	for _, r := range refunds {
		out.Refunds = append(out.Refunds, refundView(r))
	}
	for _, d := range disputes {
		out.Disputes = append(out.Disputes, disputeView(d))
	}
	return op.WithVersion(row.Version, out), err
}

// ReconcileRequest says why.
type ReconcileRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"It stands in the audit log"`
}

// PaymentJob names the job that reconciles a payment.
type PaymentJob struct {
	SessionID string              `json:"session_id" doc:"pay_..."`
	JobID     string              `json:"job_id" doc:"job_..."`
	Status    lifecycle.JobStatus `json:"status"`
}

func (s *paymentServer) reconcilePayment(ctx context.Context, in *struct {
	AdminPaymentPath
	Body *ReconcileRequest
}) (*op.Created[PaymentJob], error) {
	actor := op.Actor(ctx)
	if in.Body != nil {
		actor.Comment = in.Body.Reason
	}
	var out PaymentJob
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		job, err := payments.Reconcile(ctx, tx, s.sync.Policy, in.PaymentID, actor)
		out = PaymentJob{in.PaymentID, job.ID, job.Status}
		return err
	})
	if err != nil {
		return nil, refuseOff(err)
	}
	return &op.Created[PaymentJob]{Status: http.StatusAccepted, Location: op.Prefix + "/admin/jobs/" + out.JobID, Body: out}, nil
}

func (s *paymentServer) resolvePayment(ctx context.Context, in *struct {
	AdminPaymentPath
	Body ResolveRequest
}) (*op.Versioned[AccountPayment], error) {
	reason, err := op.CheckReason("body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	row, err := s.sync.Resolve(ctx, payments.Decision{
		SessionID: in.PaymentID, Resolution: lifecycle.Resolution(in.Body.Resolution), Reason: reason, Actor: op.Actor(ctx),
	})
	if err != nil {
		return nil, refuseOff(err)
	}
	known, err := readDigits(ctx, s.api.Store())
	return op.WithVersion(row.Version, known.accountPaymentView(row)), err
}

func refuseOff(err error) error {
	if errors.Is(err, payments.ErrOff) {
		return problem.New(problem.Conflict, "payments are off on this installation, so that Stripe cannot be asked; turn them on with payment.stripe_key_ref")
	}
	return err
}

func (s *paymentServer) createRefund(ctx context.Context, in *struct {
	AdminPaymentPath
	op.Key
	Body RefundRequest
}) (*op.Created[PaymentRefund], error) {
	key, err := in.Required()
	if err != nil {
		return nil, err
	}
	reason, err := op.CheckReason("body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	row, err := s.sync.RequestRefund(ctx, payments.RefundRequest{
		SessionID: in.PaymentID, AmountMinor: in.Body.AmountMinor, Reason: reason, Key: key, Actor: op.Actor(ctx),
	})
	if err != nil {
		return nil, refuseOff(err)
	}
	return op.NewCreated(op.Prefix+"/admin/payments/sessions/"+row.SessionID, 1, refundView(row)), nil
}

func (s *paymentServer) clearDispute(ctx context.Context, in *struct {
	DisputeID string `path:"dispute_id" maxLength:"255" doc:"Of Stripe"`
	Body      ReasonRequest
}) (*struct{}, error) {
	actor, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error { return payments.ClearDispute(ctx, tx, in.DisputeID, actor.Comment, actor) })
}

func (s *paymentServer) listDifferences(ctx context.Context, in *struct{ op.Page }) (*op.Listed[PaymentDifference], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	kind, subject, found := strings.Cut(after, "/")
	if after != "" && !found {
		return nil, invalidQuery("cursor", "is not a cursor of this list; leave it out to begin at the first page")
	}
	rows, err := paymentsdb.ListDifferences(ctx, s.api.Store(), kind, subject, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(d paymentsdb.Difference) string { return d.Kind + "/" + d.Subject }, differenceView), nil
}

func (s *paymentServer) acknowledgeDifference(ctx context.Context, in *struct {
	Kind    string `path:"kind" maxLength:"20" doc:"session, total, refund or dispute"`
	Subject string `path:"subject" maxLength:"255" doc:"As the list says it"`
	Body    ReasonRequest
}) (*struct{}, error) {
	actor, err := operator(ctx, "body.reason", in.Body.Reason)
	if err != nil {
		return nil, err
	}
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		return payments.Acknowledge(ctx, tx, in.Kind, in.Subject, actor.Comment, actor)
	})
}

func (s *paymentServer) listForeign(ctx context.Context, in *struct{ op.Page }) (*op.Listed[ForeignPayment], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := paymentsdb.ListForeign(ctx, s.api.Store(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(f paymentsdb.Foreign) string { return f.ID }, foreignView), nil
}
