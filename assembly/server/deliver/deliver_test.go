package deliver_test

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server/deliver"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/mail"
	"github.com/slipway-cloud/slipway/providers/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// fixedSecrets resolves every reference to a value of its own.
type fixedSecrets struct{ providers.Secrets }

func (fixedSecrets) Resolve(context.Context, providers.SecretRef, providers.Use) (providers.Secret, error) {
	return providers.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), nil
}

type fixture struct {
	t      *testing.T
	store  *db.Store
	owner  *pgx.Conn
	server *httptest.Server
	// resolver answers for host names; nil is the system's.
	resolver *net.Resolver
}

func newFixture(t *testing.T, handler http.HandlerFunc) *fixture {
	dsn := dbtest.Database(t)
	f := &fixture{t: t, store: dbtest.Open(t, dsn), owner: dbtest.Owner(t, dsn)}
	f.server = httptest.NewTLSServer(handler)
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.owner.Exec(f.t.Context(), sql, args...)
	require.NoError(f.t, err)
}

// addWebhooks makes n projects with one webhook each, whose path is the project.
func (f *fixture) addWebhooks(n int) {
	f.t.Helper()
	f.exec("SET session_replication_role = replica")
	f.exec("INSERT INTO billing_accounts (id, name) VALUES ('acc_a', 'a')")
	f.exec("INSERT INTO projects (id, billing_account_id, name) SELECT 'prj_' || i, 'acc_a', 'p' FROM generate_series(1, $1::int) i", n)
	f.exec(`INSERT INTO webhooks (project_id, id, name, url, secret_ref) SELECT 'prj_' || i, 'whk_' || i, 'hook', $2 || '/' || i, 'slipway/x@1'
		FROM generate_series(1, $1::int) i`, n, f.server.URL)
	f.exec("RESET session_replication_role")
}

// addEvents appends n events for each of the projects and relays them.
func (f *fixture) addEvents(projects, n int) { f.addEventsFrom(projects, 1, n) }

// addEventsFrom appends n events, whose ids count on from first, for each of the projects.
func (f *fixture) addEventsFrom(projects, first, n int) {
	f.t.Helper()
	f.exec(`INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
		SELECT 'event', 'prj_' || p, 'evt_' || p || '_' || e, 'project', 'prj_' || p, 'project.updated', '{"name":"x"}'
		FROM generate_series(1, $1::int) p, generate_series($2::int, $3::int) e ORDER BY e, p`, projects, first, first+n-1)
	for {
		relayed, err := f.store.RelayEvents(f.t.Context(), 1000)
		require.NoError(f.t, err)
		if relayed == 0 {
			return
		}
	}
}

func (f *fixture) options(context.Context) (webhook.Options, error) {
	roots := x509.NewCertPool()
	roots.AddCert(f.server.Certificate())
	rule := spec.PublicAddresses(nil, nil, nil)
	rule.Loopback = true
	return webhook.Options{Rule: rule, Roots: roots, Limit: runenv.Patience(2 * time.Second), Resolver: f.resolver}, nil
}

func (f *fixture) deliverer(name string) *deliver.Deliverer {
	return &deliver.Deliverer{
		Store: f.store, Secrets: fixedSecrets{}, Name: name, Log: slog.New(slog.DiscardHandler), Options: f.options, RetryFor: time.Hour,
		Keep: time.Hour, KeepNotices: time.Hour, Domain: "slipway.example", Poll: 50 * time.Millisecond, Backoff: 20 * time.Millisecond,
	}
}

// productOptions are options with the time that an attempt has in the product.
func (f *fixture) productOptions(ctx context.Context) (webhook.Options, error) {
	o, err := f.options(ctx)
	o.Limit = runenv.Patience(webhook.Limit)
	return o, err
}

// run starts deliverers. They end with the test.
func (f *fixture) run(deliverers ...*deliver.Deliverer) { f.t.Cleanup(f.start(deliverers...)) }

// start starts deliverers. They end when the function that it returns is called.
func (f *fixture) start(deliverers ...*deliver.Deliverer) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var all sync.WaitGroup
	for _, d := range deliverers {
		all.Go(func() { d.Run(ctx) })
	}
	return func() { cancel(); all.Wait() }
}

func (f *fixture) count(sql string) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.owner.QueryRow(f.t.Context(), sql).Scan(&n))
	return n
}

func (f *fixture) wait(sql string, want int, within time.Duration) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.count(sql) == want }, runenv.Patience(within), 20*time.Millisecond, sql)
}

// A webhook that fails keeps its events, tells the owners once, and gets everything when it is
// back.
func TestDeliver_BreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	f.addWebhooks(1)
	f.addEvents(1, 20)
	f.run(f.deliverer("one"))
	f.wait("SELECT count(*) FROM notices WHERE kind = 'webhook_failing'", 1, 30*time.Second)
	require.GreaterOrEqual(t, f.count("SELECT failures FROM webhooks"), webhookdb.Breaker)
	require.LessOrEqual(t, f.count("SELECT coalesce(sum(attempts), 0)::int FROM webhook_deliveries"), 16, "the breaker holds most attempts back")
	up.Store(true)
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND type = 'project.updated'", 20, time.Minute)
	f.wait("SELECT failures FROM webhooks", 0, 10*time.Second)
	require.Equal(t, 1, f.count("SELECT count(*) FROM notices"))
}

func TestDeliver_GoneDisables(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		w.WriteHeader(http.StatusGone)
	})
	f.addWebhooks(1)
	f.addEvents(1, 10)
	f.run(f.deliverer("one"))
	f.wait("SELECT count(*) FROM webhooks WHERE status = 'disabled' AND disabled_reason = 'gone'", 1, 30*time.Second)
	require.LessOrEqual(t, calls.Load(), int32(2))
	f.wait("SELECT count(*) FROM notices WHERE kind = 'webhook_disabled'", 1, 10*time.Second)
}

// A webhook that gets another URL while the one before answers 410 is not disabled by that answer.
func TestDeliver_GoneIsOfTheURLThatAnswered(t *testing.T) {
	t.Parallel()
	asked, changed := make(chan struct{}, 8), make(chan struct{})
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/1" {
			asked <- struct{}{}
			<-changed
			w.WriteHeader(http.StatusGone)
		}
	})
	f.addWebhooks(1)
	f.addEvents(1, 1)
	f.run(f.deliverer("one"))
	<-asked
	err := f.store.ForProject(t.Context(), "prj_1", func(tx *db.ProjectTx) error {
		_, err := webhookdb.Update(t.Context(), tx, webhookdb.Webhook{ID: "whk_1", Name: "hook", URL: f.server.URL + "/new", Status: webhookdb.Enabled, Version: 1})
		return err
	})
	close(changed)
	require.NoError(t, err)
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 1, 30*time.Second)
	f.wait("SELECT count(*) FROM webhooks WHERE claimed_by = '' AND last_success_at IS NOT NULL", 1, 10*time.Second)
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhooks WHERE status = 'enabled'"))
	require.Zero(t, f.count("SELECT count(*) FROM notices"))
}

// An edit ends a claim. The same process may claim the webhook again while its attempt from before
// is under way: what that attempt brings ends no other claim, and disables nothing.
func TestDeliver_AttemptFromBeforeAnEdit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(http.ResponseWriter, *http.Request) {})
	f.addWebhooks(1)
	f.addEvents(1, 1)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	var claims []webhookdb.Claimed
	for range 2 {
		claimed, err := webhookdb.Claim(t.Context(), f.store, "one", one, time.Hour)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		claims = append(claims, claimed...)
		f.exec("UPDATE webhooks SET claimed_by = '', claimed_until = NULL WHERE claimed_by = $1 AND $2", claimed[0].ClaimedBy, len(claims) == 1)
	}
	for i, outcome := range []webhookdb.Finished{{Gone: true, Failures: 1, LastReason: "410", Tried: true}, {Succeeded: true, Tried: true}} {
		require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
			held, err := webhookdb.Finish(t.Context(), tx, claims[i], outcome)
			require.Equal(t, i == 1, held)
			return err
		}))
	}
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhooks WHERE status = 'enabled' AND claimed_by = '' AND last_success_at IS NOT NULL"))
}

// one asks for one new webhook.
var one = webhookdb.Wanted{Lane: webhookdb.LaneNew, Free: 1}

// A process that dies with a claim delays its deliveries, and loses none.
func TestDeliver_LeaseEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	f.addWebhooks(1)
	f.addEvents(1, 1)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	dead, err := webhookdb.Claim(t.Context(), f.store, "dead", one, time.Hour)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	again, err := webhookdb.Claim(t.Context(), f.store, "one", one, time.Hour)
	require.NoError(t, err)
	require.Empty(t, again, "one process at a time has the queue")
	f.exec("UPDATE webhooks SET claimed_until = now() - interval '1 second'")
	f.run(f.deliverer("one"))
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 1, 30*time.Second)
	// The outcome that the late process stores changes nothing that is done.
	require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := webhookdb.Finish(t.Context(), tx, dead[0], webhookdb.Finished{
			Outcomes: []webhookdb.Outcome{{EventID: "evt_1_1", Status: webhookdb.Pending, Reason: "late"}}, Failures: 9, LastReason: "late",
		})
		return err
	}))
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND reason = ''"))
	require.Zero(t, f.count("SELECT failures FROM webhooks"))
}

// Deliveries and notices are kept by the clock of the database.
func TestPrune_KeepsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(1)
	f.addEvents(1, 2)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	f.exec("UPDATE webhook_deliveries SET status = 'delivered', ended_at = now() - CASE event_id WHEN 'evt_1_1' THEN interval '61 minutes' ELSE interval '30 minutes' END")
	n, err := webhookdb.PruneDeliveries(t.Context(), f.store, time.Hour)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries WHERE event_id = 'evt_1_2'"))
}

// Only types that a webhook wants are queued, and only events of its own project.
func TestFanOut_ChoosesProjectAndTypes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(http.ResponseWriter, *http.Request) {})
	f.addWebhooks(3)
	f.exec(`UPDATE webhooks SET event_types = CASE id WHEN 'whk_1' THEN '{project.*}' WHEN 'whk_2' THEN '{member.added}' ELSE '{}' END::text[]`)
	f.addEvents(3, 2)
	n, err := webhookdb.FanOut(t.Context(), f.store, 100)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Equal(t, 4, f.count("SELECT count(*) FROM webhook_deliveries WHERE 'whk_' || split_part(project_id, '_', 2) = webhook_id"))
	require.Equal(t, 4, f.count("SELECT count(*) FROM webhook_deliveries"))
	require.Equal(t, 2, f.count("SELECT max(event_cursor)::int FROM webhook_deliveries WHERE webhook_id = 'whk_3'"), "the project's own cursor")
	n, err = webhookdb.FanOut(t.Context(), f.store, 100)
	require.NoError(t, err)
	require.Zero(t, n)
}

// mailer fails its first message and keeps the others.
type mailer struct {
	mu   sync.Mutex
	sent []mail.Message
}

func (m *mailer) Send(_ context.Context, msg mail.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, msg)
	if len(m.sent) == 1 {
		return &providers.Error{Kind: providers.KindUnavailable, Op: "mail.send", Message: "later"}
	}
	return nil
}

// A notice is one row an episode and one e-mail for each address of owners that is verified. Every
// attempt has the same Message-ID.
func TestDeliver_NoticesByEmail(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(http.ResponseWriter, *http.Request) {})
	f.addWebhooks(1)
	f.exec("SET session_replication_role = replica")
	f.exec(`INSERT INTO project_members (project_id, id, subject, role, email) VALUES ('prj_1', 'mem_1', 'oidc:1', 'owner', '1@example.com'),
		('prj_1', 'mem_2', 'oidc:2', 'viewer', '2@example.com'), ('prj_1', 'mem_3', 'oidc:3', 'owner', ''), ('prj_1', 'mem_4', 'oidc:4', 'billing', '1@example.com')`)
	f.exec(`INSERT INTO project_invitations (project_id, id, email, role, status, invited_by, accepted_by, expires_at, ended_at)
		SELECT 'prj_1', 'inv_' || i, 'former' || i || '@example.com', 'viewer', 'accepted', 'x', 'oidc:' || i, now(), now() FROM generate_series(1, 2) i`)
	f.exec("RESET session_replication_role")
	for _, want := range []bool{true, false} {
		require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
			added, err := webhookdb.AddNotice(t.Context(), tx, webhookdb.Notice{ProjectID: "prj_1", Kind: "low_balance", Episode: "1", Message: "m"}, "slipway.example")
			require.Equal(t, want, added, "one notice an episode")
			return err
		}))
	}
	d, m := f.deliverer("one"), &mailer{}
	d.Mail = m
	f.run(d)
	f.wait("SELECT count(*) FROM notice_emails WHERE status = 'delivered' AND recipient = '1@example.com'", 1, 30*time.Second)
	require.Equal(t, 1, f.count("SELECT count(*) FROM notice_emails"), "not the viewer, not to a former address, and once to one that two have")
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.sent, 2)
	require.Equal(t, m.sent[0].ID, m.sent[1].ID)
	require.Contains(t, m.sent[0].ID, "@slipway.example")
}
