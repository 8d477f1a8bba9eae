package portal_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// world is a server with a database of its own.
type world struct {
	t     *testing.T
	store *db.Store
	owner *pgx.Conn
	api   *op.API
	url   string
	token string // of an admin
	id    string // of the token
}

func newWorld(t *testing.T, tune ...func(*portal.Config)) *world {
	t.Helper()
	dsn := dbtest.Database(t)
	w := &world{t: t, store: dbtest.Open(t, dsn), owner: dbtest.Owner(t, dsn)}
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	sealed, err := secrets.Open(t.Context(), w.store, secrets.Keeper{URL: "base64key://", KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sealed.Close() })
	srv := httptest.NewUnstartedServer(nil)
	w.url = "http://" + srv.Listener.Addr().String()
	cfg := httpapi.Config{
		API:  op.Config{Store: w.store, Version: "test", PublicURL: w.url, StreamRecheck: 20 * time.Millisecond},
		REST: rest.Config{Temporal: temporal, Secrets: sealed},
		Machines: grpc.Config{Offers: func(string) []runplan.Capability {
			return []runplan.Capability{runplan.CapRemoteExec, runplan.CapPowerControl}
		}},
	}
	cfg.Portal.TemporalUI, cfg.Portal.PublicURL = "https://temporal.example", w.url
	for _, f := range tune {
		f(&cfg.Portal)
	}
	if cfg.Portal.OIDC.Issuer != "" {
		cfg.API.Auth = op.AuthConfig{Issuer: cfg.Portal.OIDC.Issuer, Audience: identity.Audience}
	}
	w.api, err = httpapi.New(cfg)
	require.NoError(t, err)
	srv.Config.Handler = w.api.Handler()
	srv.Start()
	t.Cleanup(srv.Close)
	text, row, err := op.IssueToken(t.Context(), w.store, "the-admin", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	w.token, w.id = text, row.ID
	return w
}

// exec changes rows as time does, which the server may not.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.owner.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// count reads one number.
func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.store.DBTX().QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

// browser sends requests as a browser does that shows a page of the portal.
type browser struct {
	w       *world
	cookies map[string]string
	headers map[string]string
}

func (w *world) browser() *browser {
	return &browser{w: w, cookies: map[string]string{}, headers: map[string]string{"Sec-Fetch-Site": "same-origin"}}
}

type answer struct {
	*http.Response
	raw []byte
}

func (b *browser) do(method, path string, body any) answer {
	b.w.t.Helper()
	req := b.request(method, path, body)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	require.NoError(b.w.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(b.w.t, err)
	for _, c := range res.Cookies() {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return answer{res, raw}
}

func (b *browser) request(method, path string, body any) *http.Request {
	b.w.t.Helper()
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(b.w.t, err)
		r = bytes.NewReader(raw)
	}
	if path[0] == '/' {
		path = b.w.url + path
	}
	req, err := http.NewRequestWithContext(b.w.t.Context(), method, path, r)
	require.NoError(b.w.t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for name, value := range b.headers {
		req.Header.Set(name, value)
	}
	return req
}

const cookie = "slipway_session" // of a server on this machine without TLS

// signedIn is a browser with a session of the admin's token.
func (w *world) signedIn() *browser {
	w.t.Helper()
	b := w.browser()
	require.Equal(w.t, http.StatusCreated, b.do("POST", "/portal/session", map[string]string{"token": w.token}).StatusCode)
	return b
}

func (b *browser) status() int {
	b.w.t.Helper()
	return b.do("GET", "/api/v1/whoami", nil).StatusCode
}

func (b *browser) kind(a answer) string {
	b.w.t.Helper()
	var p struct{ Type string }
	require.NoError(b.w.t, json.Unmarshal(a.raw, &p), string(a.raw))
	return p.Type
}
