package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestDriftIsInTheGauges(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	site := dbtest.Site(t, store, dbtest.Named("south"))
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftUnknownMachine)
	_, err := driftdb.ObserveFindings(t.Context(), store, site.ID, []driftdb.Observation{{Detector: d, Subject: "abc123", Key: "abc123", Message: "m"}})
	require.NoError(t, err)
	p, err := driftdb.BeginPass(t.Context(), store, site.ID, 900*time.Second)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), store, p, "", []byte("{}")))
	read := func() string {
		reg := prometheus.NewRegistry()
		require.NoError(t, reg.Register(newDriftGauges(store, slog.New(slog.DiscardHandler))))
		rec := httptest.NewRecorder()
		telemetry.MetricsHandler(reg).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return rec.Body.String()
	}
	text := read()
	require.Contains(t, text, `slipway_drift_open{detector="unknown_machine_in_maas",severity="info"} 1`)
	require.Contains(t, text, `slipway_drift_pass_due_seconds{site="south"} 900`)
	require.Contains(t, text, `slipway_drift_last_pass_timestamp_seconds{site="south"} 1.`)
	store.Close()
	require.NotContains(t, read(), "slipway_drift_open{", "what cannot be read is not told from memory")
}
