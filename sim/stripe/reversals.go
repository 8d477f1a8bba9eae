package stripesim

import (
	"fmt"
	"time"
)

// disputeFee is what Stripe takes for a dispute, a demo choice.
const disputeFee = 1500

// createRefund is POST /v1/refunds.
func (s *Server) createRefund(c *call) (any, *apiError) {
	ofIntent, ofCharge := c.p.text("payment_intent"), c.p.text("charge")
	amount, hasAmount, e := c.p.integer("amount")
	if e == nil && hasAmount && amount < 1 {
		e = invalid("parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.")
	}
	reason, oneOf := c.p.oneOf("reason", "duplicate", "fraudulent", "requested_by_customer")
	metadata, hash := c.p.hash("metadata")
	for _, next := range []*apiError{oneOf, hash, c.p.unknown()} {
		if e == nil {
			e = next
		}
	}
	if e == nil && (ofIntent == "") == (ofCharge == "") {
		e = invalid("parameter_missing", "", "One of the following params should be provided for this request: payment_intent or charge.")
	}
	if e != nil {
		return nil, e
	}
	of, kind := s.charge(ofCharge), "charge"
	if ofIntent != "" {
		kind = "payment_intent"
		if p := find(s.intents, func(p *intent) bool { return p.id == ofIntent }); p != nil {
			of = p.charge
		}
	}
	if of == nil {
		return nil, missing(kind, ofIntent+ofCharge, kind)
	}
	if !hasAmount {
		amount = of.amount - of.refunded
	}
	r, e := s.refund(of, amount, reason, metadata, c)
	if e != nil {
		return nil, e
	}
	return s.refundObject(r), nil
}

// refund returns money of a charge. It is pending until SettleRefund where a delayed method paid.
func (s *Server) refund(of *charge, amount int64, reason string, metadata map[string]string, c *call) (*refund, *apiError) {
	left := of.amount - of.refunded
	switch {
	case of.status != statusSucceeded:
		return nil, refusal("", "charge", "This PaymentIntent does not have a successful charge to refund.")
	case of.disputed:
		return nil, refusal("charge_disputed", "", "Charge %s has been charged back; cannot issue a refund.", of.id)
	case left == 0:
		return nil, refusal("charge_already_refunded", "", "Charge %s has already been refunded.", of.id)
	case amount > left:
		return nil, refusal("", "amount", "Refund amount (%d) is greater than unrefunded amount on charge (%d)", amount, left)
	}
	r := &refund{
		id: s.newID("re_"), status: statusSucceeded, reason: reason, amount: amount, created: s.now(), charge: of, metadata: metadata,
	}
	kind := "refund"
	if of.method != methodCard {
		kind, r.status = "payment_refund", statusPending
	}
	r.movement = s.move(kind, "refund", of.currency, r.id, -amount, 0)
	of.refunded += amount
	s.refunds = append(s.refunds, r)
	s.counts.Refunds++
	s.emit("refund.created", s.refundObject(r), c)
	s.emit("charge.refunded", s.chargeObject(of), c)
	return r, nil
}

// RefundInDashboard refunds a part of what a session, payment intent or charge has paid, as
// somebody does in Stripe's dashboard. It returns the id of the refund.
func (s *Server) RefundInDashboard(id string, amount int64) (made string, err error) {
	err = s.commit(func() error {
		of := s.chargeOf(id)
		if of == nil {
			return fmt.Errorf("there is no payment of %q", id)
		}
		r, e := s.refund(of, amount, "requested_by_customer", nil, nil)
		if e != nil {
			return noEffect("%s", e.message)
		}
		made = r.id
		return nil
	})
	return made, err
}

// SettleRefund ends a refund: the money arrived, or it came back. A refund that has succeeded can
// still come back.
func (s *Server) SettleRefund(id string, arrived bool) error {
	return s.commit(func() error {
		r := find(s.refunds, func(r *refund) bool { return r.id == id })
		switch {
		case r == nil:
			return fmt.Errorf("there is no refund %q", id)
		case r.status == statusFailed, arrived && r.status != statusPending:
			return noEffect("refund %s is %s", id, r.status)
		case arrived:
			r.status = statusSucceeded
			s.emit("refund.updated", s.refundObject(r), nil)
			return nil
		}
		r.status = statusFailed
		r.charge.refunded -= r.amount
		r.failure = s.move("refund_failure", "refund_failure", r.charge.currency, r.id, r.amount, 0)
		s.emit("refund.updated", s.refundObject(r), nil)
		s.emit("refund.failed", s.refundObject(r), nil)
		return nil
	})
}

// getRefund is GET /v1/refunds/{id}.
func (s *Server) getRefund(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	r := find(s.refunds, func(r *refund) bool { return r.id == c.PathValue("id") })
	if r == nil {
		return nil, missing("refund", c.PathValue("id"), "refund")
	}
	return s.refundObject(r), nil
}

// listRefunds is GET /v1/refunds.
func (s *Server) listRefunds(c *call) (any, *apiError) {
	ofIntent, ofCharge := c.p.text("payment_intent"), c.p.text("charge")
	return listPage(c, "/v1/refunds", "refund", s.refunds, listing[*refund]{
		id: func(r *refund) string { return r.id }, created: func(r *refund) time.Time { return r.created }, render: s.refundObject,
		keep: func(r *refund) bool {
			return (ofIntent == "" || r.charge.intent.id == ofIntent) && (ofCharge == "" || r.charge.id == ofCharge)
		},
	})
}

// OpenDispute begins a dispute about what a session, payment intent or charge has paid and not
// refunded. The money leaves the balance at once. It returns the id of the dispute.
func (s *Server) OpenDispute(id string) (made string, err error) {
	err = s.commit(func() error {
		of := s.chargeOf(id)
		switch {
		case of == nil:
			return fmt.Errorf("there is no payment of %q", id)
		case of.status != statusSucceeded || of.disputed || of.refunded == of.amount || of.method != methodCard:
			return noEffect("charge %s cannot be disputed", of.id)
		}
		d := &dispute{
			id: s.newID("du_"), status: disputeOpen, reason: "fraudulent", amount: of.amount - of.refunded, created: s.now(), charge: of,
		}
		of.disputed = true
		s.disputes = append(s.disputes, d)
		s.counts.Disputes++
		s.emit("charge.dispute.created", s.disputeObject(d), nil)
		d.movements = append(d.movements, s.move("adjustment", "dispute", of.currency, d.id, -d.amount, disputeFee))
		s.emit("charge.dispute.funds_withdrawn", s.disputeObject(d), nil)
		made = d.id
		return nil
	})
	return made, err
}

// CloseDispute ends a dispute. The money of a dispute that is won comes back.
func (s *Server) CloseDispute(id string, won bool) error {
	return s.commit(func() error {
		d := find(s.disputes, func(d *dispute) bool { return d.id == id })
		switch {
		case d == nil:
			return fmt.Errorf("there is no dispute %q", id)
		case d.status != disputeOpen:
			return noEffect("dispute %s is %s", id, d.status)
		}
		d.status = disputeLost
		if won {
			d.status = disputeWon
			d.movements = append(d.movements, s.move("adjustment", "dispute_reversal", d.charge.currency, d.id, d.amount, -disputeFee))
			s.emit("charge.dispute.funds_reinstated", s.disputeObject(d), nil)
		}
		s.emit("charge.dispute.closed", s.disputeObject(d), nil)
		return nil
	})
}

// getDispute is GET /v1/disputes/{id}.
func (s *Server) getDispute(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	d := find(s.disputes, func(d *dispute) bool { return d.id == c.PathValue("id") })
	if d == nil {
		return nil, missing("dispute", c.PathValue("id"), "dispute")
	}
	return s.disputeObject(d), nil
}

// listDisputes is GET /v1/disputes.
func (s *Server) listDisputes(c *call) (any, *apiError) {
	ofIntent, ofCharge := c.p.text("payment_intent"), c.p.text("charge")
	return listPage(c, "/v1/disputes", "dispute", s.disputes, listing[*dispute]{
		id: func(d *dispute) string { return d.id }, created: func(d *dispute) time.Time { return d.created }, render: s.disputeObject,
		keep: func(d *dispute) bool {
			return (ofIntent == "" || d.charge.intent.id == ofIntent) && (ofCharge == "" || d.charge.id == ofCharge)
		},
	})
}
