package stripe

import (
	"context"
	"encoding/json"
	"strings"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/providers"
)

const maxPage, maxTypes = 100, 20

// list reads one page. The items of a page after a cursor come in the order of creation.
func list[S, T any](
	ctx context.Context, c *client, s shape, q providers.PaymentQuery,
	ask func(context.Context, stripego.ListParams, *stripego.RangeQueryParams) *stripego.V1List[S], take func(S) (T, error),
) (providers.PaymentPage[T], error) {
	p, r, err := listParams(s.op, q)
	if err != nil {
		return providers.PaymentPage[T]{}, err
	}
	var page providers.PaymentPage[T]
	err = c.call(ctx, s, func(ctx context.Context) error {
		found := ask(ctx, p, r)
		if err := found.Err(); err != nil {
			return err
		}
		page = providers.PaymentPage[T]{More: found.Meta().HasMore}
		for _, item := range found.Data() {
			one, err := take(item)
			if err != nil {
				return err
			}
			page.Items = append(page.Items, one)
		}
		if page.More && len(page.Items) == 0 {
			return protocol(s, "a page without items says that there are more")
		}
		return nil
	})
	return page, err
}

func listParams(op string, q providers.PaymentQuery) (stripego.ListParams, *stripego.RangeQueryParams, error) {
	p := stripego.ListParams{Limit: stripego.Int64(maxPage), Single: true}
	switch {
	case q.Limit < 0 || q.Limit > maxPage:
		return p, nil, invalid(op, "a page has 1 to 100 items")
	case q.After != "" && q.Before != "":
		return p, nil, invalid(op, "give one cursor, not two")
	case q.After != "" && !idForm.MatchString(q.After), q.Before != "" && !idForm.MatchString(q.Before):
		return p, nil, invalid(op, "the cursor is no id of Stripe")
	}
	if q.Limit > 0 {
		p.Limit = stripego.Int64(int64(q.Limit))
	}
	// Stripe's names say where the cursor is in a list that begins with the newest.
	if q.After != "" {
		p.EndingBefore = &q.After
	}
	if q.Before != "" {
		p.StartingAfter = &q.Before
	}
	if q.From.IsZero() && q.Until.IsZero() {
		return p, nil, nil
	}
	r := &stripego.RangeQueryParams{}
	if !q.From.IsZero() {
		r.GreaterThanOrEqual = q.From.Unix()
	}
	if !q.Until.IsZero() {
		r.LesserThan = q.Until.Unix()
	}
	return p, r, nil
}

// Events implements providers.Payments.
func (c *client) Events(ctx context.Context, q providers.EventQuery) (providers.PaymentPage[providers.PaymentEvent], error) {
	s := read("events")
	if len(q.Types) > maxTypes {
		return providers.PaymentPage[providers.PaymentEvent]{}, invalid(s.op, "name at most 20 types of events")
	}
	return list(ctx, c, s, q.PaymentQuery, func(ctx context.Context, p stripego.ListParams, r *stripego.RangeQueryParams) *stripego.V1List[*stripego.Event] {
		params := &stripego.EventListParams{ListParams: p, CreatedRange: r}
		if len(q.Types) > 0 { // an empty list would be sent as a type without a name
			params.Types = stripego.StringSlice(q.Types)
		}
		if q.Undelivered {
			params.DeliverySuccess = stripego.Bool(false)
		}
		return c.api.V1Events.List(ctx, params)
	}, func(found *stripego.Event) (providers.PaymentEvent, error) {
		out, ok := listedEvent(found)
		if !ok {
			return out, protocol(s, "an item of the list is no event")
		}
		return out, c.checkMode("events", out.ID, out.Live)
	})
}

// listedEvent takes what is needed from an event.
func listedEvent(in *stripego.Event) (providers.PaymentEvent, bool) {
	if in == nil || in.Object != "event" || in.Data == nil {
		return providers.PaymentEvent{}, false
	}
	return newEvent(eventFields{ID: in.ID, Type: string(in.Type), APIVersion: in.APIVersion, Created: in.Created, Livemode: in.Livemode}, in.Data.Raw)
}

// eventFields are the fields of an event that all releases have.
type eventFields struct {
	ID         string
	Type       string
	APIVersion string
	Created    int64
	Livemode   bool
}

// lastSecond is the end of the year 9999: no database has to store what is later.
const lastSecond = 253402300799

// newEvent checks the fields of an event, and finds out what it is about.
func newEvent(in eventFields, object json.RawMessage) (providers.PaymentEvent, bool) {
	out := providers.PaymentEvent{
		ID: in.ID, Type: in.Type, Live: in.Livemode, Release: in.APIVersion, KnownRelease: train(in.APIVersion) == train(stripego.APIVersion),
		Created: unix(in.Created), Object: object,
	}
	if !strings.HasPrefix(in.ID, "evt_") || !idForm.MatchString(in.ID) || !isName(in.Type) || in.Created <= 0 || in.Created > lastSecond {
		return out, false
	}
	if in.APIVersion != "" && !isName(in.APIVersion) {
		return out, false
	}
	var about struct {
		Object string `json:"object"`
		ID     string `json:"id"`
	}
	if isObject(object) && json.Unmarshal(object, &about) == nil && isName(about.Object) && idForm.MatchString(about.ID) {
		out.ObjectKind, out.ObjectID = about.Object, about.ID
	}
	return out, true
}

// train is the part of a version within which objects keep their form, such as dahlia.
func train(version string) string {
	_, name, _ := strings.Cut(version, ".")
	return name
}

// isName reports whether a text is one of Stripe's names, of bounded length.
func isName(text string) bool {
	return text != "" && len(text) <= 200 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Movements implements providers.Payments.
func (c *client) Movements(ctx context.Context, q providers.PaymentQuery) (providers.PaymentPage[providers.PaymentMovement], error) {
	s := read("movements")
	return list(ctx, c, s, q, func(ctx context.Context, p stripego.ListParams, r *stripego.RangeQueryParams) *stripego.V1List[*stripego.BalanceTransaction] {
		return c.api.V1BalanceTransactions.List(ctx, &stripego.BalanceTransactionListParams{ListParams: p, CreatedRange: r})
	}, func(found *stripego.BalanceTransaction) (providers.PaymentMovement, error) {
		if found == nil || !idForm.MatchString(found.ID) || found.Currency == "" {
			return providers.PaymentMovement{}, protocol(s, "an item of the list is no movement")
		}
		out := providers.PaymentMovement{
			ID: found.ID, Kind: string(found.Type), Category: string(found.ReportingCategory), Amount: found.Amount, Fee: found.Fee,
			Currency: upper(found.Currency), Converted: found.ExchangeRate != 0, Created: unix(found.Created),
		}
		if found.Source != nil {
			out.Source = found.Source.ID
		}
		return out, nil
	})
}
