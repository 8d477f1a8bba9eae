package agent_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// rehearsal is a control plane with a database, a fleet of real agents, and one clock for the plane
// and the nodes, which the test moves. The database has its own clock, so the test's ends at it.
type rehearsal struct {
	*testing.T
	dsn   string
	store *db.Store

	authority atomic.Pointer[nodeca.CA]
	behind    atomic.Int64
	api       atomic.Pointer[agentapi.Server] // nil while the control plane is away
	front     *httptest.Server
	calls     atomic.Int64
	root      string // of every node; the directories of their agents differ
	nodes     []string
	agents    []*agent.Agent
}

func (r *rehearsal) now() time.Time               { return time.Now().Add(-time.Duration(r.behind.Load())) }
func (r *rehearsal) clockIs(behind time.Duration) { r.behind.Store(int64(behind)) }

func newRehearsal(t *testing.T, fleet int, behind, life time.Duration) *rehearsal {
	t.Helper()
	r := &rehearsal{T: t, dsn: dbtest.FreshDatabase(t)}
	r.clockIs(behind)
	r.newCA(life)
	r.front = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		api := r.api.Load()
		if api == nil {
			panic(http.ErrAbortHandler)
		}
		api.Handler().ServeHTTP(w, req)
	}))
	r.front.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := r.authority.Load().IssueServer([]string{"127.0.0.1"})
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, Time: r.now}, err
	}}
	r.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.front.StartTLS()
	t.Cleanup(func() { r.stop(); r.front.CloseClientConnections(); r.front.Close() })
	r.serve(r.dsn)
	r.root = machine(t)
	for i := range fleet {
		id := dbtest.Node(t, r.store, dbtest.Active()).ID
		r.nodes = append(r.nodes, id)
		r.agents = append(r.agents, nil)
		r.putToken(i)
		r.restart(i)
	}
	return r
}

// newCA makes the node CA, in place of the one of before.
func (r *rehearsal) newCA(life time.Duration) {
	r.Helper()
	ca, err := nodeca.Create(nodeca.WithClock(r.now), nodeca.WithNodeLife(life))
	require.NoError(r, err)
	r.authority.Store(ca)
}

// serve starts the control plane on a database.
func (r *rehearsal) serve(dsn string) {
	r.Helper()
	var err error
	r.store, err = db.Open(r.Context(), dsn)
	require.NoError(r, err)
	api := agentapi.New(agentapi.Config{Store: agentapi.NewStore(r.store), CA: r.authority.Load(), Now: r.now, FlushInterval: 5 * time.Millisecond, EnrollRate: 1000})
	require.NoError(r, api.Start(r.Context()))
	r.api.Store(api)
}

// stop ends the control plane, with every connection to its database.
func (r *rehearsal) stop() {
	if api := r.api.Swap(nil); api != nil {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = api.Shutdown(ctx)
		r.store.Close()
	}
}

func (r *rehearsal) putToken(i int) {
	r.Helper()
	token := rand.Text()
	hash := sha256.Sum256([]byte(token))
	require.NoError(r, r.store.Tx(r.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(r.Context(), r.nodes[i], "", hash[:], time.Now().Add(time.Hour))
	}))
	require.NoError(r, os.WriteFile(filepath.Join(r.root, fmt.Sprintf("token-%d", i)), []byte(token), 0o600))
}

// restart starts the agent's process again; its files are what they were.
func (r *rehearsal) restart(i int) {
	r.Helper()
	a, err := agent.New(agentconfig.Config{ServerURL: r.front.URL, CAPEM: string(r.authority.Load().CertPEM()), NodeID: r.nodes[i], Root: r.root,
		TokenFile: fmt.Sprintf("/token-%d", i), StateDir: fmt.Sprintf("/state-%d", i), Simulated: true}, "test", slog.New(slog.NewTextHandler(testWriter{r.T}, nil)))
	require.NoError(r, err)
	a.SetClock(r.now)
	r.agents[i] = a
}

// step has agents do what is due, once each, and returns how many were heard.
func (r *rehearsal) step(agents []*agent.Agent) (heard int) {
	for _, a := range agents {
		a.Step(r.Context())
		if a.Heard() {
			heard++
		}
	}
	return heard
}

// attention counts what is listed about agents, by kind.
func (r *rehearsal) attention() map[string]int {
	r.Helper()
	rows, err := r.store.Attention(r.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 1000)
	require.NoError(r, err)
	out := map[string]int{}
	for _, a := range rows {
		if strings.HasPrefix(a.Kind, "agent_") {
			out[a.Kind]++
		}
	}
	return out
}

// copyDatabase makes a backup of the database, to which nobody is connected, and returns its DSN.
func (r *rehearsal) copyDatabase() string {
	r.Helper()
	u, err := url.Parse(r.dsn)
	require.NoError(r, err)
	live := strings.TrimPrefix(u.Path, "/")
	backup := "backup_" + strings.ToLower(rand.Text())
	owner, err := url.Parse(dbtest.OwnerDSN(r, r.dsn))
	require.NoError(r, err)
	admin := *owner
	admin.Path = "/postgres"
	do := func(ctx context.Context, sql string) {
		conn, err := pgx.Connect(ctx, admin.String())
		require.NoError(r, err)
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, sql)
		require.NoError(r, err)
	}
	require.Eventually(r, func() bool { // the server may still be closing what the store has closed
		conn, err := pgx.Connect(r.Context(), admin.String())
		require.NoError(r, err)
		defer func() { _ = conn.Close(r.Context()) }()
		var open int
		require.NoError(r, conn.QueryRow(r.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", live).Scan(&open))
		return open == 0
	}, runenv.Patience(10*time.Second), 20*time.Millisecond)
	do(r.Context(), "CREATE DATABASE "+pgx.Identifier{backup}.Sanitize()+" TEMPLATE "+pgx.Identifier{live}.Sanitize())
	r.Cleanup(func() { do(context.Background(), "DROP DATABASE "+pgx.Identifier{backup}.Sanitize()+" WITH (FORCE)") })
	u.Path = "/" + backup
	return u.String()
}

const day = 24 * time.Hour

// Yesterday's backup comes back under a fleet that has renewed since, and enrolled again in part.
func TestRehearsal_RestoreOfYesterday(t *testing.T) {
	t.Parallel()
	const fleet, again, silent = 50, 5, 5
	r := newRehearsal(t, fleet, 5*day, nodeca.NodeLife)
	require.Equal(t, fleet, r.step(r.agents))

	r.clockIs(day)
	r.stop()
	backup := r.copyDatabase()
	r.serve(r.dsn)
	renewing := r.agents[:fleet-silent] // the others are off and do not know of any of this
	require.Equal(t, len(renewing), r.step(renewing), "half of a certificate's life is over")
	copied, err := os.ReadFile(filepath.Join(r.root, "state-0", "identity.json")) // by a tenant of the system before
	require.NoError(t, err)
	for i := range again {
		r.putToken(i)
	}
	require.Equal(t, len(renewing), r.step(renewing))
	require.EqualValues(t, 3, r.agents[0].Generation())
	require.EqualValues(t, 2, r.agents[again].Generation())
	require.Empty(t, r.attention())

	r.stop()
	r.clockIs(0)
	began := time.Now()
	r.calls.Store(0)
	r.serve(backup)
	require.Equal(t, fleet, r.step(r.agents), "every agent is back with its first request")
	t.Logf("restore: %d agents (%d renewed, %d enrolled again, %d neither) back in %s by %d requests",
		fleet, fleet-silent-again, again, silent, time.Since(began).Round(time.Millisecond), r.calls.Load())
	require.Equal(t, map[string]int{db.AttentionAgentAdopted: 1}, r.attention(), "one line for all of them, and no lock")
	rows, err := r.store.ResourceTimeline(t.Context(), "node", r.nodes[0], 0, 1)
	require.NoError(t, err)
	require.Equal(t, "agent_certificate_adopted", rows[0].Name)

	// The copy is of the enrolment before the last. It is refused, and locks nobody out.
	r.nodes = append(r.nodes, r.nodes[0])
	r.agents = append(r.agents, nil)
	require.NoError(t, os.MkdirAll(filepath.Join(r.root, "state-50"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "state-50", "identity.json"), copied, 0o600))
	r.restart(fleet)
	require.Zero(t, r.step(r.agents[fleet:]))
	require.Equal(t, fleet, r.step(r.agents[:fleet]))
	require.Equal(t, map[string]int{db.AttentionAgentAdopted: 1, db.AttentionAgentRefused: 1}, r.attention())

	r.clockIs(-4 * day)
	require.Equal(t, fleet, r.step(r.agents[:fleet]))
	require.Equal(t, map[string]int{db.AttentionAgentRefused: 1}, r.attention(), "renewed as usual, they are nothing to look at any more")
}

func TestRehearsal_WithoutTheControlPlane(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ life, away time.Duration }{{day, 30 * time.Hour}, {nodeca.NodeLife, 8 * day}} {
		t.Run(c.away.String(), func(t *testing.T) {
			t.Parallel()
			const fleet = 20
			r := newRehearsal(t, fleet, c.away, c.life)
			require.Equal(t, fleet, r.step(r.agents))
			api := r.api.Swap(nil)
			for part := 9; part >= 0; part-- {
				r.clockIs(c.away * time.Duration(part) / 10)
				require.Zero(t, r.step(r.agents))
			}
			for i := range fleet / 2 { // and their machines were restarted
				r.restart(i)
			}
			r.calls.Store(0)
			r.api.Store(api)
			require.Equal(t, map[string]int{db.AttentionAgentEnds: fleet}, r.attention())
			began := time.Now()
			require.Equal(t, fleet, r.step(r.agents), "every agent is back with its first try")
			t.Logf("away for %s with certificates of %s: %d agents back in %s by %d requests", c.away, c.life, fleet, time.Since(began).Round(time.Millisecond), r.calls.Load())
			require.Empty(t, r.attention())
			for _, id := range r.nodes {
				st, err := r.store.AgentIdentityStanding(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, [3]any{true, int64(2), int64(1)}, [3]any{st.Works, st.Generation, st.Enrolment})
			}
		})
	}
}

// The node CA is lost and replaced under a fleet. Whoever got a token and the new CA is back at
// once, whatever the others do, and renews under the new CA as usual.
func TestRehearsal_NewNodeCA(t *testing.T) {
	t.Parallel()
	const fleet = 20
	r := newRehearsal(t, fleet, 4*day, nodeca.NodeLife)
	require.Equal(t, fleet, r.step(r.agents))
	require.NoError(t, r.store.Tx(t.Context(), func(tx *db.Tx) error { // as slipwayd migrate --new-node-ca does
		_, err := tx.LockAllAgentIdentities(t.Context(), "the node CA was replaced")
		return err
	}))
	r.stop()
	r.newCA(nodeca.NodeLife)
	r.front.CloseClientConnections()
	r.serve(r.dsn)
	require.Zero(t, r.step(r.agents), "no agent trusts the new CA by itself")
	require.Equal(t, map[string]int{db.AttentionAgentLocked: fleet}, r.attention())
	for back := range 2 {
		for i := back * fleet / 2; i < (back+1)*fleet/2; i++ {
			r.putToken(i)
			r.restart(i)
		}
		require.Equal(t, (back+1)*fleet/2, r.step(r.agents))
	}
	require.Empty(t, r.attention())
	r.clockIs(0)
	require.Equal(t, fleet, r.step(r.agents), "half of a certificate's life is over")
	for _, a := range r.agents {
		require.EqualValues(t, 3, a.Generation())
	}
}
