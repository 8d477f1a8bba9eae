package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Reading a job says that its task lies with an agent that is silent; nothing is
// written for it.
func TestAJobSaysThatTheAgentIsSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	read := func() (got rest.Job) {
		w.do("GET", "/api/v1/admin/jobs/"+j.ID, nil).want(http.StatusOK).into(&got)
		return got
	}
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(t.Context(), db.NewTask{
			NodeID: *j.NodeID, JobID: j.ID, Kind: lifecycle.TaskKindDrain, Args: json.RawMessage(`{}`), Key: "drain", Actor: db.Actor{Owner: lifecycle.OwnerJob},
		})
		return err
	}))
	require.Contains(t, read().Message, "of the node's agent, which has never been heard")
	reports(t, w.store, *j.NodeID, 100*time.Second, 1)
	got := read()
	require.True(t, got.WaitingOutside)
	require.Regexp(t, `it waits for task node\.drain .* was last heard at .*Z, 1m4\ds ago; bring the node back`, got.Message)
	require.Equal(t, j.Version, got.Version)
	reports(t, w.store, *j.NodeID, 0, 1)
	got = read()
	require.False(t, got.WaitingOutside)
	require.Empty(t, got.Message)
}
