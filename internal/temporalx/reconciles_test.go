package temporalx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func TestEachSiteHasItsOwnSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := temporalx.Reconciles{Client: w.Client, TaskQueue: w.TaskQueue}
	var mu sync.Mutex
	passes := map[string]int{}
	count := func(site string) int {
		mu.Lock()
		defer mu.Unlock()
		return passes[site]
	}
	wk := worker.New(w.Client, w.TaskQueue, worker.Options{})
	wk.RegisterWorkflowWithOptions(func(_ workflow.Context, in contract.ReconcileInput) error {
		mu.Lock()
		defer mu.Unlock()
		passes[in.SiteID]++
		return nil
	}, workflow.RegisterOptions{Name: contract.ReconcileWorkflow})
	require.NoError(t, wk.Start())
	t.Cleanup(wk.Stop)
	for _, site := range []string{"site_a", "site_b"} {
		t.Cleanup(func() { _ = r.Remove(context.WithoutCancel(t.Context()), site) })
		require.NoError(t, r.Ensure(t.Context(), site, time.Hour))
		require.NoError(t, r.Ensure(t.Context(), site, 2*time.Hour), "repeatable")
		require.Eventually(t, func() bool { return count(site) == 1 }, runenv.Patience(30*time.Second), 50*time.Millisecond, "the first pass is made at once")
	}
	require.NoError(t, r.Now(t.Context(), "site_a"))
	require.Eventually(t, func() bool { return count("site_a") == 2 }, runenv.Patience(30*time.Second), 50*time.Millisecond)
	require.Equal(t, 1, count("site_b"))
	require.NoError(t, r.Remove(t.Context(), "site_a"))
	require.NoError(t, r.Remove(t.Context(), "site_a"), "it is gone: no error")
	require.Error(t, r.Now(t.Context(), "site_a"))
}
