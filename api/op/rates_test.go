package op

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// An address that sends too many requests is refused on every route, also where nobody signs in, and
// told when to come back. Another address is served.
func TestRates_OfAnAddress(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}, AddressRate: 2})
	require.NoError(t, err)
	get := func(address string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/docs", nil)
		r.RemoteAddr = address + ":4711"
		w := httptest.NewRecorder()
		api.Handler().ServeHTTP(w, r)
		return w
	}
	for range 2 * burstSeconds {
		require.Equal(t, http.StatusOK, get("192.0.2.1").Code)
	}
	refused := get("192.0.2.1")
	require.Equal(t, http.StatusTooManyRequests, refused.Code)
	wait, err := strconv.Atoi(refused.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.Equal(t, http.StatusOK, get("192.0.2.2").Code)
}

// A principal has a rate of his own, whatever address he comes from.
func TestRates_OfAPrincipal(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}, PrincipalRate: 1})
	require.NoError(t, err)
	for range burstSeconds {
		require.NoError(t, api.limitPrincipal(Principal{ID: "token:a:1"}))
	}
	var p *problem.Problem
	require.ErrorAs(t, api.limitPrincipal(Principal{ID: "token:a:1"}), &p)
	require.True(t, p.Of(problem.TooManyRequests))
	require.NoError(t, api.limitPrincipal(Principal{ID: "token:b:2"}))
}
