package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/server/httpapi"
)

// Every route that reads the database answers 503 with Retry-After while the database is away.
func TestRoutes_DatabaseAwayIs503(t *testing.T) {
	t.Parallel()
	store, cut := dbtest.Cuttable(t)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store = store })
	doc := w.document()
	cut()
	asked := 0
	for path, item := range doc.Paths {
		for method := range item {
			if path == "/api/v1/version" {
				continue
			}
			asked++
			a := w.do(strings.ToUpper(method), placeholder.ReplaceAllString(path, "x"), nil)
			if path == "/api/v1/report" {
				a = w.do("POST", path, map[string]any{"mac_address": "52:54:00:12:34:56"}, header{"Authorization": ""})
			}
			require.Equal(t, http.StatusServiceUnavailable, a.status, "%s %s: %s", method, path, a.raw)
			require.NotEmpty(t, a.header.Get("Retry-After"), path)
			a.refused(problem.Unavailable)
		}
	}
	require.Greater(t, asked, 80)
	for _, path := range []string{"/boot/52-54-00-12-34-56.ipxe", "/boot/pxe_" + strings.Repeat("a", 43) + "/user-data", "/metrics"} {
		a := w.do("GET", path, nil)
		require.Equal(t, http.StatusServiceUnavailable, a.status, "%s: %s", path, a.raw)
		require.NotEmpty(t, a.header.Get("Retry-After"), path)
	}
}

func TestActions_TemporalAwayIs503(t *testing.T) {
	t.Parallel()
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	w := newWorld(t, func(c *httpapi.Config) { c.REST.Temporal, c.REST.Plans = temporal, temporal }).ready()
	job := dbtest.Job(t, w.store)
	for _, a := range []answer{
		w.post("/api/v1/admin/jobs/"+job.ID+"/actions/cancel", nil, header{"Idempotency-Key": db.NewID("key")}),
		w.do("POST", "/api/v1/admin/onboardings/plan", w.onboarding("gpu-1")),
	} {
		p := a.refused(problem.EngineUnavailable)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Regexp(t, "the action was not taken|nothing could be looked at", p.Detail)
	}
}
