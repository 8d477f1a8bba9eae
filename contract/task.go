package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// TaskTries is what a job remembers of a task that it gives to a node's agent;
// it is a part of the job's state, one for each task. The same tries are the
// same task, however often its stage runs.
type TaskTries struct {
	Round          int `json:"round,omitempty"`           // tasks that failed; each round is a new one
	UncertainCount int `json:"uncertain_count,omitempty"` // times that the task's end was not known
}

// Failed counts a failure of RunTask: call it before the stage fails, so that a
// retry asks the agent again. Of a failure that says nothing of the task, such
// as a cancelled wait or an internal error, nothing is counted.
func (t *TaskTries) Failed(class lifecycle.FailureClass) {
	if class == lifecycle.FailNodeTaskUncertain {
		t.UncertainCount++
	}
	switch class { //nolint:exhaustive // the others are no word of an agent
	case lifecycle.FailNodeTask, lifecycle.FailScrubUnverified, lifecycle.FailNodeUnhealthy, lifecycle.FailDriveUnexpected, lifecycle.FailDriveMissing,
		lifecycle.FailOtherMachine:
		t.Round++
	}
}
