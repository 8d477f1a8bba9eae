package temporalx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestEachSiteHasItsOwnSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	of := func(site string, every time.Duration) temporalx.Schedule {
		return temporalx.Schedule{
			Client: w.Client, TaskQueue: w.TaskQueue, Pass: contract.ReconcilePass, Every: every, Of: site, Input: contract.ReconcileInput{SiteID: site},
		}
	}
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
	}, workflow.RegisterOptions{Name: contract.ReconcilePass.Workflow})
	require.NoError(t, wk.Start())
	t.Cleanup(wk.Stop)
	for _, site := range []string{"site_a", "site_b"} {
		t.Cleanup(func() { _ = of(site, 0).Remove(context.WithoutCancel(t.Context())) })
		require.NoError(t, of(site, time.Hour).Ensure(t.Context()))
		require.NoError(t, of(site, 2*time.Hour).Ensure(t.Context()), "repeatable")
		require.Eventually(t, func() bool { return count(site) == 1 }, runenv.Patience(30*time.Second), 50*time.Millisecond, "the first pass is made at once")
	}
	require.NoError(t, of("site_a", 0).Trigger(t.Context()))
	require.Eventually(t, func() bool { return count("site_a") == 2 }, runenv.Patience(30*time.Second), 50*time.Millisecond)
	require.Equal(t, 1, count("site_b"))
	require.NoError(t, of("site_a", 0).Remove(t.Context()))
	require.NoError(t, of("site_a", 0).Remove(t.Context()), "it is gone: no error")
	require.Error(t, of("site_a", 0).Trigger(t.Context()))
}
