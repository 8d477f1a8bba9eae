package bench_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	fleet        = 100_000
	fleetEvery   = 30 * time.Second
	poolSize     = 5000 // the nodes whose heartbeats arrive in one and a half seconds of the fleet
	fleetMeasure = 10 * time.Second
	fleetWarm    = 3 * time.Second
)

// BenchmarkFleet measures the agent API with the heartbeats of a hundred
// thousand nodes at one in thirty seconds, over TLS and on a database that has
// that many nodes: 5,000 agents send so often that as many heartbeats
// arrive each second. It counts processor time, which a busy machine
// distorts less than the clock, of the API and of PostgreSQL; and it measures
// what the API holds in memory for each node.
func BenchmarkFleet(b *testing.B) {
	dsn := dbtest.Database(b)
	ca, err := nodeca.Create()
	require.NoError(b, err)
	key, err := agentKey(ca.KeyPEM())
	require.NoError(b, err)
	spki, err := nodeca.SPKI(key.Public())
	require.NoError(b, err)
	ids := makeFleet(b, dsn, fleet, spki[:])
	store := dbtest.Open(b, dsn)
	before := resident(b)
	metrics := prometheus.NewRegistry()
	srv := agentapi.New(agentapi.Config{Store: agentapi.NewStore(store), CA: ca, HeartbeatInterval: fleetEvery, Metrics: metrics})
	require.NoError(b, srv.Start(b.Context()))
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
	every := fleetEvery * poolSize / fleet
	leave := startAgentPool(b, agentPool{URL: srv.URL(), CA: ca.CertPEM(), Key: ca.KeyPEM(), Nodes: ids[:poolSize], Every: every})
	defer leave()
	<-time.After(fleetWarm)
	perNode := float64(resident(b)-before) / poolSize

	conn, err := pgx.Connect(b.Context(), dsn)
	require.NoError(b, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var api, pg, heartbeats float64
	for b.Loop() {
		api0, pg0, n0, at := processorTime(b), postgresTime(b, conn), written(b, metrics), time.Now()
		<-time.After(fleetMeasure)
		took := time.Since(at).Seconds()
		api, pg = (processorTime(b)-api0).Seconds()/took, (postgresTime(b, conn)-pg0).Seconds()/took
		heartbeats = (written(b, metrics) - n0) / took
	}
	want := float64(fleet) / fleetEvery.Seconds()
	scale := want / heartbeats // a machine that is too busy for all of them still tells what one costs
	b.ReportMetric(heartbeats, "heartbeats/s")
	b.ReportMetric(api*scale, "api-cores")
	b.ReportMetric(pg*scale, "postgres-cores")
	b.ReportMetric(perNode, "bytes/node")
	measure(b, rowFleet, noRatio, "%.2f and %.2f", api*scale, pg*scale)
	say("%d nodes at one heartbeat in %s are %.0f heartbeats/s and take %.0f%% of one core in the API (TLS and all) and %.0f%% in PostgreSQL; measured at %.0f/s\n"+
		"  the API holds %.1f KiB for each node that is connected: %.1f GiB for all of them", fleet, fleetEvery, want, 100*api*scale, 100*pg*scale, heartbeats,
		perNode/1024, perNode*fleet/(1<<30))
}

// makeFleet copies one enrolled, active node, past the triggers that would have
// an audit row for each. All have one key.
func makeFleet(b *testing.B, dsn string, n int, keyHash []byte) []string {
	b.Helper()
	store := dbtest.Open(b, dsn)
	first := dbtest.Node(b, store, dbtest.Active())
	conn := dbtest.Owner(b, dsn)
	run := func(sql string, args ...any) {
		_, err := conn.Exec(b.Context(), sql, args...)
		require.NoError(b, err)
	}
	run("SET session_replication_role = replica")
	run(`INSERT INTO nodes (id, lifecycle, status, hostname, site_id)
		SELECT 'node_fleet-' || lpad(i::text, 7, '0'), lifecycle, status, 'fleet-' || i, site_id FROM nodes, generate_series(1, $2::int) i WHERE id = $1`, first.ID, n)
	run(`INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after)
		SELECT id, 1, id, $1, 'PEM', now(), now() + interval '1 day' FROM nodes WHERE id LIKE 'node\_fleet-%'`, keyHash)
	run(`INSERT INTO agent_identities (node_id, generation, renew_at)
		SELECT node_id, 1, not_after - interval '5 hours' FROM agent_certificates WHERE node_id LIKE 'node\_fleet-%'`)
	run(`INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, received_at, report, report_boot_id)
		SELECT node_id, 'boot', '1.0.0', 1, now(), '{}', 'boot' FROM agent_identities WHERE node_id LIKE 'node\_fleet-%'`)
	run("ANALYZE")
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("node_fleet-%07d", i+1)
	}
	return ids
}

// written is how many heartbeats the API has written.
func written(b *testing.B, from prometheus.Gatherer) float64 {
	b.Helper()
	families, err := from.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == "slipway_agentapi_heartbeats_written_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	b.Fatal("the API counts no heartbeats")
	return 0
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// postgresTime is what the connections of this database have used; the server
// runs on this machine.
func postgresTime(b *testing.B, conn interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) time.Duration {
	b.Helper()
	rows, err := conn.Query(b.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() OR datname IS NULL")
	require.NoError(b, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(b, err)
	const tick = time.Second / 100 // of /proc on every Linux
	var sum time.Duration
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, or the server is elsewhere
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		for _, f := range fields[11:13] { // utime and stime
			n, err := strconv.Atoi(f)
			require.NoError(b, err)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// resident is what this process holds after what it no longer needs is gone.
func resident(b *testing.B) uint64 {
	b.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
