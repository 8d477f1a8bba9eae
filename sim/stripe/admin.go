package stripesim

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

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
	show := func(path string, f func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { simcontrol.Answer(w, f(), nil) })
	}
	show("/_sim/counters", func() any { return s.Counters() })
	show("/_sim/totals", func() any { return s.Totals() })
	show("/_sim/deliveries", func() any { return s.Attempts() })
	show("/_sim/fault-names", func() any { return FaultNames() })
	show("/_sim/faults/{$}", func() any { return s.Faults() })
	show("/_sim/clock", func() any { return s.clockView() })
	mux.HandleFunc("POST /_sim/faults/{$}", s.adminAddFault)
	mux.HandleFunc("DELETE /_sim/faults/{$}", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults(0)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/faults/{id}", s.adminClear)
	mux.HandleFunc("POST /_sim/clock/step", s.adminStep)
	mux.HandleFunc("POST /_sim/endpoints", accept(s.AddEndpoint))
	mux.HandleFunc("POST /_sim/secrets", accept(func(in struct{ Secrets []string }) error { return s.SetSecrets(in.Secrets...) }))
	mux.HandleFunc("POST /_sim/redeliver", accept(func(in struct{ ID string }) error { return s.Redeliver(in.ID) }))
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

// accept decodes a JSON body into T and runs f.
func accept[T any](f func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		err := simcontrol.ReadJSON(w, r, &in)
		if err == nil {
			err = f(in)
		}
		simcontrol.Answer(w, map[string]bool{"done": true}, err)
	}
}

// Act is what somebody else than the client does: the payer, the bank, or an operator in the
// dashboard.
type Act struct {
	Act    string `json:"act"`
	ID     string `json:"id"`               // of a session, refund or dispute
	Amount int64  `json:"amount,omitempty"` // of a refund
}

// Do carries out an act: pay, pay_later, settle, settle_failed, decline, expire, refund,
// refund_succeeded, refund_failed, dispute, dispute_won or dispute_lost. It returns the id of what it
// made.
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

func (s *Server) clockView() map[string]any {
	return map[string]any{"now": s.now(), "speed": s.clock.Speed()}
}

func (s *Server) adminAddFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	err := simcontrol.ReadJSON(w, r, &f)
	var id int
	if err == nil {
		id, err = s.AddFault(f)
	}
	if err != nil {
		simcontrol.Answer(w, nil, err)
		return
	}
	simcontrol.Respond(w, http.StatusCreated, map[string]int{"id": id})
}

func (s *Server) adminClear(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 1 {
		simcontrol.Answer(w, nil, errors.New("the id must be the number that adding the fault returned"))
		return
	}
	s.ClearFaults(id)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) adminStep(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("by"))
	if err != nil || d <= 0 {
		simcontrol.Answer(w, nil, errors.New("by must be a duration, for example ?by=5m"))
		return
	}
	s.clock.Step(d)
	simcontrol.Answer(w, s.clockView(), nil)
}
