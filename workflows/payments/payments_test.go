package payments_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/workflows/payments"
)

// TestPass_OnePartThatFailsKeepsNoOther: every part that is due is done, whatever another one says,
// and what was not done is stored with the pass.
func TestPass_OnePartThatFailsKeepsNoOther(t *testing.T) {
	t.Parallel()
	away := errors.New("the provider is away")
	for name, tc := range map[string]struct {
		plan                        paymentsact.Plan
		list, process, sync, totals error
		problems                    int
	}{
		"off":                 {plan: paymentsact.Plan{Off: true}},
		"an ordinary minute":  {},
		"a night":             {plan: paymentsact.Plan{ListEvents: true, Compare: true}},
		"events fail":         {plan: paymentsact.Plan{ListEvents: true, Compare: true}, list: away, process: away, problems: 2},
		"comparisons fail":    {plan: paymentsact.Plan{ListEvents: true, Compare: true}, sync: away, totals: away, problems: 2},
		"nothing can be done": {plan: paymentsact.Plan{ListEvents: true, Compare: true}, list: away, process: away, sync: away, totals: away, problems: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			acts := &paymentsact.Activities{}
			env.RegisterActivity(acts)
			env.OnActivity(acts.PlanPaymentPass, mock.Anything).Return(tc.plan, nil).Once()
			if !tc.plan.Off {
				env.OnActivity(acts.ProcessPaymentEvents, mock.Anything).Return(3, tc.process).Once()
				env.OnActivity(acts.SyncPayments, mock.Anything).Return(2, tc.sync).Once()
				env.OnActivity(acts.FinishPaymentPass, mock.Anything, mock.MatchedBy(func(in paymentsact.FinishIn) bool {
					return strings.Count(in.Problem, away.Error()) == tc.problems
				})).Return(nil).Once()
			}
			if tc.plan.ListEvents {
				env.OnActivity(acts.ListPaymentEvents, mock.Anything).Return(1, tc.list).Once()
			}
			if tc.plan.Compare {
				env.OnActivity(acts.ComparePayments, mock.Anything).Return(5, tc.totals).Once()
			}
			env.ExecuteWorkflow(payments.Pass)
			require.NoError(t, env.GetWorkflowError())
			var r payments.Report
			require.NoError(t, env.GetWorkflowResult(&r))
			require.Len(t, r.Problems, tc.problems)
			require.Equal(t, tc.plan.Off, r.Off)
			require.Equal(t, !tc.plan.Off && tc.process == nil, r.Events == 3)
			env.AssertExpectations(t)
		})
	}
}
