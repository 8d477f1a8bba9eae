package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestJobs_ThatGaveUpFailed ends one job because of a failure, and cancels another: the first is
// shown as failed, with its class, and each is in the list of its status alone.
func TestJobs_ThatGaveUpFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	end := func(p db.Projection) string {
		job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobCompensating))
		p.JobID, p.Seq, p.RunID, p.Status, p.Stage, p.StageOrdinal = job.ID, job.Seq+1, "r", lifecycle.JobCancelled, "work", 1
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ProjectJob(t.Context(), p)
			return err
		}))
		return job.ID
	}
	failed := end(db.Projection{FailureClass: lifecycle.FailCommand, FailedStage: "work", Message: "exit 1"})
	cancelled := end(db.Projection{})
	var got rest.Job
	w.do("GET", "/api/v1/admin/jobs/"+failed, nil).want(http.StatusOK).into(&got)
	require.Equal(t, []string{"failed", string(lifecycle.FailCommand), "work"}, []string{string(got.Status), string(got.FailureClass), got.FailedStage})
	require.Contains(t, got.Runbook, string(lifecycle.FailCommand))
	w.do("GET", "/api/v1/admin/jobs/"+cancelled, nil).want(http.StatusOK).into(&got)
	require.Equal(t, lifecycle.JobCancelled, got.Status)
	for status, want := range map[string]string{"failed": failed, "cancelled": cancelled} {
		var list struct{ Data []rest.Job }
		w.do("GET", "/api/v1/admin/jobs?status="+status, nil).want(http.StatusOK).into(&list)
		require.Len(t, list.Data, 1, status)
		require.Equal(t, []string{want, status}, []string{list.Data[0].ID, string(list.Data[0].Status)})
	}
	w.do("GET", "/api/v1/admin/jobs?status=broken", nil).refused(problem.Invalid)
}

// TestJobs_ListNoRefusedAction shows a parked job of each kind: an action that its kind refuses is
// not among the allowed ones, and is not recommended.
func TestJobs_ListNoRefusedAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range contract.Kinds {
		job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedRetryable), dbtest.Kind(string(kind.Kind)))
		_, err := w.store.DBTX().Exec(t.Context(), "UPDATE jobs SET recommended_action = 'restart_clean' WHERE id = $1", job.ID)
		require.NoError(t, err)
		var got rest.Job
		w.do("GET", "/api/v1/admin/jobs/"+job.ID, nil).want(http.StatusOK).into(&got)
		for _, a := range lifecycle.Actions {
			if why := kind.Refusal(a, contract.SubjectFacts{}); why != "" {
				require.NotContains(t, got.AllowedActions, a, "%s: %s", kind.Kind, why)
			}
		}
		if got.RecommendedAction != "" {
			require.Contains(t, got.AllowedActions, got.RecommendedAction, kind.Kind)
		}
		require.Contains(t, got.AllowedActions, lifecycle.ActionRetryStage, kind.Kind)
	}
}

// TestJobs_RoutineKindsDoNotHideOthers: the list of all jobs has those of payments only while they
// wait for an operator; the list of the kind has them all.
func TestJobs_RoutineKindsDoNotHideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ended := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobCompleted), dbtest.Kind(string(contract.KindPaymentReconcile)))
	parked := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedManual), dbtest.Kind(string(contract.KindPaymentReconcile)))
	other := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobCompleted))
	for query, want := range map[string][]string{
		"": {other.ID, parked.ID}, "?kind=payment_reconcile": {parked.ID, ended.ID}, "?status=completed": {other.ID}, "?needs_human=true": {parked.ID},
		"?ids=" + ended.ID: {ended.ID},
	} {
		var list struct{ Data []rest.Job }
		w.do("GET", "/api/v1/admin/jobs"+query, nil).want(http.StatusOK).into(&list)
		var got []string
		for _, j := range list.Data {
			got = append(got, j.ID)
		}
		require.ElementsMatch(t, want, got, query)
	}
}
