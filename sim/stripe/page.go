package stripesim

import (
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// pageData is what the hosted payment page shows.
type pageData struct {
	ID, Product, Currency, Status, PaymentStatus, Notice string
	Amount                                               int64
	Open, Later                                          bool
}

// pageTemplate is the hosted payment page. It loads nothing from elsewhere.
var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Simulated payment</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font:16px sans-serif;max-width:32rem;margin:3rem auto;padding:0 1rem}button{font:inherit;padding:.5rem 1rem;margin:.25rem .25rem 0 0}.n{color:#a00}</style>
</head><body>
<h1>Simulated payment</h1>
<p>This page stands in for the payment page of Stripe. No money moves.</p>
{{if .Notice}}<p class="n" role="alert">{{.Notice}}</p>{{end}}
<p><strong>{{.Product}}</strong><br>{{.Amount}} {{.Currency}} (minor units)<br>Session {{.ID}}: {{.Status}}, {{.PaymentStatus}}</p>
{{if .Open}}<form method="post">
<button name="do" value="pay">Pay</button>
{{if .Later}}<button name="do" value="pay_later">Pay later</button>{{end}}
<button name="do" value="decline">Decline</button>
<button name="do" value="cancel">Cancel</button>
</form>{{else}}<p>This session can no longer be paid.</p>{{end}}
</body></html>
`))

func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	s.renderPage(w, r.PathValue("id"), http.StatusOK, "")
}

func (s *Server) renderPage(w http.ResponseWriter, id string, status int, notice string) {
	s.mu.Lock()
	n := s.session(id)
	var d pageData
	if n != nil {
		d = pageData{
			ID: n.id, Product: n.product, Currency: strings.ToUpper(n.currency), Status: n.status, PaymentStatus: n.paymentStatus, Amount: n.amount,
			Open: n.status == statusOpen, Later: slices.Contains(n.methods, delayedMethod(n.currency)), Notice: notice,
		}
	}
	s.mu.Unlock()
	if n == nil {
		http.Error(w, "There is no such payment page.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.WriteHeader(status)
	_ = pageTemplate.Execute(w, d) // a browser that went away is the browser's matter
}

// usePage is one button of the page.
func (s *Server) usePage(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	s.mu.Lock()
	n := s.session(id)
	var success, cancel string
	if n != nil {
		success, cancel = strings.ReplaceAll(n.successURL, "{CHECKOUT_SESSION_ID}", n.id), n.cancelURL
	}
	s.mu.Unlock()
	if n == nil {
		http.Error(w, "There is no such payment page.", http.StatusNotFound)
		return
	}
	var err error
	switch r.PostFormValue("do") {
	case "pay":
		err = s.Pay(id)
	case "pay_later":
		err = s.PayLater(id)
	case "decline":
		if err = s.Decline(id); err == nil {
			s.renderPage(w, id, http.StatusOK, "Your card was declined.")
			return
		}
	case "cancel":
		http.Redirect(w, r, cancel, http.StatusSeeOther)
		return
	default:
		http.Error(w, "Use one of the buttons of the page.", http.StatusBadRequest)
		return
	}
	switch {
	case errors.Is(err, simcontrol.ErrNoEffect):
		s.renderPage(w, id, http.StatusConflict, "This session can no longer be paid.")
	case err != nil:
		http.Error(w, "The payment failed.", http.StatusBadRequest)
	default:
		http.Redirect(w, r, success, http.StatusSeeOther)
	}
}
