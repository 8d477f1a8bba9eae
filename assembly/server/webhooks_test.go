package server

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/providers/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestWebhooks_AreDelivered sends a test event by the deliverer of a process to an HTTPS endpoint,
// with a secret of its store. The endpoint is on this machine, which only the test allows: the
// process itself refuses it.
func TestWebhooks_AreDelivered(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	received := make(chan error, 10)
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		verifier, newErr := standardwebhooks.NewWebhook(secret.Reveal())
		if err == nil && newErr == nil {
			err = verifier.Verify(body, r.Header)
		}
		received <- err
	}))
	t.Cleanup(endpoint.Close)
	dsn := dbtest.Database(t)
	a := &App{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Store: dbtest.Open(t, dsn)}
	u, err := url.Parse(endpoint.URL)
	require.NoError(t, err)
	a.Config.Webhooks.Ports, a.Config.API.PublicURL = u.Port(), "https://slipway.example:8443"
	a.Secrets, err = secrets.Open(t.Context(), a.Store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Secrets.Close() })
	ref, err := a.Secrets.Put(t.Context(), spec.ReservedSecrets+"webhooks/whk_1/sec_1", secret)
	require.NoError(t, err)
	owner := dbtest.Owner(t, dsn)
	for _, sql := range []string{
		"SET session_replication_role = replica",
		"INSERT INTO billing_accounts (id, name) VALUES ('acc_1', 'a')", "INSERT INTO projects (id, billing_account_id, name) VALUES ('prj_1', 'acc_1', 'p')",
		"INSERT INTO webhooks (project_id, id, name, url, secret_ref) VALUES ('prj_1', 'whk_1', 'hook', '" + endpoint.URL + "', '" + string(ref) + "')",
		"RESET session_replication_role",
	} {
		_, err := owner.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	count := func(where string) (n int) {
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM webhook_deliveries WHERE "+where).Scan(&n))
		return n
	}
	wait := func(where string) {
		require.Eventually(t, func() bool { return count(where) == 1 }, runenv.Patience(20*time.Second), 20*time.Millisecond, where)
	}
	d := a.deliverer("one")
	require.Equal(t, "slipway.example", d.Domain)
	d.Poll, d.Backoff = 20*time.Millisecond, 20*time.Millisecond
	run := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx); close(done) }()
		return func() { cancel(); <-done }
	}
	require.NoError(t, a.Store.ForProject(t.Context(), "prj_1", func(tx *db.ProjectTx) error {
		_, err := webhookdb.QueueTest(t.Context(), tx, "whk_1")
		return err
	}))
	end := run()
	wait("status = 'pending' AND attempts > 0 AND reason <> '' AND answer_status = 0")
	end()
	require.Empty(t, received, "an address of this machine is refused")

	options := d.Options
	d.Options = func(ctx context.Context) (webhook.Options, error) {
		o, err := options(ctx)
		o.Rule.Loopback, o.Roots = true, x509.NewCertPool()
		o.Roots.AddCert(endpoint.Certificate())
		return o, err
	}
	end = run()
	defer end()
	wait("status = 'delivered' AND answer_status = 200")
	require.NoError(t, <-received, "the signature is of the secret in the store")
}

// TestWebhookRule_ReceiverIsOneAddress allows one address of this machine, and no process of an
// installation starts with it.
func TestWebhookRule_ReceiverIsOneAddress(t *testing.T) {
	t.Parallel()
	a := &App{Config: config.Default(), Log: slog.New(slog.DiscardHandler), Store: dbtest.Store(t)}
	var err error
	a.Secrets, err = secrets.Open(t.Context(), a.Store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Secrets.Close() })
	const receiver = "https://127.0.0.9:8443/hook"
	rule, err := a.webhookRule(t.Context())
	require.NoError(t, err)
	require.Error(t, rule.CheckWebhookURL(receiver))
	a.Receiver = &LocalReceiver{Address: netip.MustParseAddrPort("127.0.0.9:8443")}
	rule, err = a.webhookRule(t.Context())
	require.NoError(t, err)
	require.NoError(t, rule.CheckWebhookURL(receiver))
	require.NoError(t, rule.Check(a.Receiver.Address))
	for _, other := range []string{"https://127.0.0.9/", "https://127.0.0.9:8444/", "https://127.0.0.1:8443/", "https://localhost:8443/", "https://hooks.example.com:8443/"} {
		require.Error(t, rule.CheckWebhookURL(other), other)
	}
	require.Error(t, rule.Check(netip.MustParseAddrPort("127.0.0.9:1")))
	require.ErrorContains(t, a.Run(t.Context(), (*App).RunAll), "only for a stack")
}
