package tenancy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
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
	ask := func(kind string) answer {
		return w.do(a.owner, "POST", "/projects/"+a.project+"/webhooks", map[string]any{"name": "some", "url": "https://a.example.com", "event_types": []string{kind}})
	}
	for _, kind := range []string{"*", "member", "members.*", "member.add", "allocation.releasing", ""} {
		require.Contains(t, string(ask(kind).want(http.StatusUnprocessableEntity).raw), "event_types[0]", kind)
	}
	one := "/projects/" + a.project + "/webhooks/" + ask("allocation.releasing.requested").want(http.StatusCreated).field("id")
	w.exec("UPDATE webhooks SET event_types = '{allocation.releasing}'") // a type that is no longer offered
	w.do(a.owner, "PATCH", one, map[string]any{"enabled": false}).want(http.StatusOK)
	w.do(a.owner, "PATCH", one, map[string]any{"event_types": []string{"allocation.releasing"}}).want(http.StatusUnprocessableEntity)
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
	text := w.followUntil(a.owner, path, "id: 2-", header{"Last-Event-ID": "1"})
	require.NotContains(t, text, "id: 1-", "the stream continues after the id")
	id := regexp.MustCompile(`id: (2-[0-9a-f]{8})`).FindStringSubmatch(text)[1]
	require.NotContains(t, w.followUntil(a.owner, path, "id: 3-", header{"Last-Event-ID": id}), "id: 2-")
	gone := func(id, why string) {
		got := w.do(a.owner, "GET", path, nil, header{"Last-Event-ID": id}).want(http.StatusGone)
		require.Contains(t, string(got.raw), why)
		require.Contains(t, string(got.raw), "urn:slipway:problem:events-gone")
	}
	gone("999999", "restored")
	w.do(a.owner, "GET", path, nil, header{"Last-Event-ID": "2-" + strings.Repeat("x", 300)}).want(http.StatusUnprocessableEntity)

	w.exec("UPDATE events SET at = now() - interval '40 days' WHERE project_id = $1 AND project_cursor <= 3", a.project)
	n, err := w.store.PruneEvents(t.Context(), time.Now().Add(-30*24*time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	gone(id, "deleted")
	require.Contains(t, string(w.do(a.owner, "GET", path, nil, header{"Last-Event-ID": "1"}).want(http.StatusGone).raw), `"oldest_cursor":4`)
	require.Contains(t, w.followUntil(a.owner, path, "id: 4-", header{"Last-Event-ID": "3"}), "id: 4-", "nothing after the third is missing")
	require.NotContains(t, w.followUntil(a.owner, path, "id: 4-"), "id: 3-", "0 begins with what is kept")

	last := regexp.MustCompile(`id: (4-[0-9a-f]{8})`).FindStringSubmatch(w.followUntil(a.owner, path, "id: 4-"))[1]
	w.exec("UPDATE event_cursor SET epoch = 'another'")
	gone(last, "restored") // though the cursor is one of this database too
	w.followUntil(a.owner, path, "id: 5-", header{"Last-Event-ID": "4"})
}

// followUntil reads a stream from its first event until it holds a text.
func (w *world) followUntil(bearer, path, text string, headers ...header) string {
	w.t.Helper()
	stream := w.openStream(bearer, path, append([]header{{"Last-Event-ID": "0"}}, headers...)...)
	var seen strings.Builder
	for !strings.Contains(seen.String(), text) {
		require.True(w.t, stream.Scan(), runenv.Deadline+": the stream has no "+text)
		seen.WriteString(stream.Text() + "\n")
	}
	return seen.String()
}

// openStream opens a stream, which is cut when the time for it is over.
func (w *world) openStream(bearer, path string, headers ...header) *bufio.Scanner {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), runenv.Patience(20*time.Second))
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+op.Prefix+path, nil)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+bearer)
	for _, h := range headers {
		for k, v := range h {
			req.Header.Set(k, v)
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(w.t, http.StatusOK, res.StatusCode)
	return bufio.NewScanner(res.Body)
}

// secretCount returns how many versions of signing secrets are stored.
func (w *world) secretCount() (n int) {
	w.t.Helper()
	rows, err := w.store.ListSecrets(w.t.Context(), "slipway/webhooks/", "", 0)
	require.NoError(w.t, err)
	for _, r := range rows {
		n += int(r.Versions)
	}
	return n
}

// A change of a webhook that fails after its secret was stored leaves no secret, and one that works
// leaves those that sign.
func TestWebhook_KeepsNoUnusedSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	one := "/projects/" + a.project + "/webhooks/" + a.ids["webhook_id"]
	require.Equal(t, 1, w.secretCount())
	rotate := map[string]any{"overlap_seconds": 60}
	w.do(a.owner, "POST", one+"/rotate-secret", rotate, header{"If-Match": `"7"`}).want(http.StatusPreconditionFailed)
	require.Equal(t, 1, w.secretCount(), "another version")
	w.exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''at the commit''; END'`)
	w.exec("CREATE CONSTRAINT TRIGGER fail AFTER INSERT OR UPDATE ON webhooks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()")
	w.do(a.owner, "POST", one+"/rotate-secret", rotate).want(http.StatusInternalServerError)
	w.do(a.owner, "POST", "/projects/"+a.project+"/webhooks", map[string]any{"name": "more", "url": "https://a.example.com"}).want(http.StatusInternalServerError)
	require.Equal(t, 1, w.secretCount(), "nothing was committed")
	w.exec("DROP TRIGGER fail ON webhooks")
	for range 3 {
		w.do(a.owner, "POST", one+"/rotate-secret", rotate).want(http.StatusOK)
		require.Equal(t, 2, w.secretCount(), "the new one and the one before")
	}
	w.do(a.owner, "DELETE", one, nil).want(http.StatusNoContent)
	require.Zero(t, w.secretCount())
}

// A repeated request for a test, a redelivery or a replay queues nothing more, and each is audited
// once.
func TestWebhook_QueueIsIdempotentAndAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	w.relay()
	one := "/projects/" + a.project + "/webhooks/" + a.ids["webhook_id"]
	for path, audit := range map[string]string{
		"/test": "test_webhook", "/deliveries/" + a.ids["event_id"] + "/redeliver": "redeliver_webhook_event", "/replay": "replay_webhook",
	} {
		audited := func() int {
			return strings.Count(string(w.do(a.owner, "GET", "/projects/"+a.project+"/audit-log?limit=200", nil).want(http.StatusOK).raw), `"`+audit+`"`)
		}
		w.do(a.owner, "POST", one+path, map[string]any{"after_cursor": 0}, header{"Idempotency-Key": ""}).want(http.StatusBadRequest)
		before, key := audited(), header{"Idempotency-Key": "the-key"}
		first := w.do(a.owner, "POST", one+path, map[string]any{"after_cursor": 0}, key).want(http.StatusOK)
		again := w.do(a.owner, "POST", one+path, map[string]any{"after_cursor": 0}, key).want(http.StatusOK)
		require.Equal(t, string(first.raw), string(again.raw), path)
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"), path)
		require.Equal(t, before+1, audited(), audit)
	}
	w.do(a.owner, "POST", one+"/replay", map[string]any{"after_cursor": 5}, header{"Idempotency-Key": "the-key"}).want(http.StatusUnprocessableEntity)
}

// TestProjectEvents_EndWithTheAccess removes a member and deletes a token while each reads a
// stream.
func TestProjectEvents_EndWithTheAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	at := "/projects/" + a.project
	bob, id := w.addMember(a, "bob", "viewer")
	made := w.do(a.owner, "POST", at+"/tokens", map[string]any{"name": "reader", "role": "viewer"}).want(http.StatusCreated)
	for bearer, ended := range map[string]string{bob: "/members/" + id, made.field("token"): "/tokens/" + made.field("id")} {
		stream, kept := w.openStream(bearer, at+"/events"), w.openStream(a.owner, at+"/events")
		require.True(t, stream.Scan())
		require.Equal(t, ": following", stream.Text())
		w.do(a.owner, "DELETE", at+ended, nil).want(http.StatusNoContent)
		last := ""
		for stream.Scan() {
			if stream.Text() != "" {
				last = stream.Text()
			}
		}
		require.NoError(t, stream.Err(), runenv.Deadline+": the stream of what has no access any more goes on")
		require.Equal(t, ": ended: sign in again", last, ended)
		w.relay()
		for seen := ""; !strings.Contains(seen, "deleted") && !strings.Contains(seen, "removed"); seen = kept.Text() {
			require.True(t, kept.Scan(), "the stream of another goes on")
		}
	}
}

// A member who may only read a project learns of its notices, and not to whom they went.
func TestNotices_ShowRecipientsToOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	viewer, _ := w.addMember(a, "bob", "viewer")
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := webhookdb.AddNotice(t.Context(), tx, webhookdb.Notice{ProjectID: a.project, Kind: "webhook_failing", Episode: "1", Message: "it fails"}, "slipway.example")
		return err
	}))
	w.relay()
	w.exec("UPDATE webhook_deliveries SET reason = 'refused by the endpoint'")
	for bearer, shown := range map[string]bool{a.owner: true, viewer: false} {
		list := string(w.do(bearer, "GET", "/projects/"+a.project+"/notices", nil).want(http.StatusOK).raw)
		require.Contains(t, list, `"pending"`)
		require.Equal(t, shown, strings.Contains(list, "alpha-hook"), list)
		require.Equal(t, shown, strings.Contains(list, "refused by the endpoint"), list)
	}
}

// The rule for addresses asks name servers, so no lock is held meanwhile: another change is made at
// once, and the one that it overtook is refused.
func TestWebhook_RuleIsAskedWithoutALock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	one := "/projects/" + a.project + "/webhooks/" + a.ids["webhook_id"]
	other := func() {
		w.exec("SET lock_timeout = '1s'; UPDATE webhooks SET version = version + 1; UPDATE projects SET name = name")
	}
	w.asking.Store(&other)
	w.do(a.owner, "PATCH", one, map[string]any{"url": "https://new.example.com/"}).want(http.StatusPreconditionFailed)
	require.NotContains(t, string(w.do(a.owner, "GET", one, nil).want(http.StatusOK).raw), "new.example.com")
	w.do(a.owner, "PATCH", one, map[string]any{"url": "https://new.example.com/"}).want(http.StatusOK)
}

// Nothing can be queued for a disabled webhook: it would wait, and be sent long after it was asked
// for.
func TestWebhook_DisabledQueuesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	w.relay()
	one := "/projects/" + a.project + "/webhooks/" + a.ids["webhook_id"]
	w.do(a.owner, "PATCH", one, map[string]any{"enabled": false}).want(http.StatusOK)
	for _, path := range []string{"/test", "/deliveries/" + a.ids["event_id"] + "/redeliver", "/replay"} {
		require.Contains(t, string(w.do(a.owner, "POST", one+path, map[string]any{"after_cursor": 0}).want(http.StatusConflict).raw), "enable it", path)
	}
	w.do(a.owner, "PATCH", one, map[string]any{"enabled": true}).want(http.StatusOK)
	w.do(a.owner, "POST", one+"/test", nil).want(http.StatusOK)
}
