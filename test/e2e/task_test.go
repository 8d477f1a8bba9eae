package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestNodeTask_ReachesTheAgent follows a task from its row to the real agent on an onboarded node,
// and back.
func TestNodeTask_ReachesTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	j := w.ends(t, w.onboard(t, w.Sims.Fleet.All()[0]).ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, j.Message)
	var task db.NodeTask
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		task, _, err = tx.EnqueueTask(t.Context(), db.NewTask{NodeID: *j.NodeID, Kind: lifecycle.TaskKindDrain, Key: "e2e",
			Args: json.RawMessage(`{"grace_seconds": 1}`), Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "e2e"}})
		return err
	}))
	require.Eventually(t, func() bool {
		var err error
		task, err = w.App.Store.Task(t.Context(), task.ID)
		return err == nil && lifecycle.NodeTask.Terminal(task.Status)
	}, runenv.Patience(time.Minute), 50*time.Millisecond, "%+v", task)
	require.Equal(t, lifecycle.TaskSucceeded, task.Status, "%+v", task.Result)
	require.True(t, task.Result.Simulated, "what a simulated node does says so")
	require.Equal(t, 1, task.Attempt)
	broken, err := w.App.Store.VerifyAudit(t.Context(), "node_task", task.ID)
	require.NoError(t, err)
	require.Zero(t, broken)
}
