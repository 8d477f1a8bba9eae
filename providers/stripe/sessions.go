package stripe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/providers"
)

// The names of our metadata in Stripe's objects.
const (
	metaInstallation = "slipway_installation"
	metaReference    = "slipway_reference"
)

// CreateSession implements providers.Payments.
func (c *client) CreateSession(ctx context.Context, in providers.SessionCreate) (providers.PaymentSession, error) {
	s := write("create_session")
	if err := checkCreate(s.op, in); err != nil {
		return providers.PaymentSession{}, err
	}
	var out providers.PaymentSession
	err := c.call(ctx, s, func(ctx context.Context) error {
		made, err := c.api.V1CheckoutSessions.Create(ctx, sessionParams(in))
		if err != nil {
			return err
		}
		out, err = c.session(s, made)
		if err == nil && (out.Amount != in.Amount || out.Currency != strings.ToUpper(in.Currency) || out.Reference != in.Reference) {
			err = protocol(s, "the session that Stripe made is not the one that was asked for")
		}
		if err == nil {
			err = checkStatus(s, out)
		}
		return err
	})
	return out, err
}

// sessionParams says explicitly what would otherwise follow the settings of the dashboard, and
// could change the amount or the currency.
func sessionParams(in providers.SessionCreate) *stripego.CheckoutSessionCreateParams {
	no := stripego.Bool(false)
	meta := map[string]string{metaInstallation: in.Installation, metaReference: in.Reference}
	p := &stripego.CheckoutSessionCreateParams{
		Mode:                stripego.String(stripego.CheckoutSessionModePayment),
		ClientReferenceID:   &in.Reference,
		SuccessURL:          &in.SuccessURL,
		CancelURL:           &in.CancelURL,
		ExpiresAt:           stripego.Int64(in.Expires.Unix()),
		Metadata:            meta,
		PaymentIntentData:   &stripego.CheckoutSessionCreatePaymentIntentDataParams{Metadata: meta},
		AdaptivePricing:     &stripego.CheckoutSessionCreateAdaptivePricingParams{Enabled: no},
		AutomaticTax:        &stripego.CheckoutSessionCreateAutomaticTaxParams{Enabled: no},
		AllowPromotionCodes: no,
		LineItems: []*stripego.CheckoutSessionCreateLineItemParams{{
			Quantity: stripego.Int64(1),
			PriceData: &stripego.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: stripego.String(strings.ToLower(in.Currency)), UnitAmount: &in.Amount,
				ProductData: &stripego.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: &in.Product},
			},
		}},
	}
	if in.Email != "" {
		p.CustomerEmail = &in.Email
	}
	p.IdempotencyKey = &in.Key
	return p
}

const maxKey, maxReference, maxProduct = 255, 200, 250

// checkCreate refuses what Stripe would refuse, or take for something else.
func checkCreate(op string, in providers.SessionCreate) error {
	switch {
	case !isKey(in.Key):
		return invalid(op, "a session needs a key of 1 to 255 printable characters")
	case in.Reference == "" || len(in.Reference) > maxReference || in.Installation == "" || len(in.Installation) > maxReference:
		return invalid(op, "a session needs a reference and an installation of 1 to 200 characters")
	case in.Product == "" || len(in.Product) > maxProduct || !utf8.ValidString(in.Product):
		return invalid(op, "a session needs the name of a product of 1 to 250 characters")
	case in.Amount <= 0:
		return invalid(op, "the amount must be positive")
	case in.SuccessURL == "" || in.CancelURL == "" || in.Expires.IsZero():
		return invalid(op, "a session needs the addresses to return to and the time when it expires")
	}
	return checkCurrency(op, in.Currency, in.Amount)
}

// isKey reports whether an idempotency key arrives as it is: stripe-go cuts spaces off.
func isKey(key string) bool {
	return key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkCurrency refuses currencies whose minor unit at Stripe is another one than that of ISO 4217:
// the payer would pay a hundredth, or a hundredfold. Amounts with three decimals are rounded by
// banks to ten of the minor unit.
func checkCurrency(op, currency string, amount int64) error {
	code := strings.ToUpper(currency)
	switch {
	case len(code) != 3 || strings.ContainsFunc(code, func(r rune) bool { return r < 'A' || r > 'Z' }):
		return invalid(op, "the currency must be a code of three letters, such as USD")
	case slices.Contains([]string{"ISK", "UGX", "MGA"}, code):
		return invalid(op, "Stripe counts "+code+" in another minor unit than ISO 4217; use another currency")
	case slices.Contains([]string{"BHD", "JOD", "KWD", "OMR", "TND"}, code) && amount%10 != 0:
		return invalid(op, "Stripe takes amounts in "+code+" whose last digit is 0")
	}
	return nil
}

// Session implements providers.Payments.
func (c *client) Session(ctx context.Context, id string) (providers.PaymentSession, error) {
	s := read("session")
	return c.oneSession(ctx, s, id, func(ctx context.Context) (*stripego.CheckoutSession, error) {
		return c.api.V1CheckoutSessions.Retrieve(ctx, id, nil)
	})
}

// ExpireSession implements providers.Payments. Its key is the session's, since it ends once.
func (c *client) ExpireSession(ctx context.Context, id string) (providers.PaymentSession, error) {
	s := write("expire_session")
	s.conflicts = true
	return c.oneSession(ctx, s, id, func(ctx context.Context) (*stripego.CheckoutSession, error) {
		p := &stripego.CheckoutSessionExpireParams{}
		p.IdempotencyKey = stripego.String("slipway-expire-" + id)
		return c.api.V1CheckoutSessions.Expire(ctx, id, p)
	})
}

func (c *client) oneSession(
	ctx context.Context, s shape, id string, ask func(context.Context) (*stripego.CheckoutSession, error),
) (providers.PaymentSession, error) {
	if err := checkID(strings.TrimPrefix(s.op, "stripe."), "session", id); err != nil {
		return providers.PaymentSession{}, err
	}
	var out providers.PaymentSession
	err := c.call(ctx, s, func(ctx context.Context) error {
		found, err := ask(ctx)
		if err != nil {
			return err
		}
		if out, err = c.session(s, found); err == nil && out.ID != id {
			err = protocol(s, "Stripe answered with another session")
		}
		if err == nil {
			err = checkStatus(s, out)
		}
		return err
	})
	return out, err
}

// Sessions implements providers.Payments.
func (c *client) Sessions(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentSession], error) {
	s := read("sessions")
	return list(ctx, c, s, q, func(ctx context.Context, p stripego.ListParams, r *stripego.RangeQueryParams) *stripego.V1List[*stripego.CheckoutSession] {
		return c.api.V1CheckoutSessions.List(ctx, &stripego.CheckoutSessionListParams{ListParams: p, CreatedRange: r})
	}, func(found *stripego.CheckoutSession) (providers.PaymentSession, error) { return c.session(s, found) })
}

// session checks an object of Stripe and takes what is needed from it.
func (c *client) session(s shape, in *stripego.CheckoutSession) (providers.PaymentSession, error) {
	if in == nil || in.Object != "checkout.session" || !idForm.MatchString(in.ID) {
		return providers.PaymentSession{}, protocol(s, "the answer is no session")
	}
	if err := c.checkMode(strings.TrimPrefix(s.op, "stripe."), in.ID, in.Livemode); err != nil {
		return providers.PaymentSession{}, err
	}
	out := providers.PaymentSession{
		ID: in.ID, Status: providers.SessionStatus(in.Status), Amount: in.AmountTotal, Currency: upper(in.Currency), Reference: in.ClientReferenceID,
		Installation: in.Metadata[metaInstallation], PaymentID: intentID(in.PaymentIntent), URL: in.URL, Live: in.Livemode, Created: unix(in.Created),
		Expires: unix(in.ExpiresAt),
		// A session of another mode than payment, or one without a payment, never counts as paid.
		Paid: in.Mode == stripego.CheckoutSessionModePayment && in.PaymentStatus == stripego.CheckoutSessionPaymentStatusPaid && in.PaymentIntent != nil,
	}
	return out, nil
}

// checkStatus refuses a session whose state has no name here. A list keeps such ones: the account
// may have sessions that others made.
func checkStatus(s shape, in providers.PaymentSession) error {
	switch in.Status {
	case providers.SessionOpen, providers.SessionComplete, providers.SessionExpired:
		return nil
	}
	return protocol(s, fmt.Sprintf("session %s has the unknown status %q", in.ID, in.Status))
}
