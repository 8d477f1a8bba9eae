package rest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
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
	require.Len(t, lifecycle.Actions, 7)
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
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			unproven, _, err := signing.VerifyAction(t.Context(), tx, job.ID, "", ask.Entry(a), false)
			require.Empty(t, unproven)
			return err
		}))
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

// refuses answers as a workflow's handler does, which has written the audit row.
func refuses(reason string, allowed ...lifecycle.Action) func(client.UpdateWorkflowOptions, any) error {
	return func(o client.UpdateWorkflowOptions, _ any) error {
		return contract.Refusal(lifecycle.ActionRefusedError{Action: lifecycle.Action(o.UpdateName), Status: lifecycle.JobRunning, Reason: reason, Allowed: allowed})
	}
}

// TestARefusedActionSaysOnceWhatIsAllowed: the workflow decides and writes the
// one audit row; the API adds none.
func TestARefusedActionSaysOnceWhatIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	w.engine.answers(refuses("it has not failed", lifecycle.ActionCancel, lifecycle.ActionResume))
	p := w.do("POST", act(w, job, "rerun"), map[string]any{"reason": "hurry"}).refused(problem.ActionRefused)
	require.Equal(t, []string{"cancel", "resume"}, p.Allowed)
	require.Equal(t, "Rerun is refused while the job is running: it has not failed.", p.Detail)
	require.Empty(t, actionRows(t, w, job.ID))

	w.engine.answers(func(client.UpdateWorkflowOptions, any) error {
		return temporal.NewNonRetryableApplicationError("actor is missing", contract.ErrTypeActionInvalid, nil)
	})
	w.do("POST", act(w, job, "rerun"), nil).refused(problem.Invalid)
}

func (w *world) started(t *testing.T) {
	t.Helper()
	starts, err := w.store.ClaimOutbox(t.Context(), "relay", 10, 0)
	require.NoError(t, err)
	for _, s := range starts {
		require.NoError(t, w.store.CompleteOutbox(t.Context(), s.ID))
	}
}

func (w *world) openStarts(t *testing.T) int64 {
	t.Helper()
	b, err := w.store.OutboxBacklog(t.Context(), "start_workflow")
	require.NoError(t, err)
	return b.Open
}

// TestALostWorkflowIsStartedAgain: an action that the matrix allows in the job's state starts it,
// waits for it, and is then forwarded.
func TestALostWorkflowIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedRetryable))
	w.started(t)
	for _, c := range []struct {
		action    lifecycle.Action
		says, got lifecycle.Effect
	}{
		{lifecycle.ActionResume, lifecycle.EffectNoop, lifecycle.EffectContinue}, // the start itself went on
		{lifecycle.ActionCancel, lifecycle.EffectCancel, lifecycle.EffectCancel},
		{lifecycle.ActionRestartClean, lifecycle.EffectRestart, lifecycle.EffectRestart},
	} {
		require.Zero(t, w.openStarts(t))
		var asked atomic.Int32
		w.engine.answers(func(o client.UpdateWorkflowOptions, into any) error {
			if asked.Add(1) < 3 { // it takes the relay a moment
				return serviceerror.NewNotFound("no such workflow")
			}
			return accepts(c.says)(o, into)
		})
		got := w.do("POST", act(w, job, string(c.action)), nil, header{"Idempotency-Key": string(c.action)}).want(http.StatusOK)
		require.Contains(t, string(got.raw), `"effect":"`+string(c.got)+`"`)
		require.EqualValues(t, 3, asked.Load())
		require.EqualValues(t, 1, w.openStarts(t))
		w.started(t)
		again := w.do("POST", act(w, job, string(c.action)), nil, header{"Idempotency-Key": string(c.action)}).want(http.StatusOK)
		require.JSONEq(t, string(got.raw), string(again.raw))
		require.Zero(t, w.openStarts(t), "a repetition starts nothing")
	}
	require.Empty(t, actionRows(t, w, job.ID), "the workflow writes them")
}

// TestAWorkflowThatDoesNotComeBack: the answer says that the action was not taken.
func TestAWorkflowThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpapi.Config) { c.REST.ActionTimeout = runenv.Patience(time.Second) })
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedManual))
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.OutcomeUnknown).Detail, "not taken")
	require.Empty(t, actionRows(t, w, job.ID))
}

func TestAJobThatHasNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store)
	require.Equal(t, []string{"resume", "cancel", "mark_manual_intervention_required"}, w.do("POST", act(w, job, "rerun"), nil).refused(problem.ActionRefused).Allowed)
	require.Contains(t, string(w.do("POST", act(w, job, "resume"), nil).want(http.StatusOK).raw), `"effect":"noop"`)
	require.Contains(t, string(w.do("POST", act(w, job, "cancel"), map[string]any{"reason": "not needed"}).want(http.StatusOK).raw), `"status":"cancelled"`)
	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobCancelled, row.Status)
	require.Zero(t, w.openStarts(t), "the relay has nothing to start any more")
	require.Len(t, actionRows(t, w, job.ID), 3)
}

// TestAJobIsFrozenBeforeItStarts: the run that comes later finds it parked.
func TestAJobIsFrozenBeforeItStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store)
	got := w.do("POST", act(w, job, "mark_manual_intervention_required"), map[string]any{"reason": "smoke"}).want(http.StatusOK)
	require.Contains(t, string(got.raw), `"effect":"freeze","status":"failed_manual_intervention"`)
	row, err := w.store.TakeJob(t.Context(), job.ID) // what a run loads
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobFailedManual, row.Status)
	require.True(t, row.Frozen)
	require.Equal(t, lifecycle.FailFrozen, row.FailureClass)
	require.Contains(t, row.Message, ": smoke")
	require.EqualValues(t, 1, w.openStarts(t))
	require.Len(t, actionRows(t, w, job.ID), 1)
}

// TestMarkManual_OfARun: the run whose job is frozen before it begins says that an operator is
// needed.
func TestMarkManual_OfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var run machinesdb.Run
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		actor := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "anna"}
		if _, err := machines.Register(t.Context(), tx, machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}}, actor); err != nil {
			return err
		}
		var err error
		run, err = machines.StartRun(t.Context(), tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, actor)
		return err
	}))
	w.do("POST", "/api/v1/admin/jobs/"+run.JobID+"/actions/mark_manual_intervention_required", map[string]any{"reason": "smoke"}).want(http.StatusOK)
	run, err := machinesdb.GetRun(t.Context(), w.store, run.ID)
	require.NoError(t, err)
	require.True(t, run.NeedsIntervention)
	require.Equal(t, lifecycle.RunRunning, run.Status)
}

// TestAJobThatARunHasJustTakenUp is not acted on as unstarted: the workflow is
// asked.
func TestAJobThatARunHasJustTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store)
	var asked atomic.Int32
	w.engine.answers(func(o client.UpdateWorkflowOptions, into any) error {
		if asked.Add(1) == 1 {
			_, err := w.store.TakeJob(context.WithoutCancel(t.Context()), job.ID) // the run starts at this moment
			return errors.Join(err, serviceerror.NewNotFound("no such workflow"))
		}
		return accepts(lifecycle.EffectFreeze)(o, into)
	})
	got := w.do("POST", act(w, job, "mark_manual_intervention_required"), nil).want(http.StatusOK)
	require.Contains(t, string(got.raw), `"effect":"freeze"`)
	row, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobPending, row.Status, "the workflow moves it")
	require.Empty(t, actionRows(t, w, job.ID))
}

func TestTemporalAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	fail := func(err error) { w.engine.answers(func(client.UpdateWorkflowOptions, any) error { return err }) }
	fail(serviceerror.NewUnavailable("connection refused"))
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.EngineUnavailable).Detail, "not known")
	fail(client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded))
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.OutcomeUnknown).Detail, "not known")
	asked := len(w.engine.updates())
	w.engine.breaks(context.DeadlineExceeded)
	require.Contains(t, w.do("POST", act(w, job, "cancel"), nil).refused(problem.EngineUnavailable).Detail, "not taken")
	require.Len(t, w.engine.updates(), asked, "nothing was sent")
	require.Empty(t, actionRows(t, w, job.ID))
}

// TestAskAtOnce_LeavesASignal: a job that does not answer gets the action as a signal, under the
// key of the Update, and the caller has an answer within seconds.
func TestAskAtOnce_LeavesASignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobRunning))
	api, err := op.New(op.Config{Store: w.store})
	require.NoError(t, err)
	engine := rest.NewEngine(api, rest.Config{Temporal: w.engine, Secrets: sealed(t, w.store)})
	w.engine.answers(func(client.UpdateWorkflowOptions, any) error {
		<-time.After(1100 * time.Millisecond)
		return context.DeadlineExceeded
	})
	began := time.Now()
	require.NoError(t, engine.AskAtOnce(t.Context(), job.ID, lifecycle.ActionCancel, "enough"))
	require.Less(t, time.Since(began), runenv.Patience(5*time.Second))
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	require.Len(t, w.engine.signals, 1)
	got := w.engine.signals[0]
	require.Equal(t, []string{job.WorkflowID, "cancel"}, []string{got.workflowID, got.name})
	ask := got.arg.(contract.ActionRequest)
	require.Equal(t, "enough", ask.Reason)
	require.NotEmpty(t, ask.IdempotencyKey)
	require.Equal(t, w.engine.asked[0].UpdateID, ask.IdempotencyKey, "the job takes it once")
}
