package sweep_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	sweepact "github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/workflows/sweep"
)

// TestOnePartThatFailsKeepsNoOtherFromBeingDone: and the note of the pass says
// what was not looked at.
func TestOnePartThatFailsKeepsNoOtherFromBeingDone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		starts, heartbeats, installs, jobs error
		report                             sweepact.JobsReport
		told                               []string // "" in the note when nothing
	}{
		"all is well":            {},
		"the database is away":   {starts: errors.New("no database"), jobs: errors.New("no database either"), told: []string{"starts were not", "jobs were not"}},
		"Temporal's list fails":  {jobs: errors.New("no list"), told: []string{"no list"}},
		"one job was not seen":   {report: sweepact.JobsReport{Problems: []string{"job_x: no answer"}}, told: []string{"job_x: no answer"}},
		"heartbeats went wrong":  {heartbeats: errors.New("no heartbeats"), told: []string{"no heartbeats"}},
		"installs went wrong":    {installs: errors.New("no installs"), told: []string{"no installs"}},
		"only starts went wrong": {starts: errors.New("locked"), told: []string{"locked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			acts := &sweepact.Activities{}
			env.RegisterActivity(acts)
			env.OnActivity(acts.SweepStarts, mock.Anything).Return(sweepact.StartsReport{}, tc.starts).Once()
			env.OnActivity(acts.SweepHeartbeats, mock.Anything).Return(sweepact.HeartbeatsReport{}, tc.heartbeats).Once()
			env.OnActivity(acts.SweepInstalls, mock.Anything).Return(sweepact.InstallsReport{}, tc.installs).Once()
			env.OnActivity(acts.SweepJobs, mock.Anything).Return(tc.report, tc.jobs).Once()
			var noted []sweepact.Outcome
			env.OnActivity(acts.SweepDone, mock.Anything, mock.Anything).Run(func(a mock.Arguments) {
				noted = append(noted, a.Get(1).(sweepact.Outcome)) //nolint:forcetypeassert // its only argument
			}).Return(nil).Once()
			env.ExecuteWorkflow(sweep.Sweep)
			require.True(t, env.IsWorkflowCompleted())
			require.NoError(t, env.GetWorkflowError())
			require.Len(t, noted, 1)
			for _, part := range tc.told {
				require.Contains(t, noted[0].Problem, part)
			}
			require.Equal(t, len(tc.told) == 0, noted[0].Problem == "")
			env.AssertExpectations(t)
		})
	}
}
