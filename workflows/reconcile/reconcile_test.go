package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/workflows/reconcile"
)

var begun = drift.Pass{SiteID: "site_1", Number: 7, StartedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}

func environment(t *testing.T) (*testsuite.TestWorkflowEnvironment, *drift.Activities) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(reconcile.Pass, workflow.RegisterOptions{Name: contract.ReconcilePass.Workflow})
	acts := &drift.Activities{}
	env.RegisterActivity(acts)
	return env, acts
}

// finished keeps what the pass was noted with.
func finished(env *testsuite.TestWorkflowEnvironment, acts *drift.Activities) *drift.FinishIn {
	var in drift.FinishIn
	env.OnActivity(acts.FinishPass, mock.Anything, mock.Anything).Run(func(a mock.Arguments) {
		in = a.Get(1).(drift.FinishIn) //nolint:forcetypeassert // its only argument
	}).Return(nil).Once()
	return &in
}

// TestAPart that fails keeps what does not need it from nothing, and the note of
// the pass says what was not looked at.
func TestAPartThatFails(t *testing.T) {
	t.Parallel()
	bad := errors.New("no database")
	for name, tc := range map[string]struct {
		list                drift.ListReport
		lost, visit, probe  error
		page, sets, moves   error
		listed, compared    bool
		settled, quarantine bool
		told                string
	}{
		"all is well":             {listed: true, compared: true, settled: true, quarantine: true},
		"the region is away":      {list: drift.ListReport{Problem: "503"}, compared: true, settled: true, quarantine: true, told: "the region was not read: 503"},
		"reading it fails here":   {lost: bad, compared: true, settled: true, quarantine: true, told: "no database"},
		"BMCs cannot be asked":    {visit: bad, listed: true, compared: true, settled: true, quarantine: true, told: "BMCs were not asked"},
		"nodes cannot be asked":   {probe: bad, listed: true, compared: true, settled: true, quarantine: true, told: "networks of nodes were not probed"},
		"a page fails":            {page: bad, listed: true, compared: true, told: "the pass was not finished"},
		"sets fail":               {sets: bad, listed: true, compared: true, settled: true, told: "the pass was not finished"},
		"quarantining goes wrong": {moves: bad, listed: true, compared: true, settled: true, quarantine: true, told: "the pass was not finished"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, acts := environment(t)
			env.OnActivity(acts.BeginPass, mock.Anything, drift.BeginIn{SiteID: "site_1"}).Return(begun, nil).Once()
			env.OnActivity(acts.ListMachines, mock.Anything, begun).Return(tc.list, tc.lost).Once()
			with := begun
			with.Listed = tc.listed
			env.OnActivity(acts.VisitBMCs, mock.Anything, with).Return(drift.BMCReport{Probes: 2}, tc.visit).Once()
			env.OnActivity(acts.ProbeNetworks, mock.Anything, with).Return(drift.NetworkReport{Asked: 4}, tc.probe).Once()
			env.OnActivity(acts.ComparePage, mock.Anything, drift.PageIn{Pass: with}).Return(drift.PageOut{PassCounts: drift.PassCounts{Nodes: 500}, After: "node_9"}, nil).Once()
			env.OnActivity(acts.ComparePage, mock.Anything, drift.PageIn{Pass: with, After: "node_9"}).Return(drift.PageOut{PassCounts: drift.PassCounts{Nodes: 20}}, tc.page).Once()
			if tc.settled {
				env.OnActivity(acts.CompareSets, mock.Anything, with).Return(drift.PassCounts{Findings: 3}, tc.sets).Once()
			}
			if tc.quarantine {
				env.OnActivity(acts.QuarantineDrifted, mock.Anything, with).Return(drift.QuarantineReport{Limit: 1}, tc.moves).Once()
			}
			noted := finished(env, acts)
			env.ExecuteWorkflow(reconcile.Pass, reconcile.Input{ReconcileInput: contract.ReconcileInput{SiteID: "site_1"}})
			require.True(t, env.IsWorkflowCompleted())
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, with, noted.Pass)
			require.Contains(t, noted.Problem, tc.told)
			require.Equal(t, tc.told == "", noted.Problem == "")
			if tc.told == "" {
				require.Equal(t, 520, noted.Report.Nodes)
				require.Equal(t, 3, noted.Report.Findings)
				require.Equal(t, 4, noted.Report.Networks.Asked)
			}
			env.AssertExpectations(t)
		})
	}
}

// TestASiteThatIsGone: there is nothing to note.
func TestASiteThatIsGone(t *testing.T) {
	t.Parallel()
	env, acts := environment(t)
	env.OnActivity(acts.BeginPass, mock.Anything, mock.Anything).Return(drift.Pass{Gone: true}, nil).Once()
	env.ExecuteWorkflow(reconcile.Pass, reconcile.Input{ReconcileInput: contract.ReconcileInput{SiteID: "site_1"}})
	require.NoError(t, env.GetWorkflowError())
	env.AssertExpectations(t)
}

// TestALargeSiteGoesOnInAnotherRun: with what it has found, and without reading
// the region again.
func TestALargeSiteGoesOnInAnotherRun(t *testing.T) {
	t.Parallel()
	env, acts := environment(t)
	env.OnActivity(acts.BeginPass, mock.Anything, mock.Anything).Return(begun, nil).Once()
	env.OnActivity(acts.ListMachines, mock.Anything, mock.Anything).Return(drift.ListReport{Machines: 60_000}, nil).Once()
	env.OnActivity(acts.VisitBMCs, mock.Anything, mock.Anything).Return(drift.BMCReport{}, nil).Once()
	env.OnActivity(acts.ProbeNetworks, mock.Anything, mock.Anything).Return(drift.NetworkReport{}, nil).Once()
	env.OnActivity(acts.ComparePage, mock.Anything, mock.Anything).Return(drift.PageOut{PassCounts: drift.PassCounts{Nodes: 500}, After: "node_x"}, nil).Times(100)
	env.ExecuteWorkflow(reconcile.Pass, reconcile.Input{ReconcileInput: contract.ReconcileInput{SiteID: "site_1"}})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &next)
	env.AssertExpectations(t)

	var in reconcile.Input
	second, acts := environment(t)
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	second.OnActivity(acts.ComparePage, mock.Anything, mock.MatchedBy(func(p drift.PageIn) bool { return p.After == "node_x" && p.Pass.Listed })).
		Return(drift.PageOut{PassCounts: drift.PassCounts{Nodes: 1}}, nil).Once()
	second.OnActivity(acts.CompareSets, mock.Anything, mock.Anything).Return(drift.PassCounts{}, nil).Once()
	second.OnActivity(acts.QuarantineDrifted, mock.Anything, mock.Anything).Return(drift.QuarantineReport{}, nil).Once()
	noted := finished(second, acts)
	second.ExecuteWorkflow(reconcile.Pass, in)
	require.NoError(t, second.GetWorkflowError())
	require.Equal(t, 50_001, noted.Report.Nodes)
	require.Equal(t, 60_000, noted.Report.List.Machines)
	second.AssertExpectations(t)
}
