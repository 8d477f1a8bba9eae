package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// newProject makes a project and returns its id and a function that runs commands on it as an
// operator.
func (w *world) newProject() (project string, run func(args ...string) said) {
	w.t.Helper()
	account := w.run("", "-o", "json", "billing-account", "create", "acme").exits(0).id()
	project = w.run("", "-o", "json", "project", "create", "training", "--billing-account", account, "--owner-email", "ada@example.com").exits(0).id()
	return project, func(args ...string) said { return w.run("", append(args, "--reason", "ticket 4711")...) }
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	project, run := w.newProject()
	made := run("-o", "json", "webhook", "create", project, "mine", "https://hooks.example.com/x", "--event-type", "project.*", "--event-type", "member.added").exits(0)
	require.Contains(t, made.out, "whsec_")
	id := made.id()
	require.Contains(t, run("webhook", "create", project, "bad", "http://hooks.example.com").exits(cli.ExitUsage).err, "url: ")
	require.Contains(t, run("webhook", "list", project).exits(0).out, "https://hooks.example.com/x")
	require.NotContains(t, run("webhook", "show", project, id).exits(0).out, "whsec_")
	require.Contains(t, run("webhook", "show", project, id).exits(0).out, "[project.* member.added]")
	run("webhook", "update", project, id).exits(cli.ExitUsage)
	require.Contains(t, run("webhook", "update", project, id, "--enabled=false").exits(0).out, "by_request")
	changed := run("webhook", "update", project, id, "--enabled", "--every-event", "--name", "all").exits(0).out
	require.Contains(t, changed, "enabled")
	require.NotContains(t, changed, "project.*")
	require.Contains(t, run("webhook", "rotate-secret", project, id, "--overlap-seconds", "60").exits(0).out, "whsec_")

	key := []string{"--idempotency-key", "k"}
	event := func(args ...string) string {
		var v struct {
			EventID string `json:"event_id"`
		}
		out := run(append(append([]string{"-o", "json"}, args...), key...)...).exits(0).out
		require.NoError(t, json.Unmarshal([]byte(out), &v), out)
		return v.EventID
	}
	tested := event("webhook", "test", project, id)
	require.Equal(t, tested, event("webhook", "test", project, id), "the same key is the same test")
	require.Contains(t, run("webhook", "deliveries", project, id).exits(0).out, tested)
	require.NotContains(t, run("webhook", "deliveries", project, id, "--status", "dead").exits(0).out, tested)
	require.Equal(t, tested, event("webhook", "redeliver", project, id, tested))
	run("webhook", "redeliver", project, id, "evt_none").exits(cli.ExitNotFound)
	_, err := w.store.RelayEvents(t.Context(), 1000)
	require.NoError(t, err)
	run("webhook", "replay", project, id).exits(cli.ExitUsage)
	require.Regexp(t, `queued +[1-9]`, run("webhook", "replay", project, id, "--after", "0").exits(0).out)

	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := webhookdb.AddNotice(t.Context(), tx, webhookdb.Notice{ProjectID: project, Kind: "webhook_failing", Episode: "1", Message: "it \x1b[2J fails"}, "slipway.example")
		return err
	}))
	notices := run("notice", "list", project).exits(0).out
	require.Contains(t, notices, "webhook_failing")
	require.NotContains(t, notices, "\x1b")
	run("webhook", "delete", project, id).exits(0)
	run("webhook", "show", project, id).exits(cli.ExitNotFound)
}

// stopWriter ends what writes to it when it has written a text.
type stopWriter struct {
	bytes.Buffer
	text string
	stop context.CancelFunc
}

func (s *stopWriter) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

// TestProjectEvents follows the events of a project, from the first and until Ctrl-C.
func TestProjectEvents(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	project, run := w.newProject()
	run("project", "rename", project, "--name", "next").exits(0)
	_, err := w.store.RelayEvents(t.Context(), 1000)
	require.NoError(t, err)
	require.Contains(t, run("project", "events", project).exits(cli.ExitUsage).err, "--follow")
	require.Contains(t, run("project", "events", project, "--follow", "--after", "99").exits(cli.ExitNotFound).err, "restored")
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	out, errs := &stopWriter{text: "project.updated", stop: cancel}, &bytes.Buffer{}
	code := cli.Run(ctx, cli.Env{
		In: strings.NewReader(""), Out: out, Err: errs, Version: "test", ConfigPath: filepath.Join(w.home, "slipway", "config.yaml"), Getenv: func(string) string { return "" },
	}, []string{"project", "events", project, "--follow", "--after", "0", "--reason", "ticket"})
	require.Zero(t, code, errs.String())
	require.Regexp(t, `(?m)^1  20\d\d-.*  project\.created  `, out.String())
	require.Contains(t, out.String(), "project.updated", runenv.Deadline)
}

// A stream that breaks is opened again after the last event, and one whose reader has lost its
// access ends with an error.
func TestProjectEvents_Reconnect(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch n := opened.Add(1); {
		case n == 1 && r.Header.Get("Last-Event-ID") == "":
			fmt.Fprint(w, ": following\n\nid: 7\nevent: member.added\ndata: {\"cursor\":7,\"type\":\"member.added\",\"payload\":{\"name\":\"\\u001b[2J\"}}\n\n: heartbeat\n\n")
		case n == 2 && r.Header.Get("Last-Event-ID") == "7":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"The database does not answer.","status":503}`)
		case n == 3 && r.Header.Get("Last-Event-ID") == "7":
			fmt.Fprint(w, ": following\n\nid: 8\ndata: {\"cursor\":8,\"type\":\"key.added\",\"payload\":{}}\n\n: ended: sign in again\n\n")
		default:
			t.Errorf("request %d after %q", n, r.Header.Get("Last-Event-ID"))
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(srv.Close)
	w := &world{t: t, home: t.TempDir(), env: map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "slpp_x"}}
	got := w.run("", "-o", "json", "project", "events", "prj_1", "--follow").exits(cli.ExitUnauthorised)
	require.Contains(t, got.err, "access to the project has ended")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `"cursor":7`)
	require.Contains(t, lines[1], `"cursor":8`)
	require.NotContains(t, got.out, "\x1b")
}
