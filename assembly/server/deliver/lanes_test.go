package deliver_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// claim claims webhooks for an hour and returns their ids.
func (f *fixture) claim(want webhookdb.Wanted) (ids []string) {
	f.t.Helper()
	got, err := webhookdb.Claim(f.t.Context(), f.store, "one", want, time.Hour)
	require.NoError(f.t, err)
	for _, w := range got {
		ids = append(ids, w.ID)
	}
	return ids
}

// putInto moves webhooks into a project, whose account is that of the project.
func (f *fixture) putInto(project string, webhooks ...string) {
	f.t.Helper()
	f.exec("SET session_replication_role = replica")
	for _, w := range webhooks {
		f.exec("UPDATE webhooks SET project_id = $1, name = id WHERE id = $2", project, w)
	}
	f.exec("RESET session_replication_role")
}

// A project that has a claim under way, or one in the same batch, comes after one that has none,
// though its webhooks have waited longer. So does an account with many projects.
func TestClaim_AccountsAndProjectsTakeTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(6)
	f.exec("INSERT INTO billing_accounts (id, name) VALUES ('acc_b', 'b')")
	f.exec("UPDATE projects SET billing_account_id = 'acc_b' WHERE id = 'prj_6'")
	f.putInto("prj_1", "whk_2", "whk_3")
	// Account a has prj_1 with whk_1, 2 and 3, prj_4 and prj_5. Account b has prj_6, which came
	// last.
	f.exec("UPDATE webhooks SET due_at = now() - make_interval(hours => 10 - right(id, 1)::int)")
	require.ElementsMatch(t, []string{"whk_1", "whk_6"}, f.claim(webhookdb.Wanted{Lane: webhookdb.LaneNew, Free: 2}), "accounts take turns in one batch")
	require.Equal(t, []string{"whk_4"}, f.claim(one), "projects take turns over batches")
	require.ElementsMatch(t, []string{"whk_5", "whk_2"}, f.claim(webhookdb.Wanted{Lane: webhookdb.LaneNew, Free: 2}))
	require.Empty(t, f.claim(webhookdb.Wanted{Lane: webhookdb.LaneFast, Free: 9}), "another lane")
	require.Equal(t, []string{"whk_3"}, f.claim(webhookdb.Wanted{Lane: webhookdb.LaneNew, Free: 9}))
}

// The last workers are kept for an account that has few claims, however many webhooks of another
// wait.
func TestClaim_KeepsAReserveForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(8)
	f.exec("UPDATE webhooks SET due_at = now()")
	free := webhookdb.Wanted{Lane: webhookdb.LaneNew, Free: 6, Reserve: 2, Share: 2}
	require.Len(t, f.claim(free), 4)
	free.Free = 2
	require.Empty(t, f.claim(free), "two workers are left, for others")
	f.exec("INSERT INTO billing_accounts (id, name) VALUES ('acc_b', 'b')")
	f.exec("UPDATE projects SET billing_account_id = 'acc_b' WHERE id = (SELECT max(project_id) FROM webhooks WHERE claimed_until IS NULL)")
	require.Len(t, f.claim(free), 1)
}

// silentServer answers nothing below /1 until it is released, and 204 elsewhere.
func silentServer(release <-chan struct{}, asked *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/1" {
			asked.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
				w.WriteHeader(http.StatusGatewayTimeout) // a caller that is closing may still read it
				return
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// A silent webhook that has the only worker of its lane delays neither new webhooks nor those that
// have answered quickly.
func TestDeliver_LanesHaveWorkersOfTheirOwn(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	var asked atomic.Int32
	f := newFixture(t, silentServer(release, &asked))
	f.addWebhooks(3)
	f.exec("UPDATE webhooks SET tried = true, slow = id <> 'whk_2' WHERE id <> 'whk_3'")
	f.addEvents(1, 1)
	d := f.deliverer("one")
	d.Fast, d.New, d.Slow = 1, 1, 1
	d.Options = f.productOptions
	f.run(d)
	require.Eventually(t, func() bool { return asked.Load() == 1 }, runenv.Patience(20*time.Second), time.Millisecond)
	f.exec(`INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
		SELECT 'event', 'prj_' || p, 'evt_later_' || p, 'project', 'prj_' || p, 'project.updated', '{}' FROM generate_series(2, 3) p`)
	_, err := f.store.RelayEvents(t.Context(), 10)
	require.NoError(t, err)
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 2, 20*time.Second)
	require.Zero(t, f.count("SELECT count(*) FROM webhook_deliveries WHERE webhook_id = 'whk_1' AND status <> 'pending'"), "the silent one has its worker still")
	f.wait("SELECT count(*) FROM webhooks WHERE lane = 'fast' AND claimed_until IS NULL", 2, 20*time.Second)
}

// A webhook that was quick and answers slowly gives its worker back after the attempts that it has
// begun.
func TestDeliver_SlowAnswerEndsTheBatch(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	var asked atomic.Int32
	f := newFixture(t, silentServer(release, &asked))
	f.addWebhooks(1)
	f.exec("UPDATE webhooks SET tried = true, slow = false")
	f.addEvents(1, 20)
	d := f.deliverer("one")
	d.Backoff = time.Hour
	f.run(d)
	f.wait("SELECT count(*) FROM webhooks WHERE lane = 'slow'", 1, 30*time.Second)
	require.LessOrEqual(t, asked.Load(), int32(4), "two in the fast lane, and two that the other lane may have begun")
}

// A disabled webhook gets no rows for events. A delivery that waited when it was disabled is sent
// when it is enabled.
func TestFanOut_QueuesNothingForADisabledWebhook(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	f.addWebhooks(1)
	f.addEvents(1, 1)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	f.exec("UPDATE webhooks SET status = 'disabled', disabled_reason = 'by_request'")
	f.addEventsFrom(1, 2, 3)
	n, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries"), "the one from before")
	f.run(f.deliverer("one"))
	f.exec("UPDATE webhooks SET status = 'enabled', disabled_reason = '', due_at = now()")
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 1, 30*time.Second)
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries"))
}

// A webhook that is released between the rows of a fan-out and its wake-up is due afterwards.
func TestFanOut_WakesWhatWasReleased(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(3)
	f.exec(`UPDATE webhooks SET due_at = CASE id WHEN 'whk_2' THEN now() + interval '1 hour' WHEN 'whk_3' THEN now() + interval '1 hour' END,
		failures = CASE id WHEN 'whk_3' THEN $1 ELSE 0 END`, webhookdb.Breaker)
	f.addEvents(3, 1)
	_, err := webhookdb.FanOut(t.Context(), f.store, 10)
	require.NoError(t, err)
	require.Equal(t, 2, f.count("SELECT count(*) FROM webhooks WHERE due_at <= now()"), "one without a time, and one that waited for a retry")
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhooks WHERE id = 'whk_3' AND due_at > now()"), "a pause after failures goes on")
}

// A deliverer that stops waits for the attempt under way and stores its outcome. The next one sends
// nothing twice.
func TestDeliver_StopWaitsForAttempts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var asked atomic.Int32
	f := newFixture(t, silentServer(release, &asked))
	f.addWebhooks(1)
	f.addEvents(1, 5)
	d := f.deliverer("one")
	d.Options = f.productOptions
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return asked.Load() == 2 }, runenv.Patience(20*time.Second), time.Millisecond)
	stop()
	close(release)
	<-ended
	require.Equal(t, 2, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND attempts = 1"))
	require.Equal(t, 3, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'pending' AND attempts = 0"))
	require.EqualValues(t, 2, asked.Load(), "no attempt began after the stop")
	f.run(f.deliverer("two"))
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered' AND attempts = 1", 5, 30*time.Second)
	require.EqualValues(t, 5, asked.Load())
}

// An attempt that does not end is cut. It counts as no failure of the endpoint, and is made again.
func TestDeliver_StopCutsASilentAttempt(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var asked atomic.Int32
	f := newFixture(t, silentServer(release, &asked))
	f.addWebhooks(1)
	f.addEvents(1, 1)
	d := f.deliverer("one")
	d.Options, d.StopFor = f.productOptions, 20*time.Millisecond
	end := f.start(d)
	require.Eventually(t, func() bool { return asked.Load() == 1 }, runenv.Patience(20*time.Second), time.Millisecond)
	end()
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'pending' AND attempts = 0"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM webhooks WHERE failures = 0 AND claimed_until IS NULL AND lane = 'new'"), "another deliverer may begin at once")
	close(release)
	f.run(f.deliverer("two"))
	f.wait("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'", 1, 30*time.Second)
}

// A new URL makes a webhook a new one; another change leaves it in its lane.
func TestUpdate_NewURLIsUntried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addWebhooks(1)
	f.exec("UPDATE webhooks SET tried = true, slow = false")
	w := webhookdb.Webhook{ID: "whk_1", Name: "renamed", URL: f.server.URL + "/1", Status: webhookdb.Enabled, Version: 1}
	for _, want := range []string{"fast", "new"} {
		require.NoError(t, f.store.ForProject(t.Context(), "prj_1", func(tx *db.ProjectTx) error {
			row, err := webhookdb.Update(t.Context(), tx, w)
			require.Equal(t, want, row.Lane)
			w.URL, w.Version = f.server.URL+"/other", row.Version
			return err
		}))
	}
}
