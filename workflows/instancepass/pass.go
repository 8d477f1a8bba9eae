// Package instancepass is the workflow that a Schedule starts to compare instances with their
// providers, to check the health of those that work, and to move on what waits for nobody. It only
// sequences; activities/instance says what is done.
package instancepass

import (
	"time"

	"go.temporal.io/sdk/workflow"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/workflows/pass"
)

var acts *instanceact.Activities

// Report is what one pass did; it stands in the workflow's result.
type Report struct {
	Compare  instanceact.CompareReport `json:"compare,omitzero"`
	Checked  int                       `json:"checked,omitempty"`
	MovedOn  instanceact.MoveOnReport  `json:"moved_on,omitzero"`
	Problems pass.Problems             `json:"problems,omitempty"`
}

// partLimit is the longest that each part may take; together they are less than the run may take.
const partLimit = 5 * time.Minute

// Pass is one pass. A part that fails keeps no other from being done.
func Pass(ctx workflow.Context) (Report, error) {
	var r Report
	in := instanceact.PassIn{At: workflow.Now(ctx)}
	r.Problems.Add("instances were not compared with their providers", pass.Do(ctx, "compares instances with their providers", partLimit, acts.CompareInstances, &r.Compare, in))
	r.Problems.Add("not every instance was checked", pass.Do(ctx, "checks the instances that work", partLimit, acts.CheckInstances, &r.Checked, in))
	r.Problems.Add("not every instance was moved on", pass.Do(ctx, "moves on what waits", partLimit, acts.MoveInstancesOn, &r.MovedOn, in))
	return r, nil
}
