package tenancy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers"
)

// PaymentSession is one amount that somebody wants to add to the balance of a billing account, as
// those who pay for the project see it. The id of its transaction would tell how much all customers
// are charged.
type PaymentSession struct {
	ID               string                  `json:"id" doc:"pay_..."`
	BillingAccountID string                  `json:"billing_account_id"`
	ProjectID        string                  `json:"project_id" doc:"The project in which it was asked for"`
	Status           lifecycle.PaymentStatus `json:"status" enum:"initiated,checkout_completed,credited,failed_reconcile,expired"`
	PaymentStatus    string                  `json:"payment_status" enum:"unpaid,paid,async_failed" doc:"async_failed: a delayed payment method did not pay"`
	RequestedMinor   int64                   `json:"requested_amount_minor" doc:"Minor units of the currency"`
	CreditedMinor    *int64                  `json:"credited_amount_minor,omitempty" doc:"What the balance gained"`
	RefundedMinor    int64                   `json:"refunded_minor" doc:"What was asked back or went back to the payer"`
	Currency         string                  `json:"currency"`
	Exponent         int                     `json:"exponent" doc:"Digits of the minor unit: 2 for USD, 0 for JPY"`
	URL              string                  `json:"url,omitempty" doc:"The payment page of Stripe; left out when it is closed, or not made yet"`
	ExpiresAt        time.Time               `json:"expires_at" doc:"When the page closes"`
	CreatedAt        time.Time               `json:"created_at"`
	CompletedAt      *time.Time              `json:"completed_at,omitempty" doc:"When the payer had finished the page"`
	CreditedAt       *time.Time              `json:"credited_at,omitempty"`
	StripeCheckoutID string                  `json:"stripe_checkout_session_id,omitempty"`
	FailureCode      string                  `json:"failure_code,omitempty" doc:"create_failed, other_mode, payments_off, payment_mismatch or credit_failed"`
	FailureMessage   string                  `json:"failure_message,omitempty"`
	Resolution       lifecycle.Resolution    `json:"resolution,omitempty" enum:"credit,refund,write_off" doc:"What an operator decided of a payment that could not be credited"`
	ResolutionReason string                  `json:"resolution_reason,omitempty"`
	ResolvedAt       *time.Time              `json:"resolved_at,omitempty"`
	Live             bool                    `json:"live" doc:"false in Stripe's test mode, in which no money moves"`
	Version          int64                   `json:"version"`
}

func (d digits) paymentView(s paymentsdb.Session) PaymentSession {
	out := PaymentSession{
		ID: s.ID, BillingAccountID: s.BillingAccountID, ProjectID: s.ProjectID, Status: s.Status, PaymentStatus: s.PaymentStatus,
		RequestedMinor: s.RequestedAmountMinor, CreditedMinor: s.CreditedAmountMinor, RefundedMinor: s.RefundedMinor, Currency: s.Currency, Exponent: d[s.Currency],
		ExpiresAt: s.ExpiresAt.UTC(), CreatedAt: s.CreatedAt.UTC(), CompletedAt: utc(s.CompletedAt), CreditedAt: utc(s.CreditedAt),
		StripeCheckoutID: text(s.StripeCheckoutSessionID), FailureCode: s.FailureCode, FailureMessage: s.FailureMessage,
		Resolution: s.Resolution, ResolutionReason: s.ResolutionReason, ResolvedAt: utc(s.ResolvedAt), Live: s.Live, Version: s.Version,
	}
	if s.Status == lifecycle.PaymentInitiated {
		out.URL = s.URL
	}
	return out
}

func paymentID(s paymentsdb.Session) string { return s.ID }

// CheckoutRequest asks for a payment page.
type CheckoutRequest struct {
	AmountMinor int64  `json:"amount_minor" required:"true" minimum:"1" maximum:"1000000000000" doc:"Minor units of the billing account's currency; operators set the least and the most"`
	SuccessURL  string `json:"success_url" required:"true" minLength:"1" maxLength:"2000" doc:"Where the payer's browser goes after the payment; operators set the hosts that are allowed"`
	CancelURL   string `json:"cancel_url" required:"true" minLength:"1" maxLength:"2000" doc:"Where the payer's browser goes without a payment"`
}

// PaymentPath is the path of a payment session of a project.
type PaymentPath struct {
	ProjectPath
	PaymentID string `path:"payment_id" maxLength:"200" doc:"pay_..."`
}

// paymentServer serves payments. sync asks the payment provider.
type paymentServer struct {
	*server
	sync *paymentsync.Syncer
}

func paymentAccess() op.Access {
	const sessions, one = "/admin/payments/sessions", "/admin/payments/sessions/{payment_id}"
	return op.Access{
		op.RoleProjectBilling: {
			"POST /projects/{id}/payments/checkout-session", "GET /projects/{id}/payments/sessions", "GET /projects/{id}/payments/sessions/{payment_id}",
		},
		op.RoleOperator: {
			"GET " + sessions, "GET " + one, "POST " + one + "/reconcile", "POST " + one + "/resolve", "POST " + one + "/refunds", "POST /admin/payments/disputes/{dispute_id}/clear",
			"GET /admin/payments/differences", "POST /admin/payments/differences/{kind}/{subject}/acknowledge", "GET /admin/payments/foreign-sessions",
		},
	}
}

// RegisterPayments declares the operations of payments. sync is nil where there are none: what is
// stored is shown then, and nothing is asked for.
func RegisterPayments(api *op.API, sync *paymentsync.Syncer) {
	api.Grant(paymentAccess())
	// Money that leaves by a browser that was left open does not come back.
	api.RequireStepUp(
		op.StepUp{Route: "POST /admin/payments/sessions/{payment_id}/resolve"}, op.StepUp{Route: "POST /admin/payments/sessions/{payment_id}/refunds"},
		op.StepUp{Route: "POST /admin/payments/disputes/{dispute_id}/clear"},
	)
	if sync == nil {
		sync = &paymentsync.Syncer{Store: api.Store(), Log: api.Log()}
	}
	s := &paymentServer{&server{api}, sync}
	const base = "/projects/{id}/payments"
	billingRoute(s.server, "create-checkout-session", http.MethodPost, base+"/checkout-session", "Ask for a payment page, to add to the balance of a project's billing account",
		"The payer opens the url of the answer. Repeating it with its Idempotency-Key makes no second page, at any later time too; it is how to go on after an answer of status 503.", s.createCheckout)
	billingRoute(s.server, "list-payment-sessions", http.MethodGet, base+"/sessions", "List the payments that were asked for in a project, newest first", "", s.listPayments)
	billingRoute(s.server, "get-payment-session", http.MethodGet, base+"/sessions/{payment_id}", "Read a payment",
		"One that is not paid yet is compared with Stripe first, every few seconds at most, and a job credits it soon after: the page on which a payer lands reads it until it is credited.", s.getPayment)
	s.registerAdmin()
	api.Shorten(op.Short{Route: "POST " + op.Prefix + "/payments/checkout-session", Own: base + "/checkout-session"})
}

func (s *paymentServer) createCheckout(ctx context.Context, in *struct {
	ProjectPath
	op.Key
	Body CheckoutRequest
}) (*op.Created[PaymentSession], error) {
	key, err := in.Required()
	if err != nil {
		return nil, err
	}
	if _, err := s.accountOf(ctx); err != nil {
		return nil, err
	}
	project := op.ProjectAccessOf(ctx).Project
	row, err := s.sync.CreateCheckout(ctx, payments.Request{
		ProjectID: project, AmountMinor: in.Body.AmountMinor, SuccessURL: in.Body.SuccessURL, CancelURL: in.Body.CancelURL, Key: key, Actor: op.ProjectActor(ctx),
	})
	if err != nil {
		return nil, s.refusePayment(ctx, err)
	}
	known, err := readDigits(ctx, s.api.Store())
	return op.NewCreated(op.Prefix+"/projects/"+project+"/payments/sessions/"+row.ID, row.Version, known.paymentView(row)), err
}

// retrySeconds is when to ask again for what Stripe has not answered.
const retrySeconds = 5

// refusePayment returns what a payer is told of an error. Stripe's own words are for operators.
func (s *paymentServer) refusePayment(ctx context.Context, err error) error {
	var away *providers.Error
	switch {
	case errors.Is(err, payments.ErrOff):
		return problem.New(problem.Conflict, "payments are off on this installation; operators turn them on with payment.stripe_key_ref")
	case errors.As(err, &away):
		s.api.Log().WarnContext(ctx, "payments: Stripe did not do what was asked", "request", op.Route(ctx), "request_id", op.RequestID(ctx), "error", err)
		return problem.New(problem.Unavailable, "the payment provider has not answered as it should; send the same request with the same Idempotency-Key again: "+
			"it cannot make a second payment").After(retrySeconds)
	}
	return err
}

func (s *paymentServer) listPayments(ctx context.Context, in *struct {
	ProjectPath
	op.Page
	Status string `query:"status" maxLength:"30" enum:"initiated,checkout_completed,credited,failed_reconcile,expired" doc:"Only those of this status"`
}) (*op.Listed[PaymentSession], error) {
	known, err := readDigits(ctx, s.api.Store())
	if err != nil {
		return nil, err
	}
	return listIn(ctx, s.server, in.Page, func(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]paymentsdb.Session, error) {
		return paymentsdb.List(ctx, tx, paymentsdb.Filter{ProjectID: tx.Project(), Statuses: ofStatus(in.Status)}, after, limit)
	}, paymentID, known.paymentView)
}

func ofStatus(of string) []lifecycle.PaymentStatus {
	if of == "" {
		return nil
	}
	return []lifecycle.PaymentStatus{lifecycle.PaymentStatus(of)}
}

func (s *paymentServer) getPayment(ctx context.Context, in *PaymentPath) (*op.Versioned[PaymentSession], error) {
	// Whether it is of the project is found out before anything is asked.
	stored, err := readIn(ctx, s.server, func(tx *db.ProjectTx) (paymentsdb.Session, error) {
		return paymentsdb.GetOfProject(ctx, tx, tx.Project(), in.PaymentID)
	}, func(s paymentsdb.Session) paymentsdb.Session { return s })
	if err != nil {
		return nil, err
	}
	row, err := s.sync.Show(ctx, stored.ID)
	if err != nil {
		return nil, s.refusePayment(ctx, err)
	}
	known, err := readDigits(ctx, s.api.Store())
	return op.WithVersion(row.Version, known.paymentView(row)), err
}
