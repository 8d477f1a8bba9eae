package stripe

import (
	"context"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/providers"
)

// CreateRefund implements providers.Payments.
func (c *client) CreateRefund(ctx context.Context, in providers.RefundCreate) (providers.PaymentRefund, error) {
	s := write("create_refund")
	s.conflicts = true
	switch {
	case !isKey(in.Key):
		return providers.PaymentRefund{}, invalid(s.op, "a refund needs a key of 1 to 255 printable characters")
	case in.Reference == "" || len(in.Reference) > maxReference:
		return providers.PaymentRefund{}, invalid(s.op, "a refund needs a reference of 1 to 200 characters")
	case in.Amount <= 0:
		return providers.PaymentRefund{}, invalid(s.op, "the amount must be positive")
	}
	if err := checkID("create_refund", "payment", in.PaymentID); err != nil {
		return providers.PaymentRefund{}, err
	}
	var out providers.PaymentRefund
	err := c.call(ctx, s, func(ctx context.Context) error {
		p := &stripego.RefundCreateParams{
			PaymentIntent: &in.PaymentID, Amount: &in.Amount, Reason: stripego.String(stripego.RefundReasonRequestedByCustomer),
			Metadata: map[string]string{metaReference: in.Reference},
		}
		p.IdempotencyKey = &in.Key
		made, err := c.api.V1Refunds.Create(ctx, p)
		if err != nil {
			return err
		}
		if out, err = refund(s, made); err == nil && (out.Amount != in.Amount || out.PaymentID != in.PaymentID) {
			err = protocol(s, "the refund that Stripe made is not the one that was asked for")
		}
		return err
	})
	return out, err
}

// Refund implements providers.Payments.
func (c *client) Refund(ctx context.Context, id string) (providers.PaymentRefund, error) {
	s := read("refund")
	if err := checkID("refund", "refund", id); err != nil {
		return providers.PaymentRefund{}, err
	}
	var out providers.PaymentRefund
	err := c.call(ctx, s, func(ctx context.Context) error {
		found, err := c.api.V1Refunds.Retrieve(ctx, id, nil)
		if err != nil {
			return err
		}
		if out, err = refund(s, found); err == nil && out.ID != id {
			err = protocol(s, "Stripe answered with another refund")
		}
		return err
	})
	return out, err
}

// Refunds implements providers.Payments.
func (c *client) Refunds(ctx context.Context, paymentID string, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
	s := read("refunds")
	if err := checkID("refunds", "payment", paymentID); err != nil {
		return providers.PaymentPage[providers.PaymentRefund]{}, err
	}
	return list(ctx, c, s, q, func(ctx context.Context, p stripego.ListParams, r *stripego.RangeQueryParams) *stripego.V1List[*stripego.Refund] {
		return c.api.V1Refunds.List(ctx, &stripego.RefundListParams{ListParams: p, CreatedRange: r, PaymentIntent: &paymentID})
	}, func(found *stripego.Refund) (providers.PaymentRefund, error) { return refund(s, found) })
}

// refund checks an object of Stripe and takes what is needed from it.
func refund(s shape, in *stripego.Refund) (providers.PaymentRefund, error) {
	if in == nil || in.Object != "refund" || !idForm.MatchString(in.ID) {
		return providers.PaymentRefund{}, protocol(s, "the answer is no refund")
	}
	out := providers.PaymentRefund{
		ID: in.ID, Status: providers.RefundStatus(in.Status), Amount: in.Amount, Currency: upper(in.Currency), PaymentID: intentID(in.PaymentIntent),
		Reference: in.Metadata[metaReference], Created: unix(in.Created),
	}
	switch out.Status {
	case providers.RefundPending, providers.RefundSucceeded, providers.RefundFailed, providers.RefundCanceled, providers.RefundAction:
		return out, nil
	}
	return out, protocol(s, "refund "+in.ID+" has an unknown status")
}

// Dispute implements providers.Payments.
func (c *client) Dispute(ctx context.Context, id string) (providers.PaymentDispute, error) {
	s := read("dispute")
	if err := checkID("dispute", "dispute", id); err != nil {
		return providers.PaymentDispute{}, err
	}
	var out providers.PaymentDispute
	err := c.call(ctx, s, func(ctx context.Context) error {
		found, err := c.api.V1Disputes.Retrieve(ctx, id, nil)
		if err != nil {
			return err
		}
		if found.Object != "dispute" || found.ID != id {
			return protocol(s, "Stripe answered with another object")
		}
		out = dispute(found)
		return c.checkMode("dispute", id, found.Livemode)
	})
	return out, err
}

// Disputes implements providers.Payments.
func (c *client) Disputes(ctx context.Context, paymentID string, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentDispute], error) {
	s := read("disputes")
	if err := checkID("disputes", "payment", paymentID); err != nil {
		return providers.PaymentPage[providers.PaymentDispute]{}, err
	}
	return list(ctx, c, s, q, func(ctx context.Context, p stripego.ListParams, r *stripego.RangeQueryParams) *stripego.V1List[*stripego.Dispute] {
		return c.api.V1Disputes.List(ctx, &stripego.DisputeListParams{ListParams: p, CreatedRange: r, PaymentIntent: &paymentID})
	}, func(found *stripego.Dispute) (providers.PaymentDispute, error) {
		if found == nil || found.Object != "dispute" || !idForm.MatchString(found.ID) {
			return providers.PaymentDispute{}, protocol(s, "an item of the list is no dispute")
		}
		return dispute(found), c.checkMode("disputes", found.ID, found.Livemode)
	})
}

// dispute takes what is needed from an object of Stripe.
func dispute(found *stripego.Dispute) providers.PaymentDispute {
	out := providers.PaymentDispute{
		ID: found.ID, Status: string(found.Status), Lost: found.Status == stripego.DisputeStatusLost, Amount: found.Amount, Currency: upper(found.Currency), PaymentID: intentID(found.PaymentIntent), Live: found.Livemode,
		Created: unix(found.Created),
	}
	switch found.Status { //nolint:exhaustive // the others are open, or lost
	case stripego.DisputeStatusWon:
		out.Won = true
	case stripego.DisputeStatusWarningClosed, stripego.DisputeStatusPrevented:
		out.Won, out.Warning = true, true
	case stripego.DisputeStatusWarningNeedsResponse, stripego.DisputeStatusWarningUnderReview:
		out.Warning = true
	}
	return out
}
