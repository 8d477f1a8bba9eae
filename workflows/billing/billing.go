// Package billing is the workflow that a Schedule starts once a minute to charge what runs. It only
// sequences; activities/billing says what is done.
package billing

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/billing"
	"github.com/slipway-cloud/slipway/workflows/pass"
)

var acts *billing.Activities

// Report is what one pass did; it stands in the workflow's result.
type Report struct {
	Windows        int    `json:"windows,omitempty"`
	SetAside       int    `json:"set_aside,omitempty"`
	Released       int    `json:"released,omitempty"`
	ClockDisagrees string `json:"clock_disagrees,omitempty"`
	Problem        string `json:"problem,omitempty"`
	// Boundary is the time up to which the last tick has charged. The next pass compares it with
	// the database's, which is older when an older copy of the database runs.
	Boundary time.Time `json:"boundary,omitzero"`
}

// The longest that each part may take; together they are less than the run may take. They are local
// activities, so that they do not wait behind stages that fill the worker.
const (
	chargeLimit  = 4 * time.Minute
	enforceLimit = time.Minute
)

// Bill is one pass. Balances are enforced also when the charging failed: what was charged before
// stands. The workflow's time is that of Temporal.
func Bill(ctx workflow.Context) (Report, error) {
	var r, last Report
	if workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &last); err != nil {
			last = Report{} // the tick has nothing to compare with then
		}
	}
	var tick billing.TickReport
	in := billing.TickIn{At: workflow.Now(ctx), Before: last.Boundary}
	err := pass.DoLocally(ctx, chargeLimit, acts.ChargeUsage, &tick, in)
	if r.Boundary = last.Boundary; err == nil && tick.ClockDisagrees == "" {
		r.Boundary = tick.Boundary
	}
	r.Windows, r.SetAside, r.ClockDisagrees = tick.Windows, len(tick.SetAside), tick.ClockDisagrees
	var problems pass.Problems
	problems.Add("not everything was charged", err)
	var enforced billing.EnforceReport
	problems.Add("not every balance was enforced", pass.DoLocally(ctx, enforceLimit, acts.EnforceBalances, &enforced))
	r.Released, r.Problem = len(enforced.Released), strings.Join(problems, "; ")
	return r, nil
}
