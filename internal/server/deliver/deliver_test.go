package deliver_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/internal/server/deliver"
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
func (f *fixture) addEvents(projects, n int) {
	f.t.Helper()
	f.exec(`INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
		SELECT 'event', 'prj_' || p, 'evt_' || p || '_' || e, 'project', 'prj_' || p, 'project.updated', '{"name":"x"}'
		FROM generate_series(1, $1::int) p, generate_series(1, $2::int) e ORDER BY e, p`, projects, n)
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
	return webhook.Options{Rule: rule, Roots: roots, Limit: runenv.Patience(2 * time.Second)}, nil
}

func (f *fixture) deliverer(name string) *deliver.Deliverer {
	return &deliver.Deliverer{
		Store: f.store, Secrets: fixedSecrets{}, Name: name, Log: slog.New(slog.DiscardHandler), Options: f.options, RetryFor: time.Hour,
		Keep: time.Hour, KeepNotices: time.Hour, Domain: "slipway.example", Poll: 50 * time.Millisecond, Backoff: 20 * time.Millisecond,
	}
}

// run starts deliverers. They end with the test, or when the function that it returns is called.
func (f *fixture) run(deliverers ...*deliver.Deliverer) (end func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var all sync.WaitGroup
	for _, d := range deliverers {
		all.Go(func() { d.Run(ctx) })
	}
	end = func() { cancel(); all.Wait() }
	f.t.Cleanup(end)
	return end
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

// TestDeliver_HealthyAreNotDelayed sends events to 40 healthy webhooks, alone and beside ten that are
// down, slow or hostile, by two deliverers. Every event of a healthy one arrives, none of the others is
// lost, and nothing is sent three times at once to one endpoint. It reports how much longer the healthy
// ones took beside the others.
func TestDeliver_HealthyAreNotDelayed(t *testing.T) {
	events := runenv.Scale(t, "SLIPWAY_WEBHOOK_EVENTS", 1000, 100_000) / (healthyWebhooks + badWebhooks)
	alone := measureDelivery(t, events, false)
	beside := measureDelivery(t, events, true)
	t.Logf("%d events each: %d healthy webhooks took %v alone and %v beside %d bad ones, %.2f times as long (%.0f a second); oldest event after %v and %v, heap at most %d and %d MiB",
		events, healthyWebhooks, alone.took, beside.took, badWebhooks, beside.took.Seconds()/alone.took.Seconds(), float64(healthyWebhooks*events)/beside.took.Seconds(),
		alone.slowest, beside.slowest, alone.heap>>20, beside.heap>>20)
}

const healthyWebhooks, badWebhooks = 40, 10

// measured is how the healthy webhooks were served: until the last event, the longest time from
// queueing to delivery of one, and the bytes of heap.
type measured struct {
	took, slowest time.Duration
	heap          int64
}

// measureDelivery sends events to each webhook. Without bad the same events occur, and only the healthy
// webhooks are there.
func measureDelivery(t *testing.T, events int, bad bool) measured {
	t.Helper()
	const projects = healthyWebhooks + badWebhooks
	var seen sync.Map
	var inFlight [projects + 1]atomic.Int32
	var most, peak atomic.Int64
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		if now := inFlight[n].Add(1); n > badWebhooks { // a silent endpoint does not notice at once that its caller has left
			most.Store(max(most.Load(), int64(now)))
		}
		defer inFlight[n].Add(-1)
		var e struct{ ID, Sequence string }
		_ = json.NewDecoder(r.Body).Decode(&e)
		_, _ = io.Copy(io.Discard, r.Body)
		if n > badWebhooks {
			seen.Store(e.ID, true)
		}
		misbehave(w, r, n, badWebhooks)
	})
	f.addWebhooks(projects)
	want := projects * events
	if !bad {
		f.exec("DELETE FROM webhooks WHERE split_part(project_id, '_', 2)::int <= 10")
		want = healthyWebhooks * events
	}
	f.addEvents(projects, events)
	stop := make(chan struct{})
	go watchMemory(stop, &peak)
	began := time.Now()
	end := f.run(f.deliverer("one"), f.deliverer("two"))
	const healthy = "SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND split_part(project_id, '_', 2)::int > 10"
	f.wait(healthy, healthyWebhooks*events, 9*time.Minute)
	m := measured{took: time.Since(began).Round(time.Millisecond), heap: peak.Load()}
	end()
	close(stop)
	require.Equal(t, want, f.count("SELECT count(*) FROM webhook_deliveries"), "no event is lost: each has its row")
	require.Zero(t, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'dead'"))
	distinct := 0
	seen.Range(func(any, any) bool { distinct++; return true })
	require.Equal(t, healthyWebhooks*events, distinct)
	require.LessOrEqual(t, most.Load(), int64(2), "in flight to one endpoint")
	require.Less(t, m.heap, int64(256<<20), "bytes of heap")
	m.slowest = time.Duration(f.count(`SELECT (1000 * extract(epoch FROM max(ended_at - queued_at)))::int FROM webhook_deliveries
		WHERE status = 'delivered' AND split_part(project_id, '_', 2)::int > 10`)) * time.Millisecond
	return m
}

// misbehave answers as webhook n does: the first ten are down, slow or hostile.
func misbehave(w http.ResponseWriter, r *http.Request, n, bad int) {
	switch {
	case n > bad:
		w.WriteHeader(http.StatusNoContent)
	case n <= 3:
		w.WriteHeader(http.StatusServiceUnavailable)
	case n <= 5:
		<-r.Context().Done() // silent
	case n <= 7:
		http.Redirect(w, r, "https://169.254.169.254/latest/", http.StatusFound)
	case n <= 9:
		w.WriteHeader(http.StatusInternalServerError)
		block := make([]byte, 32<<10)
		for r.Context().Err() == nil { // endless
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	default:
		panic(http.ErrAbortHandler) // the connection breaks
	}
}

func watchMemory(stop <-chan struct{}, peak *atomic.Int64) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), int64(m.HeapInuse))) //nolint:gosec // far from the limit
		}
	}
}

// A webhook that fails keeps its events, tells the owners once, and gets everything when it is back.
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

// A process that dies with a claim delays its deliveries, and loses none.
func TestDeliver_LeaseEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	f.addWebhooks(1)
	f.addEvents(1, 1)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	dead, err := webhookdb.Claim(t.Context(), f.store, "dead", true, 1, time.Hour)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	again, err := webhookdb.Claim(t.Context(), f.store, "one", true, 1, time.Hour)
	require.NoError(t, err)
	require.Empty(t, again, "one process at a time has the queue")
	f.exec("UPDATE webhooks SET claimed_until = now() - interval '1 second'")
	f.run(f.deliverer("one"))
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 1, 30*time.Second)
	// What the late process stores changes nothing that is done.
	require.NoError(t, f.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := webhookdb.Finish(t.Context(), tx, dead[0], "dead", webhookdb.Finished{
			Outcomes: []webhookdb.Outcome{{EventID: "evt_1_1", Status: webhookdb.Pending, Reason: "late"}}, Failures: 9, LastReason: "late",
		})
		return err
	}))
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND reason = ''"))
	require.Zero(t, f.count("SELECT failures FROM webhooks"))
}

// A project with a claim under way comes after one without, though its webhook has waited longer.
func TestClaim_IsFairBetweenProjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(3)
	f.exec("SET session_replication_role = replica")
	f.exec("UPDATE webhooks SET project_id = 'prj_1', name = 'second' WHERE id = 'whk_2'")
	f.exec("RESET session_replication_role")
	f.exec("UPDATE webhooks SET due_at = now() - make_interval(hours => 4 - right(id, 1)::int)")
	for _, want := range []string{"whk_1", "whk_3", "whk_2"} {
		got, err := webhookdb.Claim(t.Context(), f.store, "one", true, 1, time.Hour)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, want, got[0].ID)
	}
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

// A notice is one row an episode and one e-mail for each owner who was invited by an address. Every
// attempt has the same Message-ID.
func TestDeliver_NoticesByEmail(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(http.ResponseWriter, *http.Request) {})
	f.addWebhooks(1)
	f.exec("SET session_replication_role = replica")
	f.exec(`INSERT INTO project_members (project_id, id, subject, role) VALUES ('prj_1', 'mem_1', 'oidc:1', 'owner'), ('prj_1', 'mem_2', 'oidc:2', 'viewer')`)
	f.exec(`INSERT INTO project_invitations (project_id, id, email, role, status, invited_by, accepted_by, expires_at, ended_at)
		SELECT 'prj_1', 'inv_' || i, i || '@example.com', 'viewer', 'accepted', 'x', 'oidc:' || i, now(), now() FROM generate_series(1, 2) i`)
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
	require.Equal(t, 1, f.count("SELECT count(*) FROM notice_emails"), "not the viewer")
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.sent, 2)
	require.Equal(t, m.sent[0].ID, m.sent[1].ID)
	require.Contains(t, m.sent[0].ID, "@slipway.example")
}
