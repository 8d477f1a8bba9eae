package allocation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestProvision_LooksWhenANodeBecomesFree: a request that would look again in a minute looks at
// once when it is told that a node became free, and goes on waiting when another one was faster.
func TestProvision_LooksWhenANodeBecomesFree(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	var looked []time.Time
	f.Answer("ClaimNode", func() (any, error) {
		looked = append(looked, f.Env.Now())
		if len(looked) == 3 {
			return f.facts, nil
		}
		return nil, temporal.NewApplicationErrorWithOptions("no node of the SKU is free yet", string(lifecycle.FailCapacity),
			temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
	})
	began := f.Env.Now()
	for _, at := range []time.Duration{10 * time.Second, 20 * time.Second} {
		f.After(at, func() {
			f.Env.SignalWorkflow(contract.SignalNodeFree, nil)
			f.Env.SignalWorkflow(contract.SignalNodeFree, nil)
		})
	}
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Len(t, looked, 3, "two signals at once are one look")
	require.GreaterOrEqual(t, looked[1].Sub(began), 9*time.Second, "not before it was told")
	require.Less(t, looked[2].Sub(began), time.Minute)
}

// TestProvision_WakesFillNoHistory: a request that is woken again and again continues in a new run
// before Temporal ends it for the length of its history; the new run waits on within the same
// deadline.
func TestProvision_WakesFillNoHistory(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	f.Answer("ClaimNode", func() (any, error) {
		return nil, temporal.NewApplicationErrorWithOptions("no node of the SKU is free yet", string(lifecycle.FailCapacity),
			temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
	})
	f.After(10*time.Second, func() { f.Env.SignalWorkflow(contract.SignalNodeFree, nil) })
	f.After(20*time.Second, func() {
		f.Env.SetContinueAsNewSuggested(true)
		f.Env.SignalWorkflow(contract.SignalNodeFree, nil)
	})
	err := f.Execute()
	require.True(t, workflow.IsContinueAsNewError(err), "%v", err)
	last := f.Store.Last()
	require.Equal(t, lifecycle.JobRunning, last.Status)
	require.Equal(t, lifecycle.StageClaimNode, last.Stage)
	require.Nil(t, last.Failure)
}
