package bench_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/bench/rig"
)

const (
	heartbeatsPerBatch = 1000
	batchesPerRound    = 30
	heartbeatRound     = 5
)

// BenchmarkHeartbeats measures db.RecordHeartbeats against the plainest upsert
// of the same rows that PostgreSQL takes, arrays through unnest into a table of
// the same shape. Most heartbeats carry no report; the second pair all do.
func BenchmarkHeartbeats(b *testing.B) {
	dsn := dbtest.FreshDatabase(b)
	store := dbtest.Open(b, dsn)
	pool, err := pgxpool.New(b.Context(), dbtest.OwnerDSN(b, dsn)) // it makes a table
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), "CREATE TABLE bare_heartbeats (LIKE heartbeats INCLUDING ALL)")
	require.NoError(b, err)
	site := dbtest.Site(b, store)
	heartbeats := make([]db.Heartbeat, heartbeatsPerBatch)
	for i := range heartbeats {
		heartbeats[i] = db.Heartbeat{
			NodeID: dbtest.Node(b, store, dbtest.At(site.ID)).ID, BootID: "boot", AgentVersion: "1.0.0", Generation: 1, Address: "127.0.0.1",
			Uptime: time.Hour,
		}
	}

	var c contest
	enter := func(suffix string, report bool) {
		write := func(into func(context.Context, []db.Heartbeat) error) func() float64 {
			return func() float64 {
				return heartbeatsPerBatch * rate(b, batchesPerRound, 1, func(ctx context.Context, _ int) error { return into(ctx, now(heartbeats, report)) })
			}
		}
		c.enter("ours"+suffix, write(store.RecordHeartbeats))
		c.enter("bare"+suffix, write(func(ctx context.Context, list []db.Heartbeat) error { return bareUpsert(ctx, pool, list) }))
	}
	enter("", false)
	enter(" with report", true)
	for b.Loop() {
		for range heartbeatRound {
			c.round()
		}
	}
	b.ReportMetric(c.of("ours"), "rows/s")
	b.ReportMetric(c.of("bare"), "bare-rows/s")
	b.ReportMetric(c.ratio("ours", "bare"), "ratio")
	b.ReportMetric(c.ratio("ours with report", "bare with report"), "ratio-with-report")
	measure(b, rowHeartbeats, c.ratio("ours", "bare"), "%.2f; %.2f with a report", c.ratio("ours", "bare"), c.ratio("ours with report", "bare with report"))
	say("heartbeats: %.0f rows/s; bare upsert of the same rows: %.0f rows/s; ratio %.2f\n  each with a report of %d GPUs: %.0f rows/s; bare %.0f rows/s; ratio %.2f",
		c.of("ours"), c.of("bare"), c.ratio("ours", "bare"), len(rig.Healthy().GPUs),
		c.of("ours with report"), c.of("bare with report"), c.ratio("ours with report", "bare with report"))
}

// now returns the heartbeats dated now.
func now(heartbeats []db.Heartbeat, report bool) []db.Heartbeat {
	out := append([]db.Heartbeat(nil), heartbeats...)
	r := rig.Healthy()
	at := time.Now()
	for i := range out {
		out[i].ReceivedAt = at
		if report {
			out[i].Report = r
		}
	}
	return out
}

const upsert = `INSERT INTO bare_heartbeats (node_id, boot_id, agent_version, generation, address, uptime_s, received_at, report)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::double precision[], $7::timestamptz[], $8::jsonb[])
ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, agent_version = excluded.agent_version, generation = excluded.generation,
    address = excluded.address, uptime_s = excluded.uptime_s, received_at = excluded.received_at, report = excluded.report
WHERE excluded.received_at >= bare_heartbeats.received_at`

func bareUpsert(ctx context.Context, pool *pgxpool.Pool, heartbeats []db.Heartbeat) error {
	n := len(heartbeats)
	ids, boots, versions, addresses := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	generations, uptimes, at, reports := make([]int64, n), make([]float64, n), make([]time.Time, n), make([]*string, n)
	for i, h := range heartbeats {
		ids[i], boots[i], versions[i], addresses[i] = h.NodeID, h.BootID, h.AgentVersion, h.Address
		generations[i], uptimes[i], at[i] = h.Generation, h.Uptime.Seconds(), h.ReceivedAt
		if h.Report != nil {
			raw, err := json.Marshal(h.Report)
			if err != nil {
				return err
			}
			text := string(raw)
			reports[i] = &text
		}
	}
	_, err := pool.Exec(ctx, upsert, ids, boots, versions, generations, addresses, uptimes, at, reports)
	return err
}
