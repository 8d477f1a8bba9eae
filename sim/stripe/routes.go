package stripesim

// routes are the endpoints of Stripe's API that are simulated.
func (s *Server) routes() []route {
	return []route{
		{"POST /v1/checkout/sessions", "create_session", s.createSession},
		{"GET /v1/checkout/sessions", "list_sessions", s.listSessions},
		{"GET /v1/checkout/sessions/{id}", "get_session", s.getSession},
		{"POST /v1/checkout/sessions/{id}/expire", "expire_session", s.expireSession},
		{"GET /v1/payment_intents/{id}", "get_payment_intent", s.getIntent},
		{"GET /v1/charges/{id}", "get_charge", s.getCharge},
		{"POST /v1/refunds", "create_refund", s.createRefund},
		{"GET /v1/refunds", "list_refunds", s.listRefunds},
		{"GET /v1/refunds/{id}", "get_refund", s.getRefund},
		{"GET /v1/disputes", "list_disputes", s.listDisputes},
		{"GET /v1/disputes/{id}", "get_dispute", s.getDispute},
		{"GET /v1/balance_transactions", "list_balance_transactions", s.listMovements},
		{"GET /v1/balance_transactions/{id}", "get_balance_transaction", s.getMovement},
		{"GET /v1/events", "list_events", s.listEvents},
		{"GET /v1/events/{id}", "get_event", s.getEvent},
	}
}

// Counters are the effects and requests since the start.
type Counters struct {
	Sessions     int            `json:"sessions"`      // that were made
	Charges      int            `json:"charges"`       // that were tried
	Refunds      int            `json:"refunds"`       // that were made
	Disputes     int            `json:"disputes"`      // that were opened
	Replays      int            `json:"replays"`       // answers from an idempotency key
	Deliveries   int            `json:"deliveries"`    // tries
	NotGenerated int            `json:"not_generated"` // events that a fault swallowed
	Events       map[string]int `json:"events"`        // by type
	Requests     map[string]int `json:"requests"`      // by endpoint, whatever their outcome
	Faults       int            `json:"faults"`        // lines of the script so far
}

func newCounters() Counters { return Counters{Events: map[string]int{}, Requests: map[string]int{}} }

// Counters returns the counts.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.counts
	out.Faults = s.Added()
	out.Events, out.Requests = copyCounts(out.Events), copyCounts(out.Requests)
	return out
}

func copyCounts(m map[string]int) map[string]int {
	out := make(map[string]int, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Totals are the movements of money in one currency, in minor units: what a ledger has to agree
// with.
type Totals struct {
	Paid     int64 `json:"paid"`     // of charges that succeeded
	Refunded int64 `json:"refunded"` // of refunds that have not failed
	Disputed int64 `json:"disputed"` // of disputes that are open or lost
}

// Totals returns the totals by currency.
func (s *Server) Totals() map[string]Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Totals{}
	for _, c := range s.charges {
		if c.status == statusSucceeded {
			t := out[c.currency]
			t.Paid += c.amount
			out[c.currency] = t
		}
	}
	for _, r := range s.refunds {
		if r.status != statusFailed {
			t := out[r.charge.currency]
			t.Refunded += r.amount
			out[r.charge.currency] = t
		}
	}
	for _, d := range s.disputes {
		if d.status != disputeWon {
			t := out[d.charge.currency]
			t.Disputed += d.amount
			out[d.charge.currency] = t
		}
	}
	return out
}
