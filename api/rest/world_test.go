package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// world is an API on a database of its own.
type world struct {
	t       *testing.T
	store   *db.Store
	engine  *engine
	url     string
	tokens  map[string]string // by role
	site    db.Site
	profile db.Profile
	sku     db.SKU
}

const testCA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

func newWorld(t *testing.T, tune ...func(*httpapi.Config)) *world {
	t.Helper()
	w := &world{t: t, store: dbtest.Store(t), engine: &engine{}, tokens: map[string]string{}}
	metrics, err := telemetry.NewRegistry("test", "")
	require.NoError(t, err)
	cfg := httpapi.Config{
		API:    op.Config{Store: w.store, Version: "test", PrincipalRate: 1e6, AddressRate: 1e6},
		REST:   rest.Config{Temporal: w.engine, Secrets: sealed(t, w.store), AgentURL: "https://agents.example:7443", AgentCAPEM: testCA},
		Health: telemetry.NewHealth(discard()), Metrics: metrics,
	}
	for _, f := range tune {
		f(&cfg)
	}
	s, err := httpapi.New(cfg)
	require.NoError(t, err)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	w.url = srv.URL
	for _, role := range []string{"viewer", "operator", "admin"} {
		w.tokens[role], err = op.CreateToken(t.Context(), w.store, "the-"+role, []string{role}, time.Hour)
		require.NoError(t, err)
	}
	return w
}

func sealed(t *testing.T, store *db.Store) providers.Secrets {
	t.Helper()
	s, err := secrets.Open(t.Context(), store, secrets.Keeper{URL: "base64key://", KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// bmcUse is the use of the logins of the tests' BMCs.
var bmcUse = map[string]any{"kind": "bmc_login", "networks": []string{"10.0.0.0/8", "127.0.0.0/8"}} //nolint:gochecknoglobals // constant

// ready adds a site, a profile, a SKU and a BMC login.
func (w *world) ready() *world {
	w.t.Helper()
	w.site = dbtest.Site(w.t, w.store, dbtest.Named("north"))
	w.profile = dbtest.Profile(w.t, w.store, dbtest.At(w.site.ID), dbtest.Named("standard"))
	w.sku = dbtest.SKU(w.t, w.store, dbtest.Named("h100x8"))
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": "bmc/a", "value": `{"username":"root","password":"calvin"}`, "use": bmcUse}).want(http.StatusOK)
	return w
}

func (w *world) onboarding(hostname string) map[string]any {
	return map[string]any{
		"site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID, "hostname": hostname,
		"bmc": map[string]any{"address": "10.0.0.1", "credential_ref": "bmc/a"},
	}
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	raw    []byte
}

type header map[string]string

// do sends a request as admin; headers are added, a key "" taken away.
func (w *world) do(method, path string, body any, headers ...header) answer {
	w.t.Helper()
	var r io.Reader
	if body != nil {
		if text, ok := body.(string); ok {
			r = strings.NewReader(text)
		} else {
			b, err := json.Marshal(body)
			require.NoError(w.t, err)
			r = bytes.NewReader(b)
		}
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, r)
	require.NoError(w.t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
	for _, h := range headers {
		for k, v := range h {
			req.Header.Set(k, v)
			if v == "" {
				req.Header.Del(k)
			}
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return answer{w.t, res.StatusCode, res.Header, raw}
}

// post sends a POST with a new idempotency key.
func (w *world) post(path string, body any, headers ...header) answer {
	w.t.Helper()
	return w.do("POST", path, body, append([]header{{"Idempotency-Key": db.NewID("key")}}, headers...)...)
}

func (a answer) want(status int) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, string(a.raw))
	return a
}

func (a answer) into(v any) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal(a.raw, v), string(a.raw))
}

func (a answer) id() string {
	a.t.Helper()
	var v struct{ ID string }
	a.into(&v)
	return v.ID
}

// refused checks for a problem document of a kind.
func (a answer) refused(k problem.Kind) problem.Problem {
	a.t.Helper()
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"), string(a.raw))
	var p problem.Problem
	a.into(&p)
	want := problem.New(k, "")
	require.Equal(a.t, want.Type, p.Type, string(a.raw))
	require.Equal(a.t, want.Status, a.status)
	require.Equal(a.t, a.status, p.Status)
	require.NotEmpty(a.t, p.Title)
	require.NotEmpty(a.t, p.Detail)
	require.NotEmpty(a.t, p.RequestID)
	return p
}

// engine stands in for Temporal.
type engine struct {
	mu      sync.Mutex
	asked   []client.UpdateWorkflowOptions
	down    error
	signals []signalled
	reply   func(o client.UpdateWorkflowOptions, into any) error
}

func (e *engine) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, o)
	if e.reply == nil {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return handle{o, e.reply}, nil
}

func (e *engine) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &client.CheckHealthResponse{}, e.down
}

func (e *engine) SignalWorkflow(_ context.Context, workflowID, _, signal string, arg any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signals = append(e.signals, signalled{workflowID, signal, arg})
	return nil
}

// signalled is a signal that a workflow got.
type signalled struct {
	workflowID, name string
	arg              any
}

func (e *engine) breaks(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = err
}

func (e *engine) answers(f func(o client.UpdateWorkflowOptions, into any) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reply = f
}

func (e *engine) updates() []client.UpdateWorkflowOptions {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]client.UpdateWorkflowOptions(nil), e.asked...)
}

type handle struct {
	o     client.UpdateWorkflowOptions
	reply func(o client.UpdateWorkflowOptions, into any) error
}

func (h handle) WorkflowID() string                    { return h.o.WorkflowID }
func (h handle) RunID() string                         { return "run" }
func (h handle) UpdateID() string                      { return h.o.UpdateID }
func (h handle) Get(_ context.Context, into any) error { return h.reply(h.o, into) }
