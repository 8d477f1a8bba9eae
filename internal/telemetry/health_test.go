package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func ask(t *testing.T, h http.Handler, method, path string) (int, Report) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	var r Report
	if rec.Code == http.StatusOK || rec.Code == http.StatusServiceUnavailable {
		require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &r))
	}
	return rec.Code, r
}

func TestHealthEndpoints(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := NewHealth(slog.New(slog.NewTextHandler(&log, nil)))
	var broken atomic.Bool
	require.NoError(t, h.AddReady("database", time.Second, func(context.Context) error {
		if broken.Load() {
			return errors.New("dial db.internal:5432: refused")
		}
		return nil
	}))
	require.NoError(t, h.AddAlive("loop", time.Second, func(context.Context) error { return nil }))

	code, r := ask(t, h.Handler(), http.MethodGet, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.True(t, r.OK)
	require.Equal(t, "database", r.Checks[0].Name)

	broken.Store(true)
	code, r = ask(t, h.Handler(), http.MethodGet, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.False(t, r.OK)
	require.False(t, r.Checks[0].OK)
	require.NotContains(t, r.Checks[0].Message, "db.internal", "the answer is open to everybody")
	require.Contains(t, log.String(), "db.internal", "the log must have the cause")

	code, r = ask(t, h.Handler(), http.MethodGet, "/healthz")
	require.Equal(t, http.StatusOK, code, "a broken dependency is no reason to restart")
	require.Equal(t, "loop", r.Checks[0].Name)
	code, _ = ask(t, h.Handler(), http.MethodPost, "/healthz")
	require.Equal(t, http.StatusMethodNotAllowed, code)
}

func TestDrainMakesNotReadyButAlive(t *testing.T) {
	t.Parallel()
	h := NewHealth(quiet())
	require.True(t, h.Ready(t.Context()).OK)
	h.Drain()
	code, r := ask(t, h.Handler(), http.MethodGet, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.True(t, r.Draining)
	require.True(t, h.Alive(t.Context()).OK)
}

func TestAHangingCheckCostsItsDeadlineAndIsNotStartedTwice(t *testing.T) {
	t.Parallel()
	h := NewHealth(quiet())
	var started atomic.Int32
	release := make(chan struct{})
	require.NoError(t, h.AddReady("deaf", 50*time.Millisecond, func(context.Context) error {
		started.Add(1)
		<-release // does not look at its context
		return nil
	}))
	require.NoError(t, h.AddReady("fine", time.Second, func(context.Context) error { return nil }))
	for range 3 {
		began := time.Now()
		r := h.Ready(t.Context())
		require.False(t, r.OK)
		require.Contains(t, r.Checks[0].Message, "no answer within 50ms")
		require.True(t, r.Checks[1].OK, "one hanging check must not hide another")
		require.Less(t, time.Since(began), runenv.Patience(5*time.Second), runenv.Deadline+"it took too long")
	}
	require.EqualValues(t, 1, started.Load())
	close(release)
	require.Eventually(t, func() bool { return h.Ready(t.Context()).OK }, runenv.Patience(5*time.Second), 10*time.Millisecond)
}

func TestAskersShareOneRun(t *testing.T) {
	t.Parallel()
	h := NewHealth(quiet())
	var started atomic.Int32
	release := make(chan struct{})
	require.NoError(t, h.AddReady("slow", 10*time.Second, func(context.Context) error {
		started.Add(1)
		<-release
		return nil
	}))
	// One asker leaves; the run goes on for the others.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, h.Ready(ctx).OK)
	var wg sync.WaitGroup
	var good atomic.Int32
	for range 5 {
		wg.Go(func() {
			if h.Ready(t.Context()).OK {
				good.Add(1)
			}
		})
	}
	require.Same(t, h.ready[0].start(), h.ready[0].start())
	require.Eventually(t, func() bool { return started.Load() == 1 }, runenv.Patience(5*time.Second), time.Millisecond)
	close(release)
	wg.Wait()
	require.EqualValues(t, 5, good.Load())
}

func TestACheckThatPanicsFails(t *testing.T) {
	t.Parallel()
	h := NewHealth(quiet())
	require.NoError(t, h.AddReady("wild", time.Second, func(context.Context) error { panic("x") }))
	require.False(t, h.Ready(t.Context()).OK)
}

func TestBadChecksAreRefused(t *testing.T) {
	t.Parallel()
	h := NewHealth(quiet())
	ok := func(context.Context) error { return nil }
	require.NoError(t, h.AddReady("a", time.Second, ok))
	require.Error(t, h.AddReady("a", time.Second, ok))
	require.NoError(t, h.AddAlive("a", time.Second, ok))
	require.Error(t, h.AddReady("", time.Second, ok))
	require.Error(t, h.AddReady("b", 0, ok))
	require.Error(t, h.AddReady("c", time.Second, nil))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg, err := NewRegistry("v1.2.3", "abc")
	require.NoError(t, err)
	_, err = NewRegistry("v1.2.3", "abc")
	require.NoError(t, err, "registries must not share state")
	rec := httptest.NewRecorder()
	MetricsHandler(reg).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, rec.Code)
	for _, want := range []string{`slipway_build_info{commit="abc",version="v1.2.3"} 1`, "go_goroutines", "process_cpu_seconds_total"} {
		require.Contains(t, string(body), want)
	}
}
