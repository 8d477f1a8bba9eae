package sweep_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A task given to a machine that is off is said to wait in vain, until its agent
// is heard.
func TestATaskOfASilentAgentShowsUntilItIsHeard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.job(lifecycle.JobRunning)
	w.runs(j.WorkflowID, temporalx.Execution{})
	heard := func(ago time.Duration) {
		require.NoError(t, w.Store.RecordHeartbeats(t.Context(), []db.Heartbeat{{
			NodeID: *j.NodeID, BootID: "boot", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now().Add(-ago),
		}}))
	}
	heard(5 * time.Minute)
	w.sweep(time.Minute)
	require.Empty(t, w.kinds(), "a job without a task waits for no agent")
	require.NoError(t, w.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(t.Context(), db.NewTask{
			NodeID: *j.NodeID, JobID: j.ID, Kind: lifecycle.TaskKindDrain, Args: json.RawMessage(`{}`), Key: "drain", Actor: db.Actor{Owner: lifecycle.OwnerJob},
		})
		return err
	}))
	for range 2 {
		require.Equal(t, 1, w.sweep(time.Minute).Silent)
		rows, err := w.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, db.AttentionJobStuck, rows[0].Kind)
		require.Regexp(t, `^it waits for task node\.drain \(task_.*\) of the node's agent, which was last heard at .*Z, 6m\d+s ago; bring the node back`, rows[0].Message)
	}
	require.Equal(t, lifecycle.JobRunning, w.read(j.ID).Status, "nothing is done about it from here")
	heard(0)
	require.Zero(t, w.sweep(time.Minute).Silent)
	require.Empty(t, w.kinds())
}
