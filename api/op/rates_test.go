package op

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// An address that sends too many requests is refused on every route, including those without
// sign-in. The answer says when to try again. Another address is served.
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

// A principal has one rate for requests from all addresses.
func TestRates_OfAPrincipal(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}, PrincipalRate: 1})
	require.NoError(t, err)
	for range burstSeconds {
		require.NoError(t, api.limitPrincipal(t.Context(), Principal{ID: "token:a:1"}))
	}
	var p *problem.Problem
	require.ErrorAs(t, api.limitPrincipal(t.Context(), Principal{ID: "token:a:1"}), &p)
	require.True(t, p.Of(problem.TooManyRequests))
	require.NoError(t, api.limitPrincipal(t.Context(), Principal{ID: "token:b:2"}))
}

// The tokens of a member and the member have one rate and one number of places together: a project
// has fifty tokens.
func TestRates_OfTheTokensOfAMember(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}, PrincipalRate: 20})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	admitted := func(ctx func() context.Context) (n int) {
		for i := range 250 {
			who := Principal{ID: fmt.Sprint("project_token:ci:tok_", i%50), Project: "prj_1", token: &projectToken{subject: "oidc:eve"}}
			if api.limitPrincipal(ctx(), who) == nil {
				n++
			}
		}
		return n
	}
	request := func() context.Context { return context.WithValue(ended, placeKey, &heldPlace{}) }
	require.Equal(t, principalPlaces, admitted(request))
	require.LessOrEqual(t, float64(admitted(t.Context)), 20*(burstSeconds+time.Since(began).Seconds()))
	require.Error(t, api.limitPrincipal(request(), Principal{ID: "oidc:eve"}), "the member itself")
	require.NoError(t, api.limitPrincipal(request(), Principal{ID: "oidc:mallory"}))
}

// The members of a project make a bounded number of changes, which are audited for ever, with
// however many tokens. Reading is not a change, and operators are not held up.
func TestRates_OfTheChangesOfAProject(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}})
	require.NoError(t, err)
	began, admitted := time.Now(), 0
	for range 2 * changeBurst {
		if api.limitChanges(ProjectAccess{Project: "prj_1"}, true) == nil {
			admitted++
		}
		require.NoError(t, api.limitChanges(ProjectAccess{Project: "prj_1"}, false))
		require.NoError(t, api.limitChanges(ProjectAccess{Project: "prj_1", Operator: true}, true))
	}
	require.InDelta(t, changeBurst, admitted, 2+changeRate*time.Since(began).Seconds())
	require.NoError(t, api.limitChanges(ProjectAccess{Project: "prj_2"}, true))
}

// Health checks are answered during a flood from the same address, which may be the address of a
// proxy.
func TestRates_HealthIsAnswered(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}, AddressRate: 1})
	require.NoError(t, err)
	for _, path := range []string{HealthPath, ReadyPath} {
		api.Router().Get(path, func(http.ResponseWriter, *http.Request) {})
		for range 3 * burstSeconds {
			w := httptest.NewRecorder()
			api.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			require.Equal(t, http.StatusOK, w.Code)
		}
	}
}

// A principal with slow requests has a limited number of them served at the same time. Requests of
// other principals are served meanwhile.
func TestPlaces_OfAPrincipal(t *testing.T) {
	t.Parallel()
	api, err := New(Config{Store: &db.Store{}})
	require.NoError(t, err)
	const slow, other = "token:a:1", "token:b:2"
	entered, left := make(chan error), make(chan struct{})
	h := api.deadline(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- api.limitPrincipal(r.Context(), Principal{ID: r.URL.Query().Get("who")})
		<-left
	}))
	var served sync.WaitGroup
	ask := func(ctx context.Context, who string) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/?who="+who, nil)
		served.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
		return <-entered
	}
	for range principalPlaces {
		require.NoError(t, ask(t.Context(), slow))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var p *problem.Problem
	require.ErrorAs(t, ask(gone, slow), &p, "it waits")
	require.True(t, p.Of(problem.TooManyRequests))
	require.NoError(t, ask(t.Context(), other))
	close(left)
	served.Wait()
	require.Zero(t, api.rates.places.Len(), "nothing is kept of those who left")
	require.NoError(t, api.limitPrincipal(t.Context(), Principal{ID: slow}), "what is no request of the API has no place")
}

// An answer that the client does not read is dropped, with its memory. A stream on the same
// connection lasts longer.
func TestAnswers_AreReadInTime(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{false, true} {
		api, err := New(Config{Store: &db.Store{}})
		require.NoError(t, err)
		api.rates.answerLimit = runenv.Patience(500 * time.Millisecond)
		api.Unbounded(func(path string) bool { return path == "/stream" })
		ended := make(chan error, 1)
		api.Router().Get("/large", func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 64<<20))
			ended <- err
		})
		api.Router().Get("/stream", func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(2 * api.rates.answerLimit)
			_, _ = io.WriteString(w, "late")
		})
		srv := httptest.NewUnstartedServer(api.Handler())
		srv.EnableHTTP2 = two
		srv.StartTLS()
		t.Cleanup(srv.Close)
		get := func(path string) *http.Response {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path, nil)
			require.NoError(t, err)
			res, err := srv.Client().Do(req)
			require.NoError(t, err)
			t.Cleanup(func() { _ = res.Body.Close() })
			require.Equal(t, two, res.ProtoMajor == 2)
			return res
		}
		_, err = io.Copy(io.Discard, get("/docs").Body)
		require.NoError(t, err)
		text, err := io.ReadAll(get("/stream").Body)
		require.NoError(t, err)
		require.Equal(t, "late", string(text))
		get("/large")
		select {
		case err := <-ended:
			require.Error(t, err)
		case <-time.After(runenv.Patience(10 * time.Second)):
			t.Fatalf("HTTP/2 %t: the answer is written as long as its reader likes", two)
		}
	}
}
