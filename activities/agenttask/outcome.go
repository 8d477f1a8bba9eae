package agenttask

import (
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Outcome is what a task that has ended, or is uncertain, means to the activity
// that waits for it: its result, or a typed failure.
func Outcome(t db.NodeTask) (lifecycle.TaskResult, error) {
	switch t.Status {
	case lifecycle.TaskSucceeded:
		return *t.Result, nil
	case lifecycle.TaskFailed:
		return lifecycle.TaskResult{}, fault.New(Class(t.Kind, t.Result.Code), "task %s (%s) failed: %s", t.ID, t.Kind, because(*t.Result))
	case lifecycle.TaskExpired:
		return lifecycle.TaskResult{}, fault.New(lifecycle.FailNodeTaskUncertain, "task %s (%s) was not done in time: %s", t.ID, t.Kind, t.Message)
	case lifecycle.TaskQueued, lifecycle.TaskDispatched, lifecycle.TaskUncertain:
	}
	return lifecycle.TaskResult{}, fault.New(lifecycle.FailNodeTaskUncertain,
		"it is not known whether the node finished task %s (%s): %s", t.ID, t.Kind, t.Message)
}

// Class is the failure class of a task that its agent reported as failed, by its
// kind and code.
func Class(kind lifecycle.TaskKind, code string) lifecycle.FailureClass {
	switch code {
	case lifecycle.TaskCodeUnsupported, lifecycle.TaskCodeRefused, lifecycle.TaskCodeArguments:
		return lifecycle.FailNodeTask // nothing was begun
	case lifecycle.TaskCodeDriveUnexpected:
		return lifecycle.FailDriveUnexpected
	case lifecycle.TaskCodeDriveMissing:
		return lifecycle.FailDriveMissing
	case lifecycle.TaskCodeOtherMachine:
		return lifecycle.FailOtherMachine
	}
	switch kind {
	case lifecycle.TaskKindScrub:
		return lifecycle.FailScrubUnverified
	case lifecycle.TaskKindValidate:
		return lifecycle.FailNodeUnhealthy
	case lifecycle.TaskKindDrain, lifecycle.TaskKindUninstall, lifecycle.TaskKindRevokeUser, lifecycle.TaskKindUpdate,
		lifecycle.TaskKindCreateUser, lifecycle.TaskKindSetKeys, lifecycle.TaskKindSetMetadata, lifecycle.TaskKindRetireCredentials, lifecycle.TaskKindProbeNetwork:
	}
	return lifecycle.FailNodeTask
}

// because is the agent's own word, with the step that failed.
func because(r lifecycle.TaskResult) string {
	text := r.Message
	if text == "" {
		text = r.Code
	}
	if text == "" {
		text = "the agent gave no reason"
	}
	for _, s := range r.Steps {
		if !s.OK && s.Skipped == "" {
			return fmt.Sprintf("%s (step %s: %s)", text, s.Name, s.Detail)
		}
	}
	return text
}
