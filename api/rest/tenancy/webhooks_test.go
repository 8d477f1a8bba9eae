package tenancy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func (w *world) relay() {
	w.t.Helper()
	_, err := w.store.RelayEvents(w.t.Context(), 1000)
	require.NoError(w.t, err)
	_, err = webhookdb.FanOut(w.t.Context(), w.store, 1000)
	require.NoError(w.t, err)
}

func TestWebhook_SecretIsShownOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	base := "/projects/" + a.project + "/webhooks"
	body := map[string]any{"name": "mine", "url": "https://hooks.example.com/x", "event_types": []string{"member.*"}}
	key := header{"Idempotency-Key": "one"}
	made := w.do(a.owner, "POST", base, body, key).want(http.StatusCreated)
	secret := made.field("secret")
	require.True(t, strings.HasPrefix(secret, "whsec_"), secret)
	again := w.do(a.owner, "POST", base, body, key).want(http.StatusCreated)
	require.Equal(t, made.field("id"), again.field("id"))
	require.Empty(t, again.field("secret"), "a replay does not show it")
	one := base + "/" + made.field("id")
	require.NotContains(t, string(w.do(a.owner, "GET", one, nil).want(http.StatusOK).raw), secret)
	rotated := w.do(a.owner, "POST", one+"/rotate-secret", map[string]any{"overlap_seconds": 60}).want(http.StatusOK)
	require.NotEqual(t, secret, rotated.field("secret"))
	require.NotEmpty(t, rotated.field("previous_secret_until"))
	w.do(a.owner, "PATCH", one, map[string]any{"enabled": false}, header{"If-Match": `"1"`}).want(http.StatusPreconditionFailed)
	require.Equal(t, "disabled", w.do(a.owner, "PATCH", one, map[string]any{"enabled": false}).want(http.StatusOK).field("status"))
	w.do(a.token, "DELETE", one, nil).want(http.StatusForbidden)
	w.do(a.owner, "DELETE", one, nil).want(http.StatusNoContent)
	w.do(a.owner, "GET", one, nil).want(http.StatusNotFound)
}

func TestWebhook_BadInputIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	for _, url := range []string{
		"http://hooks.example.com", "https://127.0.0.1", "https://169.254.169.254/x", "https://[::ffff:10.0.0.1]/", "https://localhost", "https://u:p@hooks.example.com",
		"https://hooks.example.com:22", "https://100.64.0.1",
	} {
		got := w.do(a.owner, "POST", "/projects/"+a.project+"/webhooks", map[string]any{"name": "bad", "url": url}).want(http.StatusUnprocessableEntity)
		require.Contains(t, string(got.raw), "body.url", url)
	}
	w.do(a.owner, "POST", "/projects/"+a.project+"/webhooks", map[string]any{"name": "bad", "url": "https://a.example.com", "event_types": []string{"*"}}).
		want(http.StatusUnprocessableEntity)
}

func TestWebhook_QueueTestReplayAndRedelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	w.relay() // what was before the webhook
	one := "/projects/" + a.project + "/webhooks/" + w.do(a.owner, "POST", "/projects/"+a.project+"/webhooks",
		map[string]any{"name": "mine", "url": "https://hooks.example.com/x"}).want(http.StatusCreated).field("id")
	w.do(a.owner, "PATCH", "/projects/"+a.project, map[string]any{"name": "renamed"}).want(http.StatusOK)
	w.relay()
	tested := w.do(a.owner, "POST", one+"/test", nil).want(http.StatusOK).field("event_id")
	list := func(query string) (out []struct {
		EventID string `json:"event_id"`
		Type    string
	}) {
		var page struct{ Data json.RawMessage }
		require.NoError(t, json.Unmarshal(w.do(a.owner, "GET", one+"/deliveries"+query, nil).want(http.StatusOK).raw, &page))
		require.NoError(t, json.Unmarshal(page.Data, &out))
		return out
	}
	rows := list("")
	require.Equal(t, tested, rows[0].EventID)
	require.Equal(t, "project.updated", rows[1].Type)
	require.Empty(t, list("?status=dead"))
	before := len(rows)
	var replayed struct{ Queued int }
	require.NoError(t, json.Unmarshal(w.do(a.owner, "POST", one+"/replay", map[string]any{"after_cursor": 0}).want(http.StatusOK).raw, &replayed))
	require.Greater(t, replayed.Queued, 2, "the events from before the webhook too")
	require.Greater(t, len(list("")), before)
	w.do(a.owner, "POST", one+"/deliveries/"+tested+"/redeliver", nil).want(http.StatusOK)
	w.do(a.owner, "POST", one+"/deliveries/evt_none/redeliver", nil).want(http.StatusNotFound)
	w.do(a.owner, "GET", "/projects/"+a.project+"/notices", nil).want(http.StatusOK)
}

func TestProjectEvents_ResumeAndRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	w.relay()
	path := "/projects/" + a.project + "/events"
	ahead := w.do(a.owner, "GET", path, nil, header{"Last-Event-ID": "999999"}).want(http.StatusUnprocessableEntity)
	require.Contains(t, string(ahead.raw), "restored")
	text := w.followUntil(a.owner, path, "id: 2\n", header{"Last-Event-ID": "1"})
	require.NotContains(t, text, "id: 1\n", "the stream continues after the id")
}

// followUntil reads a stream from its first event until it holds a text.
func (w *world) followUntil(bearer, path, text string, headers ...header) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+op.Prefix+path, nil)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Last-Event-ID", "0")
	for _, h := range headers {
		for k, v := range h {
			req.Header.Set(k, v)
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	require.Equal(w.t, http.StatusOK, res.StatusCode)
	var seen strings.Builder
	for scan := bufio.NewScanner(res.Body); !strings.Contains(seen.String(), text); {
		require.True(w.t, scan.Scan(), runenv.Deadline+": the stream has no "+text)
		seen.WriteString(scan.Text() + "\n")
	}
	return seen.String()
}
