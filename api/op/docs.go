package op

import (
	_ "embed"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/docs"
)

// docsPage shows /openapi.json without help from outside: it works offline.
//
//go:embed docs.html
var docsPage []byte

func serveDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'")
	_, _ = w.Write(docsPage) // a broken connection is the reader's to notice
}

// servePage answers with a page of docs/, a runbook for example.
func (a *API) servePage(w http.ResponseWriter, r *http.Request) {
	page, err := docs.Page(chi.URLParam(r, "*"))
	if err != nil {
		a.WriteError(w, r, problem.New(problem.NotFound, "there is no such page; /docs/operations is a good start"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(page)
}

// DocURL returns where the page of a file such as "docs/pxe.md#migrating" is served.
func (a *API) DocURL(file string) string { return docs.URL(a.publicURL, file) }
