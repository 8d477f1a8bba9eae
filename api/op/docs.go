package op

import (
	_ "embed"
	"net/http"
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
