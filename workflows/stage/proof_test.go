package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestAdopt_RiskNeedsProof: with accept_risk an operator overrides what the job knows to be safe.
func TestAdopt_RiskNeedsProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailStateDisagreement))
	b.out.found["wait"] = "Rescue mode"
	risk := contract.ActionRequest{Actor: "anna", Reason: "seen on the console", AcceptRisk: true, Proof: stagetest.Sign()}
	forged := risk
	forged.Proof = stagetest.Sign()
	forged.Proof.KeyID = "key_forged"
	broken := risk
	broken.Proof = &contract.ActionProof{}
	refused := b.at(time.Hour, lifecycle.ActionAdopt, forged)
	malformed := b.at(2*time.Hour, lifecycle.ActionAdopt, broken)
	unsigned := b.at(3*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "anna", Reason: "unsigned", AcceptRisk: true, IdempotencyKey: stagetest.Unsigned})
	parked := b.LastAt(4 * time.Hour)
	signed := b.at(5*time.Hour, lifecycle.ActionAdopt, risk)
	require.Equal(t, lifecycle.JobReconciled, b.Run().Status)
	for _, no := range []*stagetest.Answer{refused, unsigned} {
		require.ErrorContains(t, no.Err, "it is taken only through Slipway's API")
		require.ErrorContains(t, no.Err, "it is not signed by the API")
	}
	require.ErrorContains(t, malformed.Rejected, "the proof is malformed")
	require.True(t, parked.Status.Parked(), "nothing was adopted without a proof")
	require.NoError(t, signed.Err)
	require.Equal(t, lifecycle.EffectRefuse, b.Store.Audit()[0].Effect)
}

// TestHarmlessActionsNeedNoProof: they are a feature of the Temporal Web UI. The operator who froze
// a job is named as far as the name is proven.
func TestHarmlessActionsNeedNoProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.NamesUnproven = true
	b.out.fail["wait"] = times(2, stagetest.Failure(lifecycle.FailCommissioning))
	frozen := b.at(time.Hour, lifecycle.ActionMarkManual, freeze)
	noop := b.at(2*time.Hour, lifecycle.ActionMarkManual, contract.ActionRequest{Actor: "bert"})
	last := b.LastAt(3 * time.Hour)
	resumed := b.at(4*time.Hour, lifecycle.ActionResume, contract.ActionRequest{Actor: "bert"})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	for _, a := range []*stagetest.Answer{frozen, noop, resumed} {
		require.NoError(t, a.Err)
	}
	require.Equal(t, "frozen by engine (claimed: anna): smoke in row 4", last.Failure.Message)
}
