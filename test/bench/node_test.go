package bench_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/bench/rig"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	readsARound = 3000
	readsAtOnce = 16
	readRounds  = 5
	nodesToRead = 100
	bearer      = "slp_bench-viewer"
	unlimited   = 1_000_000 // requests a second
)

// BenchmarkGetNode measures GET /api/v1/nodes/{id} over loopback HTTP against
// bare chi with the query of the node alone, and against bare chi with all the
// queries that the answer and its authorization need.
func BenchmarkGetNode(b *testing.B) {
	dsn := dbtest.Database(b)
	store := dbtest.Open(b, dsn)
	ids := nodesWithHeartbeats(b, store, nodesToRead)
	pool, err := pgxpool.New(b.Context(), dsn+"&pool_max_conns=12")
	require.NoError(b, err)
	b.Cleanup(pool.Close)

	var c contest
	enter := func(name string, h http.Handler) {
		srv := httptest.NewServer(h)
		b.Cleanup(srv.Close)
		hc := &http.Client{Timeout: runenv.Patience(30 * time.Second), Transport: &http.Transport{MaxIdleConnsPerHost: readsAtOnce}}
		get := func(ctx context.Context, i int) error { return readNode(ctx, hc, srv.URL, ids[i%len(ids)]) }
		rate(b, 200, readsAtOnce, get) // warm
		c.enter(name, func() float64 { return rate(b, readsARound, readsAtOnce, get) })
	}
	enter("api", slipwayAPI(b, store))
	enter("bare", bareAPI(oneQuery(gen.New(pool))))
	enter("bare, same queries", bareAPI(sameQueries(gen.New(pool))))
	for b.Loop() {
		for range readRounds {
			c.round()
		}
	}
	b.ReportMetric(c.of("api"), "req/s")
	b.ReportMetric(c.of("bare"), "bare/s")
	b.ReportMetric(c.ratio("api", "bare"), "ratio")
	b.ReportMetric(c.ratio("api", "bare, same queries"), "ratio-same-queries")
	measure(b, rowGetNode, c.ratio("api", "bare"), "%.2f; %.2f to the same queries", c.ratio("api", "bare"), c.ratio("api", "bare, same queries"))
	say("GET node: %.0f/s; bare chi and the node's query: %.0f/s; ratio %.2f\n  bare chi and the same two queries: %.0f/s; ratio %.2f",
		c.of("api"), c.of("bare"), c.ratio("api", "bare"), c.of("bare, same queries"), c.ratio("api", "bare, same queries"))
}

// nodesWithHeartbeats makes active nodes with a BMC and a full report.
func nodesWithHeartbeats(b *testing.B, store *db.Store, n int) []string {
	b.Helper()
	site := dbtest.Site(b, store)
	var ids []string
	for i := range n {
		node := dbtest.Node(b, store, dbtest.At(site.ID), dbtest.Active())
		_, err := store.CreateBMC(b.Context(), db.NewBMC{NodeID: &node.ID, Address: fmt.Sprintf("bmc-%d.invalid", i), Protocol: "redfish", CredentialRef: "bmc/x"})
		require.NoError(b, err)
		err = store.RecordHeartbeats(b.Context(), []db.Heartbeat{{NodeID: node.ID, BootID: "b", AgentVersion: "1", ReceivedAt: time.Now(), Report: rig.Healthy()}})
		require.NoError(b, err)
		ids = append(ids, node.ID)
	}
	return ids
}

// noWorkflows stands where reading asks nothing of Temporal.
type noWorkflows struct{ rest.Workflows }

func slipwayAPI(b *testing.B, store *db.Store) http.Handler {
	b.Helper()
	sealed, err := secrets.Open(b.Context(), store, secrets.Keeper{KeyFile: filepath.Join(b.TempDir(), "key")}, secrets.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { _ = sealed.Close() })
	api, err := httpapi.New(httpapi.Config{API: op.Config{Store: store, PrincipalRate: unlimited, AddressRate: unlimited}, REST: rest.Config{Temporal: noWorkflows{}, Secrets: sealed}})
	require.NoError(b, err)
	hash := sha256.Sum256([]byte(bearer))
	_, err = store.CreateAPIToken(b.Context(), "bench", hash[:], []string{"viewer"}, time.Now().Add(time.Hour))
	require.NoError(b, err)
	return api.Handler()
}

func readNode(ctx context.Context, hc *http.Client, url, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/nodes/"+id, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	res, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return err
}

func bareAPI(read func(ctx context.Context, id string) (any, error)) http.Handler {
	r := chi.NewRouter()
	r.Get("/api/v1/nodes/{id}", func(w http.ResponseWriter, req *http.Request) {
		v, err := read(req.Context(), chi.URLParam(req, "id"))
		if err != nil {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	})
	return r
}

func oneQuery(q *gen.Queries) func(context.Context, string) (any, error) {
	return func(ctx context.Context, id string) (any, error) { return q.Node(ctx, id) }
}

// sameQueries reads what the API reads, the token and the node with what belongs to it, in a
// statement each for every request. The API shares the statements of requests that arrive together.
func sameQueries(q *gen.Queries) func(context.Context, string) (any, error) {
	hash := sha256.Sum256([]byte(bearer))
	return func(ctx context.Context, id string) (any, error) {
		tokens, err := q.APITokensByHash(ctx, [][]byte{hash[:]})
		if err != nil || len(tokens) != 1 {
			return nil, fmt.Errorf("%d tokens: %w", len(tokens), err)
		}
		nodes, err := q.NodeOverviews(ctx, []string{id})
		if err != nil || len(nodes) != 1 {
			return nil, fmt.Errorf("%d nodes: %w", len(nodes), err)
		}
		return nodes[0], nil
	}
}
