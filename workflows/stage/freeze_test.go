package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// still checks from one moment to another that a frozen job does nothing at all:
// no call outside, no step, no timer that would wake it.
func still(t *testing.T, b *fixture, from, to time.Duration) {
	t.Helper()
	var calls, steps int
	b.Env.RegisterDelayedCallback(func() {
		require.True(t, b.Store.Last().Frozen)
		require.Equal(t, lifecycle.JobFailedManual, b.Store.Last().Status)
		require.Equal(t, lifecycle.FailFrozen, b.Store.Last().Failure.Class)
		calls, steps = len(b.out.made("")), len(b.Store.Steps())
	}, from)
	b.Env.RegisterDelayedCallback(func() {
		require.Len(t, b.out.made(""), calls)
		require.Len(t, b.Store.Steps(), steps)
	}, to)
}

var freeze = contract.ActionRequest{Actor: "anna", Reason: "smoke in row 4"}

// TestFreezeTakesEffectAtTheNextSafePoint, wherever the job is.
func TestFreezeTakesEffectAtTheNextSafePoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*fixture)
		when    time.Duration
		stage   string
		calls   []string // until it is released
		after   []string
	}{
		"before it begins": {func(*fixture) {}, 0, "one", nil, []string{"look:one", "one", "look:two", "two", "look:wait", "wait", "last"}},
		"a plain stage runs to its end": {func(b *fixture) {
			b.out.block["two"] = true
			b.after(waiting-100*time.Millisecond, b.out.release)
		}, waiting, "wait", []string{"one", "two"}, []string{"look:wait", "wait", "last"}},
		"between two attempts": {func(b *fixture) {
			b.out.fail["two"] = times(3, stagetest.Failure(lifecycle.FailMAASUnavailable))
		}, 3 * time.Second, "two", []string{"one", "two", "two"}, nil},
		"a stage that waits is interrupted": {func(b *fixture) {
			b.out.block["wait"] = true
			b.after(waiting-100*time.Millisecond, b.out.release)
		}, waiting, "wait", []string{"one", "two", "wait"}, []string{"look:wait", "wait", "last"}},
		"parked": {func(b *fixture) {
			b.out.fail["wait"] = times(2, stagetest.Failure(lifecycle.FailCommissioning))
		}, 30 * time.Minute, "wait", []string{"one", "two", "wait", "wait"}, []string{"look:wait", "wait", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			c.prepare(b)
			frozen := b.at(c.when, lifecycle.ActionMarkManual, freeze)
			still(t, b, time.Hour, 1000*time.Hour)
			var at contract.Projection
			var calls []string
			b.Env.RegisterDelayedCallback(func() { at, calls = b.Store.Last(), b.out.made("") }, 1000*time.Hour)
			b.at(1001*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
			require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
			require.NoError(t, frozen.Err)
			require.Equal(t, lifecycle.EffectFreeze, frozen.Result.Effect)
			require.Equal(t, c.stage, at.Stage)
			require.Equal(t, "frozen by anna: smoke in row 4", at.Failure.Message)
			require.Nil(t, at.StageDeadline, "no deadline runs out while nobody works")
			require.Equal(t, c.calls, calls)
			if c.after != nil {
				require.Equal(t, c.after, b.out.calls[len(calls):])
			}
			require.False(t, b.Store.Last().Frozen)
		})
	}
}

// TestOnlyAPersonReleasesAFrozenJob: a new run of any kind leaves it as it is;
// what the matrix allows in its state releases it.
func TestOnlyAPersonReleasesAFrozenJob(t *testing.T) {
	t.Parallel()
	runs := map[string]func(*testing.T, *fixture) *fixture{
		"same run":        func(_ *testing.T, b *fixture) *fixture { return b },
		"continue as new": func(t *testing.T, b *fixture) *fixture { b.fills(2 * time.Hour); return b.continues(t) },
		"terminated": func(t *testing.T, b *fixture) *fixture {
			b.at(99*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			return b.restarts(t, 2*time.Hour)
		},
	}
	for name, second := range runs {
		for a, ends := range map[lifecycle.Action]lifecycle.JobStatus{
			lifecycle.ActionResume: lifecycle.JobCompleted, lifecycle.ActionRetryStage: lifecycle.JobCompleted, lifecycle.ActionRerun: lifecycle.JobCompleted,
			lifecycle.ActionRestartClean: lifecycle.JobCompleted, lifecycle.ActionCancel: lifecycle.JobCancelled, lifecycle.ActionAdopt: lifecycle.JobReconciled,
		} {
			t.Run(name+"/"+string(a), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.out.fail["wait"] = times(2, stagetest.Failure(lifecycle.FailCommissioning))
				b.at(time.Hour, lifecycle.ActionMarkManual, freeze)
				b = second(t, b)
				b.out.found["wait"] = "Deploying"
				still(t, b, 3*time.Hour, 500*time.Hour)
				noop := b.at(501*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{})
				still(t, b, 502*time.Hour, 1000*time.Hour)
				b.at(1001*time.Hour, a, contract.ActionRequest{Actor: "bert"})
				require.Equal(t, ends, b.Run().Status)
				require.Equal(t, lifecycle.EffectNoop, noop.Result.Effect)
				_, at := b.Store.AuditOf("bert")
				require.False(t, b.Store.Steps()[at[0]].Frozen)
				require.False(t, b.Store.Last().Frozen)
			})
		}
	}
}

// TestAnActionThatComesWhileAStageIsBeingStarted is done first: the stage, which
// may wait for hours, makes no attempt.
func TestAnActionThatComesWhileAStageIsBeingStarted(t *testing.T) {
	t.Parallel()
	for _, a := range []lifecycle.Action{lifecycle.ActionMarkManual, lifecycle.ActionCancel} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.block["wait"] = true // for ever
			sent := false
			b.Store.Refuse = func(p contract.Projection) error {
				if p.Stage == "wait" && !sent {
					sent = true
					b.Env.SignalWorkflow(string(a), freeze)
				}
				return nil
			}
			var calls []string
			b.Env.RegisterDelayedCallback(func() { calls = b.out.made("") }, time.Hour)
			b.at(2*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
			require.NotContains(t, append(calls, b.out.calls...), "wait")
			require.Zero(t, b.Store.Last().Stages[2].Attempts)
		})
	}
}
