package rest

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
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

// Version is what the server is.
type Version struct {
	Version string `json:"version"`
	API     string `json:"api"`
}

func (s *Server) registerVersion() {
	add(s, huma.Operation{OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: []string{"system"}, Summary: "The server's version"},
		func(context.Context, *struct{}) (*struct{ Body Version }, error) {
			return &struct{ Body Version }{Version{s.cfg.Version, "v1"}}, nil
		})
}
