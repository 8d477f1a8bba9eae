package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func TestAdoptListedPairEndsReconciled(t *testing.T) {
	t.Parallel()
	for found, ask := range map[string]contract.ActionRequest{
		"done": {}, "Deploying": {}, "Rescue mode": {AcceptRisk: true, Reason: "seen on the console"},
	} {
		t.Run(found, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailStateDisagreement))
			b.out.found["wait"] = found
			ans := b.at(time.Hour, lifecycle.ActionAdopt, ask)
			require.Equal(t, lifecycle.JobReconciled, b.Run().Status)
			require.NoError(t, ans.Err)
			require.Equal(t, lifecycle.StageAdopted, b.Store.Last().Stages[2].State)
		})
	}
}

func TestBadAsksAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	nobody := &stagetest.Answer{}
	b.Env.RegisterDelayedCallback(func() {
		b.Env.UpdateWorkflow(string(lifecycle.ActionResume), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { nobody.Rejected = err }, OnComplete: func(any, error) {},
		}, contract.ActionRequest{})
	}, time.Hour)
	risky := b.at(time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{AcceptRisk: true})
	b.at(2*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.Run()
	require.ErrorContains(t, nobody.Rejected, "actor is missing")
	require.ErrorContains(t, risky.Rejected, "accept_risk needs a reason")
}
