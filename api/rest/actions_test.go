package rest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func sha(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

func act(w *world, job db.Job, action string) string {
	return "/api/v1/admin/onboardings/" + job.ID + "/actions/" + action
}

// actionRows are the audit rows about actions, newest first.
func actionRows(t *testing.T, w *world, id string) []db.AuditRow {
	t.Helper()
	rows, err := w.store.ResourceTimeline(t.Context(), "job", id, 0, 100)
	require.NoError(t, err)
	var out []db.AuditRow
	for _, r := range rows {
		if r.Kind == db.EntryAction {
			out = append(out, r)
		}
	}
	return out
}

func accepts(effect lifecycle.Effect) func(client.UpdateWorkflowOptions, any) error {
	return func(o client.UpdateWorkflowOptions, into any) error {
		*into.(*contract.ActionResult) = contract.ActionResult{Action: lifecycle.Action(o.UpdateName), Effect: effect, Status: lifecycle.JobRunning, Stage: "s"}
		return nil
	}
}

func TestEveryActionReachesTheWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedRetryable))
	w.engine.answers(accepts(lifecycle.EffectRetryStage))
	for i, a := range lifecycle.Actions {
		got := w.do("POST", act(w, job, string(a)), map[string]any{"reason": "because"}, header{"Idempotency-Key": "k"}).want(http.StatusOK)
		require.Contains(t, string(got.raw), `"effect":"retry_stage"`)
		o := w.engine.updates()[i]
		ask := o.Args[0].(contract.ActionRequest)
		require.Equal(t, string(a), o.UpdateName)
		require.Equal(t, job.WorkflowID, o.WorkflowID)
		require.Equal(t, client.WorkflowUpdateStageCompleted, o.WaitForStage)
		require.Regexp(t, "^token:the-admin:tok_", ask.Actor)
		require.Equal(t, "because", ask.Reason)
		require.NotEmpty(t, ask.IdempotencyKey)
		require.Equal(t, ask.IdempotencyKey, o.UpdateID)
		require.NotContains(t, ask.IdempotencyKey, "k-")
	}
	w.do("POST", act(w, job, "resume"), nil).want(http.StatusOK)
	last := w.engine.updates()[len(lifecycle.Actions)]
	require.Empty(t, last.UpdateID)
	w.do("POST", act(w, job, "explode"), nil).refused(problem.NotFound)
	w.do("POST", act(w, job, "resume"), map[string]any{"accept_risk": true, "reason": "x"}).refused(problem.Invalid)
	w.do("POST", act(w, job, "adopt_observed_state"), map[string]any{"accept_risk": true}).refused(problem.Invalid)
	w.do("POST", "/api/v1/admin/onboardings/job_x/actions/resume", nil).refused(problem.NotFound)
	w.do("POST", act(w, job, "resume"), nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).refused(problem.Forbidden)
}

func TestARefusedActionSaysWhatIsAllowedAndIsAuditedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	refuse := func(client.UpdateWorkflowOptions, any) error {
		return temporal.NewNonRetryableApplicationError("rerun is refused while the job is running", contract.ErrTypeActionRefused, nil,
			[]lifecycle.Action{lifecycle.ActionCancel, lifecycle.ActionResume})
	}
	w.engine.answers(refuse)
	p := w.do("POST", act(w, job, "rerun"), map[string]any{"reason": "hurry"}).refused(problem.ActionRefused)
	require.Equal(t, []string{"cancel", "resume"}, p.Allowed)
	rows := actionRows(t, w, job.ID)
	require.Len(t, rows, 1)
	require.Equal(t, "rerun", rows[0].Name)
	require.Equal(t, "hurry", *rows[0].Comment)
	require.Contains(t, string(rows[0].Metadata), "refused")

	// A workflow whose handler refuses has noted it by itself.
	w.engine.answers(func(o client.UpdateWorkflowOptions, into any) error {
		err := w.store.AppendAudit(context.WithoutCancel(t.Context()), db.Entry{ResourceKind: "job", ResourceID: job.ID, Kind: db.EntryAction, Name: o.UpdateName,
			Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: o.Args[0].(contract.ActionRequest).Actor}})
		return errors.Join(err, refuse(o, into))
	})
	w.do("POST", act(w, job, "adopt_observed_state"), nil).refused(problem.ActionRefused)
	require.Len(t, actionRows(t, w, job.ID), 2)
}

func TestAnEndedJobIsDecidedByItsRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobCompleted))
	require.Contains(t, string(w.do("POST", act(w, job, "cancel"), nil).want(http.StatusOK).raw), `"effect":"noop"`)
	p := w.do("POST", act(w, job, "resume"), nil).refused(problem.ActionRefused)
	require.Equal(t, []string{"cancel"}, p.Allowed)
	require.Empty(t, w.engine.updates(), "no workflow is asked")
	require.Len(t, actionRows(t, w, job.ID), 2)
}

func TestALostWorkflowIsStartedAgainByResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedRetryable))
	starts, err := w.store.ClaimOutbox(t.Context(), "relay", 10, 0)
	require.NoError(t, err)
	for _, s := range starts {
		require.NoError(t, w.store.CompleteOutbox(t.Context(), s.ID))
	}
	open := func() int64 {
		b, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
		require.NoError(t, err)
		return b.Open
	}
	require.Zero(t, open())
	p := w.do("POST", act(w, job, "retry_stage"), nil).refused(problem.WorkflowGone)
	require.Equal(t, []string{"resume"}, p.Allowed)
	require.Zero(t, open())

	var asked atomic.Int32
	w.engine.answers(func(o client.UpdateWorkflowOptions, into any) error {
		if asked.Add(1) < 3 { // it takes the relay a moment
			return serviceerror.NewNotFound("no such workflow")
		}
		return accepts(lifecycle.EffectContinue)(o, into)
	})
	require.Contains(t, string(w.do("POST", act(w, job, "resume"), nil).want(http.StatusOK).raw), `"effect":"continue"`)
	require.EqualValues(t, 1, open())
}

func TestAJobThatHasNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store)
	require.Equal(t, []string{"resume", "cancel"}, w.do("POST", act(w, job, "rerun"), nil).refused(problem.ActionRefused).Allowed)
	require.Contains(t, string(w.do("POST", act(w, job, "resume"), nil).want(http.StatusOK).raw), `"effect":"noop"`)
	require.Contains(t, string(w.do("POST", act(w, job, "cancel"), map[string]any{"reason": "not needed"}).want(http.StatusOK).raw), `"status":"cancelled"`)
	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobCancelled, row.Status)
	b, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	require.Zero(t, b.Open, "the relay has nothing to start any more")
}

func TestTemporalAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	fail := func(err error) { w.engine.answers(func(client.UpdateWorkflowOptions, any) error { return err }) }
	fail(serviceerror.NewUnavailable("connection refused"))
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.EngineUnavailable).Detail, "not taken")
	fail(client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded))
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.OutcomeUnknown).Detail, "not known")
	asked := len(w.engine.updates())
	w.engine.breaks(context.DeadlineExceeded)
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.EngineUnavailable).Detail, "not taken")
	require.Len(t, w.engine.updates(), asked, "nothing was sent")
	require.Empty(t, actionRows(t, w, job.ID))
}
