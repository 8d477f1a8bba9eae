package temporalx_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

// forward serves at address what answers at target.
func forward(t *testing.T, address, target string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", target)
			if err != nil {
				_ = in.Close()
				return
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}

// TestStartWorker_WaitsForTemporal starts a worker while Temporal is unavailable.
func TestStartWorker_WaitsForTemporal(t *testing.T) {
	t.Parallel()
	srv, err := engine()
	require.NoError(t, err)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	c, err := temporalx.Dial(temporalx.ClientOptions{
		Address: address, Namespace: "slipway", Log: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	failures := 0
	w, err := temporalx.StartWorker(t.Context(), func() worker.Worker {
		w := worker.New(c, db.NewID("q"), worker.Options{})
		w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "Nothing"})
		return w
	}, func(error) {
		if failures++; failures == 1 {
			forward(t, address, srv.Address())
		}
	})
	require.NoError(t, err)
	w.Stop()
	require.Positive(t, failures)
}

func TestRegisterNamespace_LetsAWorkerStart(t *testing.T) {
	t.Parallel()
	srv, err := engine()
	require.NoError(t, err)
	name := "passes-" + strings.ToLower(db.NewID("n"))
	c, err := temporalx.Dial(temporalx.ClientOptions{
		Address: srv.Address(), Namespace: name, Log: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	missing := 0
	w, err := temporalx.StartWorker(t.Context(), func() worker.Worker {
		w := worker.New(c, "q", worker.Options{})
		w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "Nothing"})
		return w
	}, func(err error) {
		require.True(t, temporalx.IsNamespaceMissing(err), "%v", err)
		missing++
		require.NoError(t, temporalx.RegisterNamespace(t.Context(), c, name))
		require.NoError(t, temporalx.RegisterNamespace(t.Context(), c, name), "it is there: no error")
	})
	require.NoError(t, err)
	w.Stop()
	require.Positive(t, missing)
}

// idle is a worker that starts and does nothing.
type idle struct{ worker.Worker }

func (idle) Start() error { return nil }
func (idle) Stop()        {}

// TestKeepWorker_StartsAgain: a worker that the server turns away ends what is served with it, and
// another one is started.
func TestKeepWorker_StartsAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ends []func(error)
	var told []string
	served := 0
	temporalx.KeepWorker(ctx, time.Millisecond, func(ended func(error)) worker.Worker {
		ends = append(ends, ended)
		return idle{}
	}, func(err error) { told = append(told, err.Error()) }, func(during context.Context) {
		if served++; served == 3 {
			cancel()
		} else {
			ends[served-1](errors.New("the namespace was deleted"))
		}
		<-during.Done()
	})
	require.Equal(t, 3, served)
	require.Len(t, told, 2)
	require.Contains(t, told[1], "the namespace was deleted")
}
