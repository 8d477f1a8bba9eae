package tenancy_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
)

// One reader cannot take the streams of the others.
func TestProjectEvents_AtMostTwentyStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	path := "/projects/" + v.project + "/events"
	for range 20 {
		require.True(t, w.openStream(v.owner, path).Scan())
	}
	refused := w.do(v.owner, "GET", path, nil, header{"Last-Event-ID": "0"}).want(http.StatusTooManyRequests)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Contains(t, string(refused.raw), "close one first")
	require.True(t, w.openStream(v.token, path).Scan(), "another reader is served")
}

// A webhook whose queue is full takes no more that is asked for.
func TestWebhook_PendingIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	one := "/projects/" + v.project + "/webhooks/" + v.ids["webhook_id"]
	w.exec(`INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at)
		SELECT $1, $2, 'evt_' || i, 0, 'webhook.test', 'webhooks/x', '{}', now() FROM generate_series(1, 99999) i`, v.project, v.ids["webhook_id"])
	// With the test that the tenant has queued there are 100,000.
	w.do(v.owner, "POST", one+"/test", nil).want(http.StatusConflict)
	w.do(v.owner, "POST", one+"/replay", map[string]any{"after_cursor": 0}).want(http.StatusConflict)
	w.exec("DELETE FROM webhook_deliveries WHERE event_id = 'evt_1'")
	w.do(v.owner, "POST", one+"/test", nil).want(http.StatusOK)
}

// A change of a webhook that keeps its URL does not reset the failures, which hold attempts back.
func TestWebhook_FailuresEndWithTheURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	one := "/projects/" + v.project + "/webhooks/" + v.ids["webhook_id"]
	w.exec("UPDATE webhooks SET failures = 7")
	failures := func() (n int) {
		require.NoError(t, dbtest.Owner(t, w.dsn).QueryRow(t.Context(), "SELECT failures FROM webhooks").Scan(&n))
		return n
	}
	w.do(v.owner, "PATCH", one, map[string]any{"name": "renamed", "enabled": true}).want(http.StatusOK)
	require.Equal(t, 7, failures())
	w.do(v.owner, "PATCH", one, map[string]any{"url": "https://new.example.com/"}).want(http.StatusOK)
	require.Zero(t, failures())
}

func TestQuota_DeletionNeedsAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	path := "/admin/projects/" + v.project + "/quotas/total"
	require.Contains(t, string(w.do(w.admin, "DELETE", path, nil).want(http.StatusUnprocessableEntity).raw), "Slipway-Reason")
	w.do(w.admin, "DELETE", path, nil, header{"Slipway-Reason": "contract 2211 ended"}).want(http.StatusNoContent)
	require.Contains(t, string(w.do(v.owner, "GET", "/projects/"+v.project+"/audit-log", nil).want(http.StatusOK).raw), "contract 2211 ended")
}
