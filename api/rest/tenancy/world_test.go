package tenancy_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/providers/webhook"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/stripeaccount"
)

// world is the whole API with an identity provider, on a database of its own.
type world struct {
	t      *testing.T
	dsn    string
	store  *db.Store
	api    *op.API
	url    string
	issuer string
	key    *rsa.PrivateKey
	admin  string
	asking atomic.Pointer[func()] // runs while the rule for addresses is asked for
	engine *engine
	stripe *stripesim.Server
	pay    *paymentsync.Syncer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: dbtest.Database(t)}
	w.store = dbtest.Open(t, w.dsn)
	var err error
	w.key, err = rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	issuer := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: w.key.Public(), KeyID: "k", Algorithm: "RS256"}}}
	provider := httptest.NewServer(issuer)
	t.Cleanup(provider.Close)
	issuer.SetIssuer(provider.URL)
	w.issuer = provider.URL
	w.engine = &engine{}
	w.stripe, w.pay = stripeaccount.Open(t, w.store, "portal.example.com")
	sealed, err := secrets.Open(t.Context(), w.store, secrets.Keeper{KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sealed.Close() })
	w.api, err = httpapi.New(httpapi.Config{
		Payments: w.pay, InstanceLimit: 2,
		Instances: []instance.Offer{{Provider: "mock", Zones: []string{"mock-1"}, Image: "simulated"}},
		API:       op.Config{Store: w.store, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Auth: op.AuthConfig{Issuer: provider.URL, Audience: "slipway"}, StreamRecheck: 200 * time.Millisecond},
		REST:      rest.Config{Temporal: w.engine, Plans: w.engine, Secrets: sealed},
		Events: tenancy.EventsConfig{Secrets: sealed, NewSecret: webhook.NewSecret, Rule: func(context.Context) (spec.AddressRule, error) {
			if do := w.asking.Swap(nil); do != nil {
				(*do)()
			}
			return spec.PublicAddresses(nil, nil, []uint16{443}), nil
		}},
	})
	require.NoError(t, err)
	srv := httptest.NewServer(w.api.Handler())
	t.Cleanup(srv.Close)
	w.url = srv.URL
	w.admin, err = op.CreateToken(t.Context(), w.store, "the-admin", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	return w
}

// signIn returns the bearer token of a user with a verified address NAME@example.com.
func (w *world) signIn(name string, more ...map[string]any) string {
	w.t.Helper()
	claims := map[string]any{
		"iss": w.issuer, "aud": "slipway", "sub": name, "exp": time.Now().Add(time.Hour).Unix(),
		"email": strings.ToUpper(name) + "@example.com", "email_verified": true,
	}
	for _, m := range more {
		for k, v := range m {
			claims[k] = v
		}
	}
	raw, err := json.Marshal(claims)
	require.NoError(w.t, err)
	return oidctest.SignIDToken(w.key, "k", "RS256", string(raw))
}

type answer struct {
	t      *testing.T
	status int
	header http.Header
	raw    []byte
}

type header map[string]string

// do sends a request with If-Match * and a new idempotency key.
func (w *world) do(bearer, method, path string, body any, headers ...header) answer {
	w.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		require.NoError(w.t, err)
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+op.Prefix+path, r)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("If-Match", "*")
	req.Header.Set("Idempotency-Key", db.NewID("k"))
	req.Header.Set("X-Request-Id", "same")
	req.Header.Set("Last-Event-ID", "999999") // a stream refuses it, and would not end otherwise
	for _, h := range headers {
		for k, v := range h {
			req.Header.Set(k, v)
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return answer{w.t, res.StatusCode, res.Header, raw}
}

func (a answer) want(status int) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, string(a.raw))
	return a
}

func (a answer) field(name string) string {
	a.t.Helper()
	var body map[string]any
	require.NoError(a.t, json.Unmarshal(a.raw, &body), string(a.raw))
	text, _ := body[name].(string)
	return text
}

// tenant is a project with one of everything.
type tenant struct {
	name, account, project, owner, token string
	ids                                  map[string]string // by path parameter
}

func publicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// newTenant makes a project whose names all begin with name.
func (w *world) newTenant(name string) tenant {
	w.t.Helper()
	v := tenant{name: name, owner: w.signIn(name + "-owner"), ids: map[string]string{}}
	v.account = w.do(w.admin, "POST", "/admin/billing-accounts", map[string]any{"name": name + "-account"}).want(http.StatusCreated).field("id")
	v.project = w.do(w.admin, "POST", "/admin/projects", map[string]any{
		"billing_account_id": v.account, "name": name + "-project", "owner_email": name + "-owner@example.com", "tags": map[string]string{"team": name},
	}).want(http.StatusCreated).field("id")
	v.ids["id"] = v.project
	v.ids["member_id"] = w.accept(v.owner)
	base := "/projects/" + v.project
	v.ids["key_id"] = w.do(v.owner, "POST", base+"/ssh-keys", map[string]any{"name": name + "-key", "public_key": publicKey(w.t)}).want(http.StatusCreated).field("id")
	made := w.do(v.owner, "POST", base+"/tokens", map[string]any{"name": name + "-token", "role": "owner"}).want(http.StatusCreated)
	v.ids["token_id"], v.token = made.field("id"), made.field("token")
	v.ids["invitation_id"] = w.do(v.owner, "POST", base+"/invitations", map[string]any{"email": name + "-guest@example.com", "role": "viewer"}).want(http.StatusCreated).field("id")
	v.ids["group"] = name + "-group"
	w.do(v.owner, "PUT", base+"/budget", map[string]any{"limit_minor": 100_000}).want(http.StatusOK)
	w.addGroup(v, v.ids["group"])
	w.do(v.owner, "PUT", base+"/group-roles/"+v.ids["group"], map[string]any{"role": "viewer"}).want(http.StatusOK)
	w.do(w.admin, "PUT", "/admin/projects/"+v.project+"/quotas/total", map[string]any{"max_nodes": 8, "reason": name + " asked"}).want(http.StatusOK)
	v.ids["webhook_id"] = w.do(v.owner, "POST", base+"/webhooks", map[string]any{"name": name + "-hook", "url": "https://" + name + ".example.com/"}).want(http.StatusCreated).field("id")
	v.ids["payment_id"] = w.checkout(v, 1000).want(http.StatusCreated).field("id")
	v.ids["event_id"] = w.do(v.owner, "POST", base+"/webhooks/"+v.ids["webhook_id"]+"/test", nil).want(http.StatusOK).field("event_id")
	return v
}

// addGroup has a group belong to the billing account of a tenant.
func (w *world) addGroup(v tenant, group string) {
	w.t.Helper()
	w.do(w.admin, "PUT", "/admin/billing-accounts/"+v.account+"/groups/"+group, nil).want(http.StatusOK)
}

// instanceBody asks for an instance.
func instanceBody(name string) map[string]any {
	return map[string]any{"name": name, "provider": "mock", "zone": "mock-1", "type": "MOCK-GPU", "model": "acme/" + name}
}

// addInstance makes an instance for a tenant.
func (w *world) addInstance(v tenant) {
	w.t.Helper()
	v.ids["instance_id"] = w.do(v.owner, "POST", "/projects/"+v.project+"/instances", instanceBody(v.name+"-instance")).want(http.StatusAccepted).field("id")
}

// accept accepts the one invitation that a user has, and returns the member.
func (w *world) accept(bearer string) string {
	w.t.Helper()
	var list struct{ Data []struct{ ID string } }
	require.NoError(w.t, json.Unmarshal(w.do(bearer, "GET", "/invitations", nil).want(http.StatusOK).raw, &list))
	require.Len(w.t, list.Data, 1)
	return w.do(bearer, "POST", "/invitations/"+list.Data[0].ID+"/accept", nil).want(http.StatusOK).field("id")
}

// addMember invites a user and has him accept.
func (w *world) addMember(v tenant, name, role string) (bearer, id string) {
	w.t.Helper()
	w.do(v.owner, "POST", "/projects/"+v.project+"/invitations", map[string]any{"subject": "oidc:" + name, "role": role}).want(http.StatusCreated)
	bearer = w.signIn(name)
	return bearer, w.accept(bearer)
}

// exec changes the database as its owner.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := dbtest.Owner(w.t, w.dsn).Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// offer makes a SKU and a profile.
func (w *world) offer(name string) (sku, profile string) {
	w.t.Helper()
	site := dbtest.Site(w.t, w.store, dbtest.Named(name))
	return dbtest.SKU(w.t, w.store, dbtest.Named(name)).ID, dbtest.Profile(w.t, w.store, dbtest.At(site.ID), dbtest.Named(name)).ID
}
