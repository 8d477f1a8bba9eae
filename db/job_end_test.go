package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestJobEnd_ClosesTheStageThatRuns ends and parks jobs while a stage runs: by a projection that
// says nothing of the stage, by one that still calls it running, and without a workflow.
func TestJobEnd_ClosesTheStageThatRuns(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	const stage = lifecycle.StageValidateClean
	began := time.Now().Add(-time.Minute)
	running := []lifecycle.StageRow{{Ordinal: 0, Name: stage, State: lifecycle.StageRunning, Attempts: 1, StartedAt: &began}}
	project := func(id string, seq int64, status lifecycle.JobStatus, stages []lifecycle.StageRow) {
		t.Helper()
		require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ProjectJob(t.Context(), db.Projection{
				JobID: id, Seq: seq, RunID: "run", Status: status, Stage: stage, Attempt: 1, Stages: stages,
			})
			return err
		}))
	}
	for name, end := range map[string]func(id string){
		"cancelled, and the projection leaves the stage out": func(id string) {
			project(id, 2, lifecycle.JobCompensating, nil)
			project(id, 3, lifecycle.JobCancelled, nil)
		},
		"parked, and the projection calls it running": func(id string) { project(id, 2, lifecycle.JobFailedRetryable, running) },
		"cancelled without its workflow": func(id string) {
			require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
				for _, step := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobCompensate, lifecycle.JobCancel} {
					if _, err := tx.TransitionJob(t.Context(), id, step, nil, db.Actor{Owner: lifecycle.OwnerSystem, Comment: "its workflow was lost"}); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	} {
		j := dbtest.Job(t, s)
		project(j.ID, 1, lifecycle.JobRunning, running)
		end(j.ID)
		stages, err := s.JobStages(t.Context(), j.ID)
		require.NoError(t, err, name)
		require.Len(t, stages, 1, name)
		require.Equal(t, lifecycle.StageFailed, stages[0].State, name)
		require.NotNil(t, stages[0].FinishedAt, name)
		require.NotEmpty(t, stages[0].Message, name)
		logs, err := s.ListActionLogs(t.Context(), db.ActionLogFilter{JobID: j.ID}, "", 10)
		require.NoError(t, err, name)
		require.Len(t, logs, 1, name)
		require.NotNil(t, logs[0].FinishedAt, name)
	}
}
