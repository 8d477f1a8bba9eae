package stage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// inStatus brings a job into a state in which it can be asked, at 30 minutes.
var inStatus = map[lifecycle.JobStatus]func(b *bundle){
	lifecycle.JobRunning:         func(b *bundle) { b.out.fail["two"] = times(500, failure(lifecycle.FailMAASUnavailable)) },
	lifecycle.JobFailedRetryable: func(b *bundle) { b.out.fail["wait"] = times(2, failure(lifecycle.FailCommissioning)) },
	lifecycle.JobFailedManual:    func(b *bundle) { b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected)) },
	lifecycle.JobCompensating: func(b *bundle) {
		b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
		b.out.fail["undo-one"] = times(3, failure(lifecycle.FailMAASUnavailable))
		b.at(30*time.Minute-time.Second, lifecycle.ActionCancel, contract.ActionRequest{})
	},
}

// TestEveryCellOfTheMatrix asks each action in each state in which a workflow
// runs, as an update and as a signal. Running is caught between two attempts.
func TestEveryCellOfTheMatrix(t *testing.T) {
	t.Parallel()
	for status, prepare := range inStatus {
		for _, a := range lifecycle.Actions {
			for _, via := range []string{"update", "signal"} {
				t.Run(fmt.Sprintf("%s/%s/%s", status, a, via), func(t *testing.T) {
					t.Parallel()
					cell(t, status, a, via, prepare)
				})
			}
		}
	}
}

func cell(t *testing.T, status lifecycle.JobStatus, a lifecycle.Action, via string, prepare func(*bundle)) {
	b := setup(t)
	prepare(b)
	when := 30 * time.Minute
	if status == lifecycle.JobRunning {
		when = 10 * time.Second // between two attempts of stage two
	}
	var found lifecycle.JobStatus
	b.env.RegisterDelayedCallback(func() { found = b.store.last.Status }, when)
	ask := contract.ActionRequest{Actor: "ops", Reason: "matrix"}
	got := &answer{}
	if via == "update" {
		got = b.at(when, a, ask)
	} else {
		b.env.RegisterDelayedCallback(func() { b.env.SignalWorkflow(string(a), ask) }, when)
	}
	b.at(6*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"})
	b.env.ExecuteWorkflow(testJob, input)
	require.True(t, b.env.IsWorkflowCompleted(), "ended in %s", b.store.last.Status)
	require.Equal(t, status, found)
	want := lifecycle.Decide(a, status, lifecycle.JobFacts{})
	entry := firstBy(b.store.audit, "ops", "matrix")
	switch {
	case via == "update" && !want.Allowed:
		require.ErrorContains(t, got.rejected, "is refused while the job is "+string(status))
	case !want.Allowed:
		require.NotNil(t, entry, "a refused signal leaves an audit row")
		require.NotEmpty(t, entry.Refused)
	case a == lifecycle.ActionAdopt: // nothing was found that may be adopted
		require.NotNil(t, entry)
		require.Contains(t, entry.Refused, "(wait, ) is not a pair that may be adopted")
	default:
		require.NotNil(t, entry)
		require.Empty(t, entry.Refused)
		require.Equal(t, want.Effect, entry.Effect)
		if via == "update" {
			require.NoError(t, got.err)
			require.Equal(t, want.Effect, got.result.Effect)
		}
	}
}

func firstBy(entries []contract.ActionEntry, actor, reason string) *contract.ActionEntry {
	for _, e := range entries {
		if e.Actor == actor && e.Reason == reason {
			return &e
		}
	}
	return nil
}

func TestFreezeHoldsUntilReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(2, failure(lifecycle.FailCommissioning))
	b.at(time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Reason: "smoke"})
	var frozen contract.Projection
	b.env.RegisterDelayedCallback(func() { frozen = b.store.last }, 100*time.Hour)
	b.at(101*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.True(t, frozen.Frozen)
	require.Equal(t, lifecycle.JobFailedManual, frozen.Status)
	require.Contains(t, frozen.Failure.Message, "smoke")
	require.False(t, b.store.last.Frozen)
}

func TestAdoptListedPairEndsReconciled(t *testing.T) {
	t.Parallel()
	for found, ask := range map[string]contract.ActionRequest{
		"done": {}, "Deploying": {}, "Rescue mode": {AcceptRisk: true, Reason: "seen on the console"},
	} {
		t.Run(found, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["wait"] = times(1, failure(lifecycle.FailStateDisagreement))
			b.out.found["wait"] = found
			ans := b.at(time.Hour, lifecycle.ActionAdopt, ask)
			require.Equal(t, lifecycle.JobReconciled, b.run(t).Status)
			require.NoError(t, ans.err)
			require.Equal(t, contract.StageAdopted, b.store.last.Stages[2].State)
		})
	}
}

func TestBadAsksAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	nobody := &answer{}
	b.env.RegisterDelayedCallback(func() {
		b.env.UpdateWorkflow(string(lifecycle.ActionResume), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { nobody.rejected = err }, OnComplete: func(any, error) {},
		}, contract.ActionRequest{})
	}, time.Hour)
	risky := b.at(time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{AcceptRisk: true})
	b.at(2*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.run(t)
	require.ErrorContains(t, nobody.rejected, "actor is missing")
	require.ErrorContains(t, risky.rejected, "accept_risk needs a reason")
}

func TestTwoOperatorsAtOnceDoOneThing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	one := b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "anna"})
	two := b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "bert"})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.NoError(t, one.err)
	require.NoError(t, two.err)
	require.Len(t, b.out.made("wait"), 2)
}

func TestSameKeySameAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	b.out.fail["last"] = times(1, failure(lifecycle.FailMAASRejected))
	first := b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k1"})
	again := b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k1"})
	b.at(3*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{IdempotencyKey: "k2"})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.Equal(t, first.result, again.result)
	require.Len(t, b.out.made("last"), 2, "the repeated key retried nothing")
}
