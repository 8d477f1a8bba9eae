package rest_test

import (
	"flag"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

//go:generate go test . -run ^TestTheCommittedDocumentIsCurrent$ -update

var update = flag.Bool("update", false, "write the generated documents")

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

const documentPath = "../../docs/api/openapi.yaml"

func TestTheCommittedDocumentIsCurrent(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	s, err := httpapi.New(httpapi.Config{API: op.Config{Store: store, Version: "v1"}, REST: rest.Config{Temporal: &engine{}, Secrets: sealed(t, store)}})
	require.NoError(t, err)
	got, err := s.OpenAPI()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(documentPath, got, 0o600))
	}
	want, err := os.ReadFile(documentPath)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "docs/api/openapi.yaml is stale; go test ./api/rest -run Document -update writes it")
	require.NotContains(t, string(got), "$schema")
	require.NotContains(t, string(got), "ErrorModel")
}

func TestPlainRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anonymous := header{"Authorization": ""}
	for path, want := range map[string]string{
		"/healthz": "application/json", "/readyz": "application/json", "/docs": "text/html; charset=utf-8",
		"/openapi.json": "application/openapi+json", "/openapi.yaml": "application/openapi+yaml", "/api/v1/version": "application/json",
	} {
		a := w.do("GET", path, nil, anonymous).want(http.StatusOK)
		require.Equal(t, want, a.header.Get("Content-Type"), path)
		require.NotEmpty(t, a.header.Get("X-Request-Id"))
	}
	require.NotContains(t, string(w.do("GET", "/docs", nil).raw), "https://", "the page must work offline")
	w.do("GET", "/docs/runbooks/no_such_class", nil, anonymous).refused(problem.NotFound)
	w.do("GET", "/docs/../go.mod", nil, anonymous).refused(problem.NotFound)
	w.do("GET", "/metrics", nil, anonymous).refused(problem.Unauthenticated)
	require.Contains(t, string(w.do("GET", "/metrics", nil).want(http.StatusOK).raw), "slipway_build_info")
	w.do("GET", "/api/v1/nothing", nil).refused(problem.NotFound)
	w.do("DELETE", "/api/v1/nodes", nil).refused(problem.MethodNotAllowed)
	require.Equal(t, "mine", w.do("GET", "/api/v1/version", nil, header{"X-Request-Id": "mine"}).header.Get("X-Request-Id"))
}
