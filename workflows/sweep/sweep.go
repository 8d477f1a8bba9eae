// Package sweep is the workflow that a Schedule starts every few seconds to
// look for what is stuck. It only sequences; activities/sweep says what is
// done.
package sweep

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/workflows/pass"
)

var looks *sweep.Activities

// Report is what one pass found; it stands in the workflow's result.
type Report struct {
	Starts     sweep.StartsReport     `json:"starts"`
	Heartbeats sweep.HeartbeatsReport `json:"heartbeats"`
	Installs   sweep.InstallsReport   `json:"installs"`
	Jobs       sweep.JobsReport       `json:"jobs"`
	Problem    string                 `json:"problem,omitempty"`
}

// The longest that each part may take; together they are less than the run may take.
const (
	startsLimit     = 8 * time.Second
	heartbeatsLimit = 14 * time.Second
	installsLimit   = 4 * time.Second
	jobsLimit       = 25 * time.Second
	doneLimit       = 8 * time.Second
)

// Sweep is one pass. After a part that fails the others and the note of the pass follow all the
// same.
func Sweep(ctx workflow.Context) (Report, error) {
	var r Report
	var problems pass.Problems
	problems.Add("starts were not looked at", pass.DoLocally(ctx, startsLimit, looks.SweepStarts, &r.Starts))
	problems.Add("heartbeats were not looked at", pass.DoLocally(ctx, heartbeatsLimit, looks.SweepHeartbeats, &r.Heartbeats))
	problems.Add("installations were not looked at", pass.DoLocally(ctx, installsLimit, looks.SweepInstalls, &r.Installs))
	problems.Add("jobs were not looked at", pass.DoLocally(ctx, jobsLimit, looks.SweepJobs, &r.Jobs))
	if len(r.Jobs.Problems) > 0 {
		problems = append(problems, r.Jobs.Problem())
	}
	r.Problem = strings.Join(problems, "; ")
	return r, pass.DoLocally(ctx, doneLimit, looks.SweepDone, nil, sweep.Outcome{Problem: r.Problem})
}
