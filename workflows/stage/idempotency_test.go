package stage_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// fills makes Temporal suggest continue-as-new from a moment on.
func (b *fixture) fills(at time.Duration) {
	b.after(at, func() { b.Env.SetContinueAsNewSuggested(true) })
}

// continues runs the job until it continues as new, and gives its next run on the same row and the
// same outside.
func (b *fixture) continues(t *testing.T) *fixture {
	t.Helper()
	err := b.Execute()
	require.True(t, workflow.IsContinueAsNewError(err), "%v", err)
	n := &fixture{Harness: b.Harness, callsAt: b.callsAt}
	n.newOutside()
	maps.Copy(n.out.fail, b.out.fail)
	n.out.found = b.out.found
	return n
}

// restarts is the run that takes over when the workflow is terminated after d: it knows what was
// stored until then.
func (b *fixture) restarts(t *testing.T, d time.Duration) *fixture {
	t.Helper()
	b.RunUntil(d, func() []any { return nil })
	n := &fixture{Harness: b.Harness}
	n.newOutside()
	return n
}

// asked has three actions answered: one carried out, one with nothing to do,
// one refused; the job is parked again afterwards, at the second hour.
func asked(b *fixture) (done, nothing, refused *stagetest.Answer) {
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.found["wait"] = "Broken"
	nothing = b.at(50*time.Minute, lifecycle.ActionMarkManual, contract.ActionRequest{IdempotencyKey: "k-nothing"})
	refused = b.at(55*time.Minute, lifecycle.ActionAdopt, contract.ActionRequest{IdempotencyKey: "k-refused"})
	done = b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k-done"})
	return done, nothing, refused
}

// TestAnswersOutliveARun: the same key gets the same answer, and does and writes
// nothing, from the same run, from one that continued as new, and from one that
// was started again after the workflow was lost.
func TestAnswersOutliveARun(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*testing.T, *fixture) *fixture{
		"same run":        func(_ *testing.T, b *fixture) *fixture { return b },
		"continue as new": func(t *testing.T, b *fixture) *fixture { b.fills(90 * time.Minute); return b.continues(t) },
		"terminated": func(t *testing.T, b *fixture) *fixture {
			b.at(99*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			return b.restarts(t, 2*time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			done, nothing, refused := asked(b)
			b = second(t, b)
			audited := len(b.Store.Audit())
			var calls int
			b.Env.RegisterDelayedCallback(func() {
				audited, calls = len(b.Store.Audit()), len(b.out.made(""))
				b.out.found["last"] = "done" // now that adoption would be allowed
			}, 3*time.Hour)
			again := b.at(3*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "bert", IdempotencyKey: "k-done"})
			noop := b.at(3*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{IdempotencyKey: "k-nothing"})
			no := b.at(3*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{IdempotencyKey: "k-refused"})
			b.Env.RegisterDelayedCallback(func() {
				require.Len(t, b.Store.Audit(), audited, "a repetition is no second row")
				require.Len(t, b.out.made(""), calls, "and does nothing")
				require.True(t, b.Store.Last().Status.Parked())
			}, 4*time.Hour)
			b.at(5*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k-new"})
			require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
			require.NoError(t, again.Err)
			require.Equal(t, done.Result, again.Result)
			require.Equal(t, lifecycle.EffectRetryStage, again.Result.Effect)
			require.Equal(t, nothing.Result, noop.Result)
			require.ErrorContains(t, no.Err, "(wait, Broken) is not a pair that may be adopted")
			require.Equal(t, refused.Err.Error(), no.Err.Error())
			first, _ := contract.RefusalOf(refused.Err)
			repeated, ok := contract.RefusalOf(no.Err)
			require.True(t, ok)
			require.Equal(t, first, repeated)
		})
	}
}

// TestAKeyThatIsOnItsWayWaitsForItsAnswer: the repetition arrives before the
// first is answered.
func TestAKeyThatIsOnItsWayWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["two"] = times(1, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.out.block["wait"] = true
	one := b.at(waiting, lifecycle.ActionCancel, contract.ActionRequest{IdempotencyKey: "k"})
	two := b.at(waiting, lifecycle.ActionCancel, contract.ActionRequest{IdempotencyKey: "k"})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.NoError(t, two.Err)
	require.Equal(t, one.Result, two.Result)
	require.Len(t, b.Store.Audit(), 1)
}

// TestKeptAnswers_AreBounded: the newest answers are kept, and no more than that.
func TestKeptAnswers_AreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	for i := range 100 {
		b.at(time.Hour+time.Duration(i)*time.Minute, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: fmt.Sprintf("k%d", i)})
	}
	b.at(10*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: "k99"})
	b.at(10*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: "k0"})
	b.at(11*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.Run()
	entries, _ := b.Store.AuditOf("anna")
	require.Len(t, entries, 101, "k99 was known, k0 forgotten")
	var cp struct{ Answers []struct{ Key string } }
	require.NoError(t, json.Unmarshal(b.Store.Last().Checkpoint, &cp))
	require.Len(t, cp.Answers, 64)
	require.Equal(t, "mark_manual_intervention_required/k0", cp.Answers[63].Key)
}

// TestAFullHistoryEndsARunThatWaits: refusals come while a stage waits for
// hours. At the next safe point the job goes on in a new run, with the same
// deadline, and everyone has had an answer.
func TestAFullHistoryEndsARunThatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.block["wait"] = true
	b.fills(waiting)
	var before contract.Projection
	b.after(waiting, func() { before = b.Store.Last() })
	no := b.at(waiting, lifecycle.ActionRerun, contract.ActionRequest{Actor: "anna"})
	n := b.continues(t)
	require.ErrorContains(t, no.Err, "rerun is refused while the job is running")
	require.Equal(t, "wait", n.Store.Last().Stage)
	require.Equal(t, lifecycle.JobRunning, n.Store.Last().Status)
	n.out.block["wait"] = true
	var after contract.Projection
	n.after(waiting, func() { after = n.Store.Last(); n.out.release() })
	require.Equal(t, lifecycle.JobCompleted, n.Run().Status)
	require.Equal(t, before.StageDeadline, after.StageDeadline)
	require.Equal(t, []string{"look:wait", "wait", "last"}, n.out.calls)
	entries, _ := n.Store.AuditOf("anna")
	require.Len(t, entries, 1)
}

// TestAFullHistoryEndsARunBetweenStages.
func TestAFullHistoryEndsARunBetweenStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["two"] = times(2, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.fills(time.Second)
	n := b.continues(t)
	require.Equal(t, lifecycle.StageSucceeded, n.Store.Last().Stages[1].State)
	require.Equal(t, lifecycle.JobCompleted, n.Run().Status)
	require.Equal(t, []string{"look:wait", "wait", "last"}, n.out.calls)
}

// TestASignalThatCannotBeReadLeavesARow: nobody else would hear of it.
func TestASignalThatCannotBeReadLeavesARow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	for i, ask := range []any{nil, "cancel please", contract.ActionRequest{}, contract.ActionRequest{Actor: "a\x00b", Reason: string(long)}} {
		b.Env.RegisterDelayedCallback(func() { b.Env.SignalWorkflow("cancel", ask) }, time.Hour+time.Duration(i)*time.Minute)
	}
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Len(t, b.Store.Audit(), 5)
	for _, e := range b.Store.Audit()[:3] {
		require.Equal(t, lifecycle.EffectRefuse, e.Effect)
		require.Contains(t, e.Refused, "actor is missing")
	}
	require.Equal(t, "a?b", b.Store.Audit()[3].Actor)
	require.Len(t, b.Store.Audit()[3].Reason, 2000)
	require.Contains(t, b.Store.Audit()[3].Refused, "2000")
}
