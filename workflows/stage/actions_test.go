package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

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
