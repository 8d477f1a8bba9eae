package paymentsync

import (
	"context"
	"errors"
	"fmt"
	"strings"

	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/providers"
)

// maxNamed bounds how many refunds and disputes a line names; their amounts count all the same.
const maxNamed = 10

// reportLost stores a difference for a paid page of this installation that has no payment session.
// It names what of the payment went back to the payer, so that nobody credits that, and its amount
// is what is left: a refund that is made later opens an acknowledged line again.
func (y *Syncer) reportLost(ctx context.Context, client providers.Payments, page providers.PaymentSession) error {
	gone, named, err := readReversals(ctx, client, page.PaymentID)
	if err != nil {
		return err
	}
	left := max(page.Amount-gone, 0)
	next := "none of it is refunded or disputed: find whose it is, credit it by an adjustment or refund it at the payment provider, and acknowledge this"
	if len(named) > 0 {
		next = fmt.Sprintf("of it went back to the payer: %s; so credit at most %d, after you have found whose it is, and acknowledge this", strings.Join(named[:min(len(named), maxNamed)], ", "), left)
		if extra := len(named) - maxNamed; extra > 0 {
			next = fmt.Sprintf("%s (%d more are not named)", next, extra)
		}
	}
	return paymentsdb.PutDifference(ctx, y.Store, paymentsdb.DifferenceSession, page.ID, fmt.Sprintf(
		"page %s of payment session %s is paid with %d minor units of %s by payment %s, and there is no such session: the database was restored, or somebody has the key; %s",
		page.ID, page.Reference, page.Amount, page.Currency, page.PaymentID, next), left)
}

// readReversals returns how much of a payment went back to the payer, or is held back by a dispute,
// and one text for each refund and dispute.
func readReversals(ctx context.Context, client providers.Payments, paymentID string) (gone int64, named []string, err error) {
	if paymentID == "" {
		return 0, nil, nil
	}
	refunds, err := readAll(func(q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentRefund], error) {
		return client.Refunds(ctx, paymentID, q)
	}, func(r providers.PaymentRefund) string { return r.ID })
	if err != nil {
		return 0, nil, err
	}
	for _, r := range refunds {
		if r.Status == providers.RefundFailed || r.Status == providers.RefundCanceled {
			continue
		}
		gone += r.Amount
		named = append(named, fmt.Sprintf("refund %s of %d (%s)", r.ID, r.Amount, r.Status))
	}
	disputes, err := readAll(func(q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentDispute], error) {
		return client.Disputes(ctx, paymentID, q)
	}, func(d providers.PaymentDispute) string { return d.ID })
	for _, d := range disputes {
		if d.Won || d.Warning {
			continue
		}
		gone += d.Amount
		named = append(named, fmt.Sprintf("dispute %s of %d (%s)", d.ID, d.Amount, d.Status))
	}
	return gone, named, err
}

// readAll reads a list to its end, the newest first.
func readAll[T any](read func(providers.PaymentQuery) (providers.PaymentPage[T], error), id func(T) string) (out []T, err error) {
	q := providers.PaymentQuery{}
	for range maxPages {
		page, err := read(q)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if !page.More || len(page.Items) == 0 {
			return out, nil
		}
		q.Before = id(page.Items[len(page.Items)-1])
	}
	return nil, errors.New("a payment has too many refunds or disputes")
}
