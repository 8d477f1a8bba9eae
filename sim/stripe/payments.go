package stripesim

import (
	"fmt"
	"slices"
	"time"
)

// Pay pays an open session with a method that pays at once. The session is complete and paid.
func (s *Server) Pay(id string) error {
	return s.commit(func() error {
		n, err := s.openSession(id)
		if err != nil {
			return err
		}
		if !slices.Contains(n.methods, methodCard) {
			return noEffect("session %s takes no card", id)
		}
		s.attempt(n, methodCard)
		n.status, n.paymentStatus = statusComplete, paid
		n.cancelTimer()
		s.succeed(n.intent)
		s.emit("checkout.session.completed", s.sessionObject(n), nil)
		return nil
	})
}

// PayLater begins to pay an open session with a delayed method: the session is complete and unpaid
// until Settle.
func (s *Server) PayLater(id string) error {
	return s.commit(func() error {
		n, err := s.openSession(id)
		if err != nil {
			return err
		}
		method := delayedMethod(n.currency)
		if !slices.Contains(n.methods, method) {
			return noEffect("session %s takes no delayed payment", id)
		}
		s.attempt(n, method)
		n.status = statusComplete
		n.cancelTimer()
		n.intent.status = "processing"
		s.emit("charge.pending", s.chargeObject(n.intent.charge), nil)
		s.emit("payment_intent.processing", s.intentObject(n.intent), nil)
		s.emit("checkout.session.completed", s.sessionObject(n), nil)
		return nil
	})
}

// Settle ends a delayed payment: the money came, or it did not.
func (s *Server) Settle(id string, arrived bool) error {
	return s.commit(func() error {
		n := s.session(id)
		switch {
		case n == nil:
			return fmt.Errorf("there is no session %q", id)
		case n.intent == nil || n.intent.status != "processing":
			return noEffect("session %s has no payment under way", id)
		case arrived:
			n.paymentStatus = paid
			s.succeed(n.intent)
			s.emit("checkout.session.async_payment_succeeded", s.sessionObject(n), nil)
			return nil
		}
		s.fail(n.intent)
		s.emit("checkout.session.async_payment_failed", s.sessionObject(n), nil)
		return nil
	})
}

// Decline tries to pay an open session with a card that is declined: the session stays open.
func (s *Server) Decline(id string) error {
	return s.commit(func() error {
		n, err := s.openSession(id)
		if err != nil {
			return err
		}
		s.attempt(n, methodCard)
		s.fail(n.intent)
		return nil
	})
}

// Expire ends an open session as its time does.
func (s *Server) Expire(id string) error {
	return s.commit(func() error {
		n, err := s.openSession(id)
		if err != nil {
			return err
		}
		s.expire(n, nil)
		return nil
	})
}

// attempt makes the session's payment intent, if there is none yet, and a charge.
func (s *Server) attempt(n *session, method string) {
	now := s.now()
	if n.intent == nil {
		n.intent = &intent{
			id: s.newID("pi_"), currency: n.currency, status: "requires_payment_method", amount: n.amount, created: now,
			metadata: n.intentMetadata, methods: n.methods, secret: s.newID(""),
		}
		s.intents = append(s.intents, n.intent)
		s.emit("payment_intent.created", s.intentObject(n.intent), nil)
	}
	p := n.intent
	p.charge = &charge{
		id: s.newID("ch_"), currency: n.currency, status: statusPending, method: method, amount: n.amount, created: now, intent: p, email: n.email,
	}
	if method != methodCard {
		p.charge.id = s.newID("py_")
	}
	s.charges = append(s.charges, p.charge)
	s.counts.Charges++
}

func (s *Server) succeed(p *intent) {
	p.status, p.received, p.declined = statusSucceeded, p.amount, false
	c := p.charge
	c.status = statusSucceeded
	kind := "charge"
	if c.method != methodCard {
		kind = "payment"
	}
	c.movement = s.move(kind, "charge", c.currency, c.id, c.amount, c.amount*29/1000+30)
	s.emit("charge.succeeded", s.chargeObject(c), nil)
	s.emit("payment_intent.succeeded", s.intentObject(p), nil)
}

func (s *Server) fail(p *intent) {
	p.status, p.declined = "requires_payment_method", true
	p.charge.status = statusFailed
	s.emit("charge.failed", s.chargeObject(p.charge), nil)
	s.emit("payment_intent.payment_failed", s.intentObject(p), nil)
}

// move makes a balance transaction.
func (s *Server) move(kind, category, currency, source string, amount, fee int64) *movement {
	m := &movement{
		id: s.newID("txn_"), kind: kind, category: category, currency: currency, source: source, amount: amount, fee: fee, created: s.now(),
	}
	s.movements = append(s.movements, m)
	return m
}

// getIntent is GET /v1/payment_intents/{id}.
func (s *Server) getIntent(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	p := find(s.intents, func(p *intent) bool { return p.id == c.PathValue("id") })
	if p == nil {
		return nil, missing("payment_intent", c.PathValue("id"), "intent")
	}
	return s.intentObject(p), nil
}

// getCharge is GET /v1/charges/{id}.
func (s *Server) getCharge(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	found := s.charge(c.PathValue("id"))
	if found == nil {
		return nil, missing("charge", c.PathValue("id"), "id")
	}
	return s.chargeObject(found), nil
}

func (s *Server) charge(id string) *charge {
	return find(s.charges, func(c *charge) bool { return c.id == id })
}

// chargeOf returns the charge that an id of a session, payment intent or charge leads to.
func (s *Server) chargeOf(id string) *charge {
	return find(s.charges, func(c *charge) bool {
		n := find(s.sessions, func(n *session) bool { return n.intent == c.intent })
		return c.intent.charge == c && (c.id == id || c.intent.id == id || n != nil && n.id == id)
	})
}

// listMovements is GET /v1/balance_transactions.
func (s *Server) listMovements(c *call) (any, *apiError) {
	currency, source, kind := c.p.text("currency"), c.p.text("source"), c.p.text("type")
	return listPage(c, "/v1/balance_transactions", "balance_transaction", s.movements, listing[*movement]{
		id: func(m *movement) string { return m.id }, created: func(m *movement) time.Time { return m.created }, render: s.movementObject,
		keep: func(m *movement) bool {
			return (currency == "" || m.currency == currency) && (source == "" || m.source == source) && (kind == "" || m.kind == kind)
		},
	})
}

// getMovement is GET /v1/balance_transactions/{id}.
func (s *Server) getMovement(c *call) (any, *apiError) {
	if e := c.p.unknown(); e != nil {
		return nil, e
	}
	m := find(s.movements, func(m *movement) bool { return m.id == c.PathValue("id") })
	if m == nil {
		return nil, missing("balance transaction", c.PathValue("id"), "id")
	}
	return s.movementObject(m), nil
}
