package cli_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
)

// A read waits as long as the server asks; a change is not repeated by itself, and the message says
// how it can be.
func TestClient_RespectsRetryAfter(t *testing.T) {
	t.Parallel()
	var reads, writes atomic.Int32
	var key atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && reads.Add(1) > 1 {
			_, _ = w.Write([]byte(`{"data":[{"id":"sku_1","name":"big"}]}`))
			return
		}
		if r.Method == http.MethodPost {
			writes.Add(1)
			key.Store(r.Header.Get("Idempotency-Key"))
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"detail":"The database does not answer.","status":503}`))
	}))
	t.Cleanup(srv.Close)
	w := &world{t: t, home: t.TempDir(), env: map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "slp_x"}}
	require.Contains(t, w.run("", "sku", "list").exits(0).out, "big")
	require.EqualValues(t, 2, reads.Load())
	refused := w.run("", "sku", "create", "x").exits(cli.ExitUnreachable).err
	require.EqualValues(t, 1, writes.Load())
	require.Contains(t, refused, "--idempotency-key "+key.Load().(string))
}

// The failure of an outside system names its page, without control characters of the other side.
func TestClient_PrintsRunbookOfProblem(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte(`{"detail":"No answer.","status":502,"failure_class":"maas_unavailable","runbook":"https://s/docs/runbooks/maas_unavailable\u001b[2J"}`))
	}))
	t.Cleanup(srv.Close)
	w := &world{t: t, home: t.TempDir(), env: map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "slp_x"}}
	said := w.run("", "sku", "create", "x").err
	require.Contains(t, said, "maas_unavailable: https://s/docs/runbooks/maas_unavailable")
	require.NotContains(t, said, "\x1b")
}
