package billing_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	billingact "github.com/slipway-cloud/slipway/activities/billing"
	"github.com/slipway-cloud/slipway/workflows/billing"
)

// TestBill_OnePartThatFailsKeepsTheOther: what was not done stands in the result, and the time that
// is compared with the database's is Temporal's.
func TestBill_OnePartThatFailsKeepsTheOther(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		charge, enforce error
		told            string
	}{
		"all is well":           {},
		"charging failed":       {charge: errors.New("no database"), told: "no database"},
		"enforcement failed":    {enforce: errors.New("a lock"), told: "a lock"},
		"nothing could be done": {charge: errors.New("no database"), enforce: errors.New("a lock"), told: "a lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			acts := &billingact.Activities{}
			env.RegisterActivity(acts)
			start := env.Now()
			env.OnActivity(acts.ChargeUsage, mock.Anything, mock.MatchedBy(func(in billingact.TickIn) bool { return in.At.Equal(start) })).
				Return(billingact.TickReport{Windows: 3}, tc.charge).Once()
			env.OnActivity(acts.EnforceBalances, mock.Anything).Return(billingact.EnforceReport{Released: []string{"alc_1"}}, tc.enforce).Once()
			env.ExecuteWorkflow(billing.Bill)
			require.NoError(t, env.GetWorkflowError())
			var r billing.Report
			require.NoError(t, env.GetWorkflowResult(&r))
			require.Contains(t, r.Problem, tc.told)
			require.Equal(t, tc.told == "", r.Problem == "")
			require.Equal(t, tc.charge == nil, r.Windows == 3)
			env.AssertExpectations(t)
		})
	}
}
