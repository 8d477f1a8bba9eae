package stripesim

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// The payment methods that are simulated: one that pays at once, and two that pay days later.
const (
	methodCard  = "card"
	methodDebit = "sepa_debit"
	methodBank  = "us_bank_account"
)

// delayedMethod returns the method that pays later in a currency.
func delayedMethod(currency string) string {
	if currency == "eur" {
		return methodDebit
	}
	return methodBank
}

// currencies have the smallest charge of each simulated currency, in minor units.
func currencies() map[string]int64 {
	return map[string]int64{"usd": 50, "eur": 50, "gbp": 30, "chf": 50, "cad": 50, "aud": 50, "jpy": 50, "kwd": 100}
}

// The bounds of a session, as Stripe has them.
const (
	maxAmount  = 99_999_999
	minSession = 30 * time.Minute
	maxSession = 24 * time.Hour
	maxItems   = 20
)

// createSession is POST /v1/checkout/sessions.
func (s *Server) createSession(c *call) (any, *apiError) {
	n, e := s.readSession(c.p)
	if e == nil {
		e = c.p.unknown()
	}
	if e != nil {
		return nil, e
	}
	n.id = s.newID("cs_" + s.mode() + "_a1")
	s.sessions = append(s.sessions, n)
	s.counts.Sessions++
	n.cancelTimer = s.clock.AfterFunc(s.ctx, n.expires.Sub(n.created), func() { _ = s.Expire(n.id) }) // done or paid meanwhile
	return s.sessionObject(n), nil
}

// readSession reads and checks the parameters of a session.
func (s *Server) readSession(p params) (*session, *apiError) {
	now := s.now()
	n := &session{
		created: now, expires: now.Add(maxSession), status: statusOpen, paymentStatus: unpaid, reference: p.text("client_reference_id"),
		email: p.text("customer_email"), locale: p.text("locale"),
	}
	if len(n.reference) > 200 {
		return nil, invalid("", "client_reference_id", "Invalid string: must be at most 200 characters")
	}
	if _, e := p.required("mode"); e != nil {
		return nil, e
	}
	for name, into := range map[string]*string{"mode": nil, "ui_mode": nil, "submit_type": &n.submitType, "customer_creation": &n.customerCreates} {
		value, e := p.oneOf(name, map[string][]string{
			"mode": {"payment"}, "ui_mode": {"hosted_page"}, "submit_type": {"auto", "pay"}, "customer_creation": {"if_required"},
		}[name]...)
		if e != nil {
			return nil, e
		}
		if into != nil {
			*into = value
		}
	}
	for _, read := range []func(params) *apiError{n.readItems, n.readPages, n.readTexts, n.readSwitches} {
		if e := read(p); e != nil {
			return nil, e
		}
	}
	return n, n.readExpiry(p)
}

func (n *session) readItems(p params) *apiError {
	for i := 0; ; i++ {
		item := "line_items[" + strconv.Itoa(i) + "]"
		if !p.has(item + "[price_data][currency]") {
			break
		}
		if i >= maxItems {
			return notSimulated("line_items", "more than 20 line items")
		}
		if e := n.readItem(p, item); e != nil {
			return e
		}
	}
	if n.currency == "" {
		return invalid("parameter_missing", "line_items", "You must specify at least one line item with price_data.")
	}
	smallest := currencies()[n.currency]
	switch {
	case n.amount < smallest:
		return invalid("amount_too_small", "", "The Checkout Session's total amount must convert to at least %d in the smallest unit of %s.", smallest, n.currency)
	case n.amount > maxAmount:
		return invalid("amount_too_large", "", "The Checkout Session's total amount due must be no more than %d in the smallest unit of %s.", maxAmount, n.currency)
	case n.currency == "kwd" && n.amount%10 != 0:
		return invalid("", "line_items", "Amounts of three-decimal currencies must be divisible by 10.")
	}
	n.methods = p.list("payment_method_types")
	if len(n.methods) == 0 {
		n.methods = []string{methodCard, delayedMethod(n.currency)}
	}
	for _, m := range n.methods {
		if !slices.Contains([]string{methodCard, delayedMethod(n.currency)}, m) {
			return notSimulated("payment_method_types", "the payment method "+m+" in "+n.currency)
		}
	}
	return nil
}

func (n *session) readItem(p params, item string) *apiError {
	currency := p.text(item + "[price_data][currency]")
	if _, known := currencies()[currency]; !known || n.currency != "" && n.currency != currency {
		return invalid("", item+"[price_data][currency]", "Invalid currency: %s. stripesim takes one currency a session, written in lower case.", currency)
	}
	n.currency = currency
	name, e := p.required(item + "[price_data][product_data][name]")
	if e != nil {
		return e
	}
	_ = p.text(item + "[price_data][product_data][description]")
	unit, found, e := p.integer(item + "[price_data][unit_amount]")
	if e == nil && (!found || unit < 0) {
		e = invalid("parameter_invalid_integer", item+"[price_data][unit_amount]", "This value must be greater than or equal to 0.")
	}
	if e != nil {
		return e
	}
	quantity, found, e := p.integer(item + "[quantity]")
	if e == nil && (!found || quantity < 1 || quantity > 999_999) {
		e = invalid("parameter_invalid_integer", item+"[quantity]", "Quantity is required and must be from 1 to 999999.")
	}
	if e != nil {
		return e
	}
	if unit > maxAmount || n.amount+unit*quantity > 10*maxAmount {
		return invalid("amount_too_large", item+"[price_data][unit_amount]", "The amount is too large.")
	}
	n.product, n.quantity = name, n.quantity+quantity
	n.amount += unit * quantity
	return nil
}

func (n *session) readPages(p params) *apiError {
	for name, into := range map[string]*string{"success_url": &n.successURL, "cancel_url": &n.cancelURL} {
		value, e := p.required(name)
		if e != nil {
			return e
		}
		u, err := url.Parse(value)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(value) > 5000 {
			return invalid("url_invalid", name, "Not a valid URL")
		}
		*into = value
	}
	return nil
}

func (n *session) readTexts(p params) *apiError {
	var e *apiError
	if n.metadata, e = p.hash("metadata"); e == nil {
		n.intentMetadata, e = p.hash("payment_intent_data[metadata]")
	}
	return e
}

func (n *session) readSwitches(p params) *apiError {
	pricing, found, e := p.boolean("adaptive_pricing[enabled]")
	if e == nil && found {
		n.adaptivePricing = &pricing
		if pricing {
			return notSimulated("adaptive_pricing[enabled]", "adaptive pricing")
		}
	}
	if e != nil {
		return e
	}
	codes, found, e := p.boolean("allow_promotion_codes")
	if e == nil && found {
		n.promotionCodes = &codes
		if codes {
			return notSimulated("allow_promotion_codes", "promotion codes")
		}
	}
	if e != nil {
		return e
	}
	if n.automaticTax, _, e = p.boolean("automatic_tax[enabled]"); e == nil && n.automaticTax {
		return notSimulated("automatic_tax[enabled]", "automatic tax")
	}
	return e
}

func (n *session) readExpiry(p params) *apiError {
	at, found, e := p.integer("expires_at")
	if e != nil || !found {
		return e
	}
	n.expires = time.Unix(at, 0).UTC()
	// Stripe compares whole seconds.
	life := n.expires.Sub(n.created.Truncate(time.Second))
	if life < minSession || life > maxSession {
		return invalid("", "expires_at", "The `expires_at` timestamp must be at least 30 minutes and at most 24 hours from Checkout Session creation.")
	}
	return nil
}

// getSession is GET /v1/checkout/sessions/{id}.
func (s *Server) getSession(c *call) (any, *apiError) {
	n := s.session(c.PathValue("id"))
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	if n == nil {
		return nil, missing("checkout.session", c.PathValue("id"), "session")
	}
	return s.readObject(n), nil
}

// readObject renders a session that is read. A fault may change its amount.
func (s *Server) readObject(n *session) object {
	out := s.sessionObject(n)
	if f := s.take(ofObject, "get_session", ""); f != nil {
		out["amount_total"] = n.amount + f.Number("by", 1)
	}
	return out
}

// expireSession is POST /v1/checkout/sessions/{id}/expire.
func (s *Server) expireSession(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	n := s.session(c.PathValue("id"))
	switch {
	case n == nil:
		return nil, missing("checkout.session", c.PathValue("id"), "session")
	case n.status != statusOpen:
		return nil, refusal("", "", "Only Checkout Sessions with a status in [\"open\"] can be expired. This Checkout Session has a status of `%s`.", n.status)
	}
	s.expire(n, c)
	return s.sessionObject(n), nil
}

func (s *Server) expire(n *session, c *call) {
	n.status = statusExpired
	n.cancelTimer()
	if n.intent != nil {
		n.intent.status, n.intent.canceled = "canceled", s.now()
		s.emit("payment_intent.canceled", s.intentObject(n.intent), c)
	}
	s.emit("checkout.session.expired", s.sessionObject(n), c)
}

// listSessions is GET /v1/checkout/sessions.
func (s *Server) listSessions(c *call) (any, *apiError) {
	of := c.p.text("payment_intent")
	status, e := c.p.oneOf("status", statusOpen, statusComplete, statusExpired)
	if e != nil {
		return nil, e
	}
	return listPage(c, "/v1/checkout/sessions", "checkout.session", s.sessions, listing[*session]{
		id: func(n *session) string { return n.id }, created: func(n *session) time.Time { return n.created }, render: s.readObject,
		keep: func(n *session) bool {
			return (status == "" || n.status == status) && (of == "" || n.intent != nil && n.intent.id == of)
		},
	})
}

func (s *Server) session(id string) *session {
	return find(s.sessions, func(n *session) bool { return n.id == id })
}

func find[T any](items []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(items, is); i >= 0 {
		return items[i]
	}
	return nil
}

// openSession returns the session that the payer may use.
func (s *Server) openSession(id string) (*session, error) {
	n := s.session(id)
	switch {
	case n == nil:
		return nil, fmt.Errorf("there is no session %q", id)
	case n.status != statusOpen:
		return nil, noEffect("session %s is %s", id, n.status)
	}
	return n, nil
}
