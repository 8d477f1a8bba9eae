package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// scrape is what Prometheus gets: the samples that are Slipway's.
func scrape(t *testing.T, g *gauges) []string {
	t.Helper()
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(g))
	rec := httptest.NewRecorder()
	telemetry.MetricsHandler(reg).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, rec.Code)
	var out []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "slipway_") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestGaugesTellWhatIsStuck(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	require.NoError(t, store.FinishSweep(t.Context(), ""))
	dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobFailedManual))
	dbtest.Job(t, store)
	dbtest.Node(t, store, dbtest.Status(lifecycle.NodeQuarantined))
	dbtest.PXENode(t, store, "52:54:00:00:61:01", lifecycle.NodeInstalled)
	got := scrape(t, newGauges(store.Trouble, slog.New(slog.DiscardHandler)))
	for _, line := range []string{
		"slipway_gauges_up 1", "slipway_audit_verified_timestamp_seconds 0",
		`slipway_nodes{lifecycle="maas",status="quarantined"} 1`, `slipway_nodes{lifecycle="pxe",status="installed"} 1`, `slipway_nodes{lifecycle="maas",status="offline"} 0`,
		`slipway_attention_items{kind="node_quarantined"} 1`, `slipway_attention_items{kind="parked_job"} 1`, `slipway_attention_items{kind="sweeper"} 0`,
		`slipway_jobs_parked{failure_class=""} 1`, "slipway_jobs_past_deadline 0", "slipway_sweeper_passes_total 1",
		`slipway_outbox_backlog{kind="start_workflow"} 2`,
	} {
		require.Contains(t, got, line)
	}
	all := strings.Join(got, "\n")
	require.Equal(t, len(db.AttentionKinds()), strings.Count(all, "slipway_attention_items{"), "what is well is 0, and not missing")
	require.Contains(t, all, "slipway_outbox_oldest_seconds{kind=\"event\"}")
	require.Contains(t, all, "slipway_sweeper_last_pass_timestamp_seconds 1.")
}

// TestGaugesWithoutADatabase: they say so instead of telling old numbers, and
// many scrapes are one question.
func TestGaugesWithoutADatabase(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	g := newGauges(func(ctx context.Context) (db.Trouble, error) {
		asked.Add(1)
		if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > gaugesLimit {
			return db.Trouble{}, nil
		}
		return db.Trouble{}, errors.New("no database")
	}, slog.New(slog.DiscardHandler))
	for range 3 {
		require.Equal(t, []string{"slipway_gauges_up 0"}, scrape(t, g))
	}
	require.EqualValues(t, 1, asked.Load())
}

// TestTemporalAway: a worker is not ready, a process that serves the API is.
func TestTemporalAway(t *testing.T) {
	t.Parallel()
	c, err := temporalx.Dial(temporalx.ClientOptions{Address: "127.0.0.1:1", Namespace: "none", Log: telemetry.TemporalLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	a := &App{Temporal: c}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, a.temporalReady(ctx))
	a.servesAPI.Store(true)
	require.NoError(t, a.temporalReady(ctx))
}
