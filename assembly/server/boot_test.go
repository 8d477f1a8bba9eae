package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// newListeners returns what the listeners of a process serve, without a database.
func newListeners(t *testing.T, cfg op.Config) (*op.API, *App) {
	t.Helper()
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	sealed, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	api, err := httpapi.New(httpapi.Config{API: cfg, REST: rest.Config{Temporal: temporal, Secrets: sealed}})
	require.NoError(t, err)
	return api, &App{Config: config.Default()}
}

// Whatever a listener serves, an address has its rate: also the codec server, and what is not
// there.
func TestAddressRate_OnAllOfAListener(t *testing.T) {
	t.Parallel()
	for _, path := range []string{codecPath + "/decode", "/boot/start.ipxe", "/docs"} {
		api, a := newListeners(t, op.Config{Store: &db.Store{}, AddressRate: 1})
		customers, refused := a.customerHandler(api), 0
		for range 20 {
			w := httptest.NewRecorder()
			customers.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
			if w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
		require.NotZero(t, refused, path)
	}
}

// Boot routes and reports are on the listener of the boot network alone, which has nothing else and
// answers its networks alone.
func TestBootRoutes_OnTheirListenerAlone(t *testing.T) {
	t.Parallel()
	api, a := newListeners(t, op.Config{Store: &db.Store{}})
	customers, machines := a.customerHandler(api), bootOnly(api, append(a.Config.Boot.Prefixes(), netip.MustParsePrefix("203.0.113.0/24")))
	ask := func(h http.Handler, method, path, from string) int {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const script, report = "/boot/start.ipxe", op.Prefix + "/report"
	for _, c := range []struct {
		h                  http.Handler
		method, path, from string
		want               int
	}{
		{customers, http.MethodGet, script, "10.0.0.7:1", http.StatusNotFound},
		{customers, http.MethodPost, report, "10.0.0.7:1", http.StatusNotFound},
		{customers, http.MethodGet, "/docs", "198.51.100.7:1", http.StatusOK},
		{machines, http.MethodGet, script, "10.0.0.7:1", http.StatusOK},
		{machines, http.MethodGet, script, "[::ffff:10.0.0.7]:1", http.StatusOK},
		{machines, http.MethodGet, script, "[fd00::7]:1", http.StatusOK},
		{machines, http.MethodGet, script, "203.0.113.7:1", http.StatusOK},
		{machines, http.MethodGet, script, "198.51.100.7:1", http.StatusNotFound},
		{machines, http.MethodPost, report, "198.51.100.7:1", http.StatusNotFound},
		{machines, http.MethodGet, script, "[2001:db8::7]:1", http.StatusNotFound},
		{machines, http.MethodGet, "/docs", "10.0.0.7:1", http.StatusNotFound},
		{machines, http.MethodGet, op.Prefix + "/nodes", "10.0.0.7:1", http.StatusNotFound},
		{machines, http.MethodGet, "/healthz", "10.0.0.7:1", http.StatusNotFound},
	} {
		require.Equal(t, c.want, ask(c.h, c.method, c.path, c.from), "%s %s from %s", c.method, c.path, c.from)
	}
}
