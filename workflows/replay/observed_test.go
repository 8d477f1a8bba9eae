package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/agentjob"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/bmcrotation"
	"github.com/slipway-cloud/slipway/workflows/decommission"
	"github.com/slipway-cloud/slipway/workflows/onboarding"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

func requireListed[S any](t *testing.T, stages []stage.Stage[S]) {
	t.Helper()
	require.NotEmpty(t, stages)
	for _, st := range stages {
		require.Equal(t, st.Observe != nil, lifecycle.UnobservedStage(st.Name) == "", st.Name)
	}
}

// TestUnobservedStage_OfEveryJob checks that what the API lists as adoptable is what the jobs can
// observe.
func TestUnobservedStage_OfEveryJob(t *testing.T) {
	t.Parallel()
	in := contract.JobInput{JobID: "job_1"}
	requireListed(t, onboarding.Job(in).Stages)
	requireListed(t, decommission.Job(contract.JobInput{}).Stages)
	requireListed(t, bmcrotation.Job(in).Stages)
	requireListed(t, agentjob.ReissueJob(in).Stages)
	requireListed(t, agentjob.UpdateJob(in).Stages)
	requireListed(t, allocation.ProvisionJob(in).Stages)
}
