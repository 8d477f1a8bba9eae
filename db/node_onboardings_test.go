package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestNodeOnboardings_ShowTheJob: the view has the state of an onboarding in its own words, apart
// from the state of the node, and shows no other kind of job.
func TestNodeOnboardings_ShowTheJob(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for _, status := range []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.JobFailedRetryable, lifecycle.JobFailedManual, lifecycle.JobCompleted} {
		job := dbtest.Job(t, s, dbtest.JobStatus(status))
		var shown, node string
		const read = "SELECT o.status, n.status FROM node_onboardings o JOIN nodes n ON n.id = o.node_id WHERE o.id = $1"
		require.NoError(t, s.DBTX().QueryRow(t.Context(), read, job.ID).Scan(&shown, &node))
		require.Equal(t, string(status), shown)
		require.Equal(t, string(lifecycle.NodeBootstrapIssued), node)
	}
	other := dbtest.Job(t, s, dbtest.Active(), dbtest.Kind("bmc_rotation"))
	var n int
	require.NoError(t, s.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM node_onboardings WHERE id = $1", other.ID).Scan(&n))
	require.Zero(t, n)
}
