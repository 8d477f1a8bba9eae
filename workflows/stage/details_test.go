package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// A parked job names the page of its failure class where the Temporal Web UI shows it.
func TestDetails_NameTheRunbook(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(2, stagetest.Failure(lifecycle.FailCommissioning))
	details := func() string {
		answer, err := b.Env.QueryWorkflow("__temporal_workflow_metadata")
		require.NoError(t, err)
		var meta sdkpb.WorkflowMetadata
		require.NoError(t, answer.Get(&meta))
		return meta.GetCurrentDetails()
	}
	var parked string
	b.Env.RegisterDelayedCallback(func() { parked = details() }, time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Contains(t, parked, "Runbook: https://slipway.example/docs/runbooks/commissioning_failed")
	require.NotContains(t, details(), "Runbook:")
	require.Contains(t, parked, " gpu-7 ", "the host that the job is about")
}
