package stage_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// fills makes Temporal suggest continue-as-new from a moment on.
func (b *bundle) fills(at time.Duration) {
	b.after(at, func() { b.env.SetContinueAsNewSuggested(true) })
}

// continues runs the job until it continues as new, and gives its next run.
func (b *bundle) continues(t *testing.T) *bundle {
	t.Helper()
	b.env.ExecuteWorkflow(testJob, input)
	require.True(t, b.env.IsWorkflowCompleted())
	require.True(t, workflow.IsContinueAsNewError(b.env.GetWorkflowError()), "%v", b.env.GetWorkflowError())
	return b.next(t)
}

// next is another run on the same row and the same outside.
func (b *bundle) next(t *testing.T) *bundle {
	t.Helper()
	n := setupOn(t, b.store)
	for name, left := range b.out.fail {
		n.out.fail[name] = left
	}
	n.out.found = b.out.found
	return n
}

// restarts is the run that takes over when the workflow is terminated after d:
// it knows what was stored until then.
func (b *bundle) restarts(t *testing.T, d time.Duration) *bundle {
	t.Helper()
	lost := &memory{}
	b.env.RegisterDelayedCallback(func() { lost.snap, lost.last = b.store.snap, b.store.last }, d)
	b.env.ExecuteWorkflow(testJob, input)
	require.NotZero(t, lost.snap.Seq, "the job ended before it was lost")
	return setupOn(t, lost)
}

// asked has three actions answered: one carried out, one with nothing to do,
// one refused; the job is parked again afterwards, at the second hour.
func asked(b *bundle) (done, nothing, refused *answer) {
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	b.out.fail["last"] = times(1, failure(lifecycle.FailMAASRejected))
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
	for name, second := range map[string]func(*testing.T, *bundle) *bundle{
		"same run":        func(_ *testing.T, b *bundle) *bundle { return b },
		"continue as new": func(t *testing.T, b *bundle) *bundle { b.fills(90 * time.Minute); return b.continues(t) },
		"terminated": func(t *testing.T, b *bundle) *bundle {
			b.at(99*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			return b.restarts(t, 2*time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			done, nothing, refused := asked(b)
			b = second(t, b)
			audited := len(b.store.audit)
			var calls int
			b.env.RegisterDelayedCallback(func() {
				audited, calls = len(b.store.audit), len(b.out.made(""))
				b.out.found["last"] = "done" // now that adoption would be allowed
			}, 3*time.Hour)
			again := b.at(3*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "bert", IdempotencyKey: "k-done"})
			noop := b.at(3*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{IdempotencyKey: "k-nothing"})
			no := b.at(3*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{IdempotencyKey: "k-refused"})
			b.env.RegisterDelayedCallback(func() {
				require.Len(t, b.store.audit, audited, "a repetition is no second row")
				require.Len(t, b.out.made(""), calls, "and does nothing")
				require.True(t, b.store.last.Status.Parked())
			}, 4*time.Hour)
			b.at(5*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k-new"})
			require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
			require.NoError(t, again.err)
			require.Equal(t, done.result, again.result)
			require.Equal(t, lifecycle.EffectRetryStage, again.result.Effect)
			require.Equal(t, nothing.result, noop.result)
			require.ErrorContains(t, no.err, "(wait, Broken) is not a pair that may be adopted")
			require.Equal(t, refused.err.Error(), no.err.Error())
			first, _ := contract.RefusalOf(refused.err)
			repeated, ok := contract.RefusalOf(no.err)
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
	b.out.fail["two"] = times(1, failure(lifecycle.FailMAASUnavailable))
	b.out.block["wait"] = true
	one := b.at(waiting, lifecycle.ActionCancel, contract.ActionRequest{IdempotencyKey: "k"})
	two := b.at(waiting, lifecycle.ActionCancel, contract.ActionRequest{IdempotencyKey: "k"})
	require.Equal(t, lifecycle.JobCancelled, b.run(t).Status)
	require.NoError(t, two.err)
	require.Equal(t, one.result, two.result)
	require.Len(t, b.store.audit, 1)
}

// TestTheMemoryIsBounded: the newest answers are kept, and no more than that.
func TestTheMemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	for i := range 100 {
		b.at(time.Hour+time.Duration(i)*time.Minute, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: fmt.Sprintf("k%d", i)})
	}
	b.at(10*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: "k99"})
	b.at(10*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "anna", IdempotencyKey: "k0"})
	b.at(11*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.run(t)
	entries, _ := b.store.auditedBy("anna")
	require.Len(t, entries, 101, "k99 was known, k0 forgotten")
	var cp struct{ Answers []struct{ Key string } }
	require.NoError(t, json.Unmarshal(b.store.last.Checkpoint, &cp))
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
	b.after(waiting, func() { before = b.store.last })
	no := b.at(waiting, lifecycle.ActionRerun, contract.ActionRequest{Actor: "anna"})
	n := b.continues(t)
	require.ErrorContains(t, no.err, "rerun is refused while the job is running")
	require.Equal(t, "wait", n.store.last.Stage)
	require.Equal(t, lifecycle.JobRunning, n.store.last.Status)
	n.out.block["wait"] = true
	var after contract.Projection
	n.after(waiting, func() { after = n.store.last; n.out.release() })
	require.Equal(t, lifecycle.JobCompleted, n.run(t).Status)
	require.Equal(t, before.StageDeadline, after.StageDeadline)
	require.Equal(t, []string{"look:wait", "wait", "last"}, n.out.calls)
	entries, _ := n.store.auditedBy("anna")
	require.Len(t, entries, 1)
}

// TestAFullHistoryEndsARunBetweenStages.
func TestAFullHistoryEndsARunBetweenStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["two"] = times(2, failure(lifecycle.FailMAASUnavailable))
	b.fills(time.Second)
	n := b.continues(t)
	require.Equal(t, contract.StageSucceeded, n.store.last.Stages[1].State)
	require.Equal(t, lifecycle.JobCompleted, n.run(t).Status)
	require.Equal(t, []string{"look:wait", "wait", "last"}, n.out.calls)
}

// TestASignalThatCannotBeReadLeavesARow: nobody else would hear of it.
func TestASignalThatCannotBeReadLeavesARow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	for i, ask := range []any{nil, "cancel please", contract.ActionRequest{}, contract.ActionRequest{Actor: "a\x00b", Reason: string(long)}} {
		b.env.RegisterDelayedCallback(func() { b.env.SignalWorkflow("cancel", ask) }, time.Hour+time.Duration(i)*time.Minute)
	}
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.Len(t, b.store.audit, 5)
	for _, e := range b.store.audit[:3] {
		require.Equal(t, lifecycle.EffectRefuse, e.Effect)
		require.Contains(t, e.Refused, "actor is missing")
	}
	require.Equal(t, "a?b", b.store.audit[3].Actor)
	require.Len(t, b.store.audit[3].Reason, 2000)
	require.Contains(t, b.store.audit[3].Refused, "2000")
}
