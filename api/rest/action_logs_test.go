package rest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestActionLogs_OfJobAndNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	job := dbtest.Job(t, w.store)
	now := time.Now().UTC()
	for seq, class := range []lifecycle.FailureClass{"", lifecycle.FailMAASUnavailable, lifecycle.FailMAASUnavailable} {
		row := lifecycle.StageRow{
			Ordinal: 1, Name: lifecycle.StageCommission, State: lifecycle.StageRunning, Attempts: seq + 1, StartedAt: &now, FailureClass: class, Message: "MAAS is away",
		}
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ProjectJob(t.Context(), db.Projection{
				JobID: job.ID, Seq: int64(seq + 1), Status: lifecycle.JobRunning, Stage: row.Name, StageOrdinal: 1, ReachedPercent: 40, ProgressPercent: 40,
				Stages: []lifecycle.StageRow{row}, Metadata: lifecycle.ActionMetadata{CorrelationID: "run"},
			})
			return err
		}))
	}
	var page struct {
		Data       []rest.ActionLog
		NextCursor string `json:"next_cursor"`
	}
	for _, of := range []string{"/api/v1/admin/jobs/" + job.ID, "/api/v1/nodes/" + *job.NodeID} {
		w.do("GET", of+"/action-logs?status=failed&component=orchestrator&action_type="+lifecycle.StageCommission+"&limit=1", nil).want(http.StatusOK).into(&page)
		require.Len(t, page.Data, 1)
		got := page.Data[0]
		require.Equal(t, []any{2, "MAAS is away", lifecycle.FailMAASUnavailable}, []any{got.Attempt, got.ErrorMessage, got.FailureClass})
		require.JSONEq(t, `{"correlation_id": "run"}`, string(got.Metadata))
		require.NotNil(t, got.DurationMS)
		next := page.NextCursor
		page.NextCursor = ""
		w.do("GET", of+"/action-logs?status=failed&limit=1&cursor="+next, nil).want(http.StatusOK).into(&page)
		require.Equal(t, 1, page.Data[0].Attempt)
		require.Empty(t, page.NextCursor)
		w.do("GET", of+"/action-logs?component=api", nil).want(http.StatusOK).into(&page)
		require.Empty(t, page.Data)
		w.do("GET", of+"/action-logs?status=lost", nil).refused(problem.Invalid)
		w.do("GET", of+"/action-logs?cursor=%2A", nil).refused(problem.Invalid)
		w.do("GET", of+"x/action-logs", nil).refused(problem.NotFound)
		w.do("GET", of+"/action-logs", nil, header{"Authorization": ""}).refused(problem.Unauthenticated)
	}
	var jobs struct{ Data []rest.Job }
	w.do("GET", "/api/v1/admin/jobs?node_id="+*job.NodeID, nil).want(http.StatusOK).into(&jobs)
	require.Equal(t, "0 comparable past jobs; at least 10 are needed", jobs.Data[0].ETA.Reason)
	var shown rest.Job
	w.do("GET", "/api/v1/admin/jobs/"+job.ID, nil).want(http.StatusOK).into(&shown)
	require.Equal(t, jobs.Data[0].ETA, shown.ETA)
	require.Equal(t, []int{40, 40}, []int{shown.ProgressPercent, shown.ReachedPercent})
	require.Equal(t, lifecycle.FailMAASUnavailable, shown.Stages[0].FailureClass)
}
