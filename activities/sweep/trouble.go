package sweep

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

const (
	timeFormat    = "2006-01-02 15:04:05Z"
	failedOften   = 3
	heartbeatLate = 30 * time.Second
)

// trouble returns what keeps a running workflow from continuing, or "" when nothing does. It
// returns taskFails when the workflow's own code fails, so that its history has the reason.
func (p *pass) trouble(j db.LiveJob, e temporalx.Execution) (words string, taskFails bool) {
	if e.Paused {
		return "the workflow is paused in Temporal; unpause it there", false
	}
	if t := e.Task; t != nil {
		switch {
		case t.Attempt >= failedOften:
			return fmt.Sprintf("its workflow task failed %d times%s", t.Attempt-1, ofBuild(e)), true
		case !t.Taken && p.now.Sub(t.Scheduled) > untaken:
			return "no worker has taken its workflow task since " + t.Scheduled.UTC().Format(timeFormat) + ofBuild(e), false
		}
	}
	for _, a := range e.Activities {
		if words := p.activityTrouble(a, e); words != "" {
			return words, false
		}
	}
	if t, waits := p.undelivered[j.ID]; waits {
		return t.Words(p.now), false
	}
	switch {
	case p.overdue(j):
		return fmt.Sprintf("%s should have ended at %s; its workflow runs%s", j.Stage, j.StageDeadlineAt.UTC().Format(timeFormat), waitsFor(e)), false
	case p.unbegun(j):
		return "its workflow runs and has not written its first step", false
	}
	return "", false
}

func (p *pass) activityTrouble(a temporalx.PendingActivity, e temporalx.Execution) string {
	switch {
	case a.Paused:
		return "its activity " + a.Name + " is paused in Temporal; unpause it there"
	case !a.Taken && p.now.Sub(a.Scheduled) > untaken:
		return "no worker has taken its activity " + a.Name + " since " + a.Scheduled.UTC().Format(timeFormat) + ofBuild(e)
	case a.Attempt >= failedOften && a.Failure != "" && (!a.Taken || p.now.Sub(a.Heartbeat) > heartbeatLate):
		return fmt.Sprintf("its activity %s was tried %d times; the last time: %s", a.Name, a.Attempt-1, a.Failure)
	}
	return ""
}

// ofBuild returns a note that names the build whose workers are needed.
func ofBuild(e temporalx.Execution) string {
	if e.Build == "" {
		return ""
	}
	return " (it is pinned to build " + e.Build + ")"
}

// waitsFor returns a note on the activities that a running workflow waits for.
func waitsFor(e temporalx.Execution) string {
	if len(e.Activities) == 0 {
		return " and waits for nothing outside"
	}
	names := make([]string, 0, len(e.Activities))
	for _, a := range e.Activities {
		words := fmt.Sprintf("%s (try %d", a.Name, a.Attempt)
		if !a.Heartbeat.IsZero() {
			words += ", last heartbeat at " + a.Heartbeat.UTC().Format(timeFormat)
		}
		names = append(names, words+")")
	}
	return " and waits for " + strings.Join(names, ", ")
}
