package session

import (
	"html/template"
	"net/http"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
)

// refusal is what a browser shows that came by a link or from the provider: there a problem
// document would be the page, and the front end does not run.
var refusal = template.Must(template.New("refusal").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign-in refused - Slipway</title>
<link rel="icon" href="data:,">
{{with .Stylesheet}}<link rel="stylesheet" href="{{.}}">{{end}}
</head>
<body>
<main class="sign-in">
<h1>{{.Problem.Title}}</h1>
<div class="problem" role="alert"><p>{{.Problem.Detail}}</p>{{with .Problem.RetryAfter}}<p>Try again in {{.}} s.</p>{{end}}</div>
<p><a class="button primary" href="/portal/">Back to the portal</a></p>
<p class="quiet">Request {{.Problem.RequestID}}</p>
</main>
</body>
</html>
`))

const refusalPolicy = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// writePage answers a navigation with a problem. It returns false when the request asks for no
// page.
func (m *Manager) writePage(w http.ResponseWriter, r *http.Request, p *problem.Problem) bool {
	if !op.AcceptsHTML(r) {
		return false
	}
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", refusalPolicy)
	h.Set("Referrer-Policy", "no-referrer") // the address holds the provider's code
	w.WriteHeader(p.Status)
	_ = refusal.Execute(w, struct {
		Problem    *problem.Problem
		Stylesheet string
	}{p, m.cfg.Stylesheet}) // the status is out; a broken connection is the browser's to notice
	return true
}
