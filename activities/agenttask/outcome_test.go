package agenttask_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestClass_Drives(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindScrub, lifecycle.TaskKindValidate} {
		require.Equal(t, lifecycle.FailDriveUnexpected, agenttask.Class(kind, lifecycle.TaskCodeDriveUnexpected))
		require.Equal(t, lifecycle.FailDriveMissing, agenttask.Class(kind, lifecycle.TaskCodeDriveMissing))
		require.Equal(t, lifecycle.FailNodeTask, agenttask.Class(kind, lifecycle.TaskCodeRefused))
	}
}

// No agent is asked to erase drives of a node of which nothing names any.
func TestRunTask_ErasesNoUnknownDrives(t *testing.T) {
	t.Parallel()
	for _, args := range []string{`{"run_id": "r"}`, `{"run_id": "r", "steps": ["disks"]}`} {
		_, err := (&agenttask.Activities{}).RunTask(context.Background(), agenttask.RunTaskIn{Kind: lifecycle.TaskKindScrub, Args: json.RawMessage(args)})
		got, typed := fault.Failure(err)
		require.True(t, typed, err)
		require.Equal(t, lifecycle.FailDriveUnexpected, got.Class)
	}
}
