package stripesim

import (
	"errors"
	"fmt"
	"net/http"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// AdminAPI is scenario control. It has no authentication: bind it to loopback.
//
//	GET    /_sim/faults/            the script; GET /_sim/fault-names lists what there is
//	POST   /_sim/faults/            a Fault as JSON -> 201 {"id": n}
//	DELETE /_sim/faults/{id}        one line; DELETE /_sim/faults/ all
//	GET    /_sim/counters           effects and requests
//	GET    /_sim/totals             money by currency
//	GET    /_sim/deliveries         every try of a delivery
//	GET    /_sim/clock              {"now", "speed"}; POST /_sim/clock/step?by=10m steps it
//	POST   /_sim/endpoints          an Endpoint as JSON
//	POST   /_sim/secrets            {"secrets": [...]}: roll the signing secret
//	POST   /_sim/redeliver          {"id": event}
//	POST   /_sim/acts               {"act": ..., "id": ..., "amount": ...}: what others do
func (s *Server) AdminAPI() http.Handler {
	mux := http.NewServeMux()
	simcontrol.HandleView(mux, "/_sim/counters", func() any { return s.Counters() })
	simcontrol.HandleView(mux, "/_sim/totals", func() any { return s.Totals() })
	simcontrol.HandleView(mux, "/_sim/deliveries", func() any { return s.Attempts() })
	simcontrol.HandleFaults(mux, s)
	simcontrol.HandleClock(mux, s.clock)
	simcontrol.HandleAct(mux, "/_sim/endpoints", s.AddEndpoint)
	simcontrol.HandleAct(mux, "/_sim/secrets", func(in struct{ Secrets []string }) error { return s.SetSecrets(in.Secrets...) })
	simcontrol.HandleAct(mux, "/_sim/redeliver", func(in struct{ ID string }) error { return s.Redeliver(in.ID) })
	mux.HandleFunc("POST /_sim/acts", func(w http.ResponseWriter, r *http.Request) {
		var in Act
		err := simcontrol.ReadJSON(w, r, &in)
		made := ""
		if err == nil {
			made, err = s.Do(in)
		}
		simcontrol.Answer(w, map[string]string{"id": made}, err)
	})
	return mux
}

// Act is what somebody else than the client does: the payer, the bank, or an operator in the
// dashboard.
type Act struct {
	Act    string `json:"act"`
	ID     string `json:"id"`               // of a session, refund or dispute
	Amount int64  `json:"amount,omitempty"` // of a refund
}

// Do carries out an act: pay, pay_later, settle, settle_failed, decline, expire, refund,
// refund_succeeded, refund_failed, dispute, dispute_won or dispute_lost. It returns the id of what
// it made.
func (s *Server) Do(a Act) (string, error) {
	switch a.Act {
	case "pay":
		return "", s.Pay(a.ID)
	case "pay_later":
		return "", s.PayLater(a.ID)
	case "settle", "settle_failed":
		return "", s.Settle(a.ID, a.Act == "settle")
	case "decline":
		return "", s.Decline(a.ID)
	case "expire":
		return "", s.Expire(a.ID)
	case "refund":
		if a.Amount < 1 {
			return "", errors.New("a refund needs an amount of at least 1")
		}
		return s.RefundInDashboard(a.ID, a.Amount)
	case "refund_succeeded", "refund_failed":
		return "", s.SettleRefund(a.ID, a.Act == "refund_succeeded")
	case "dispute":
		return s.OpenDispute(a.ID)
	case "dispute_won", "dispute_lost":
		return "", s.CloseDispute(a.ID, a.Act == "dispute_won")
	}
	return "", fmt.Errorf("act %q is unknown: use pay, pay_later, settle, settle_failed, decline, expire, refund, refund_succeeded, refund_failed, dispute, dispute_won or dispute_lost", a.Act)
}
