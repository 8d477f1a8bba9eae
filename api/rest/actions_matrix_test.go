package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// matrix says which action is allowed in which state of a job; waiting is a running job whose stage
// waits on the outside. "-" is refuse.
const matrix = `
action                            | pending | running | waiting | failed_retryable         | failed_manual_intervention | compensating | completed | cancelled | reconciled
retry_stage                       | -       | -       | -       | retry_stage              | retry_stage                | -            | -         | -         | -
resume                            | noop    | noop    | noop    | continue                 | continue                   | noop         | -         | -         | -
rerun                             | -       | -       | -       | from_top                 | from_top                   | -            | -         | -         | -
restart_clean                     | -       | -       | -       | compensate_then_from_top | compensate_then_from_top   | -            | -         | -         | -
cancel                            | cancel  | cancel  | cancel  | cancel                   | cancel                     | noop         | noop      | noop      | noop
adopt_observed_state              | -       | -       | adopt   | adopt                    | adopt                      | -            | -         | -         | -
mark_manual_intervention_required | freeze  | freeze  | freeze  | freeze                   | noop                       | -            | -         | -         | -
`

func cells() (columns []string, effects map[string]map[string]string) {
	effects = map[string]map[string]string{}
	for i, line := range strings.Split(strings.TrimSpace(matrix), "\n") {
		parts := strings.Split(line, "|")
		for j := range parts {
			parts[j] = strings.TrimSpace(parts[j])
		}
		if i == 0 {
			columns = parts[1:]
			continue
		}
		effects[parts[0]] = map[string]string{}
		for j, c := range columns {
			effects[parts[0]][c] = parts[j+1]
		}
	}
	return columns, effects
}

// allowedIn lists by the table what may be done in a column, in the order of the
// seed; of a job that has ended nothing is listed.
func allowedIn(effects map[string]map[string]string, column string) (out []string) {
	if lifecycle.Job.Terminal(lifecycle.JobStatus(column)) {
		return nil
	}
	for _, a := range lifecycle.Actions {
		if effects[string(a)][column] != "-" {
			out = append(out, string(a))
		}
	}
	return out
}

// workflowIn answers for a workflow in a column, by the table.
func workflowIn(effects map[string]map[string]string, column string, status lifecycle.JobStatus) func(client.UpdateWorkflowOptions, any) error {
	return func(o client.UpdateWorkflowOptions, into any) error {
		e := effects[o.UpdateName][column]
		if e == "-" {
			var allowed []lifecycle.Action
			for _, a := range allowedIn(effects, column) {
				allowed = append(allowed, lifecycle.Action(a))
			}
			return contract.Refusal(lifecycle.ActionRefusedError{Action: lifecycle.Action(o.UpdateName), Status: status, Reason: "the table says so", Allowed: allowed})
		}
		*into.(*contract.ActionResult) = contract.ActionResult{Action: lifecycle.Action(o.UpdateName), Effect: lifecycle.Effect(e), Status: status, Stage: lifecycle.StageWaitReady}
		return nil
	}
}

// jobIn makes a job in a column's state, as its workflow has projected it.
func jobIn(t *testing.T, w *world, column string) db.Job {
	t.Helper()
	status := lifecycle.JobStatus(column)
	if column == "waiting" {
		status = lifecycle.JobRunning
	}
	job := dbtest.Job(t, w.store, dbtest.JobStatus(status))
	if status == lifecycle.JobPending {
		return job
	}
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{JobID: job.ID, Seq: 10, Status: status, Stage: lifecycle.StageWaitReady, WaitingOutside: column == "waiting"})
		return err
	}))
	return job
}

// TestEveryCellOverREST: 200 with the effect or 409 with the reason and what is
// allowed, whether the workflow runs, or is gone; a repetition with the same key
// gets the same answer and does nothing; a refusal that no workflow wrote down
// is written down here, once. No action moves the job's node by itself.
func TestEveryCellOverREST(t *testing.T) {
	t.Parallel()
	columns, effects := cells()
	require.Len(t, effects, len(lifecycle.Actions))
	for _, column := range columns {
		for _, lost := range []bool{false, true} {
			name := column + " with its workflow"
			if lost {
				name = column + " without a workflow"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				for _, a := range lifecycle.Actions {
					restCell(t, w, column, a, lost, effects)
				}
			})
		}
	}
}

func restCell(t *testing.T, w *world, column string, a lifecycle.Action, lost bool, effects map[string]map[string]string) {
	t.Helper()
	job := jobIn(t, w, column)
	w.started(t)
	status, err := w.store.Job(t.Context(), job.ID)
	require.NoError(t, err)
	workflow, asked := workflowIn(effects, column, status.Status), 0
	w.engine.answers(func(o client.UpdateWorkflowOptions, into any) error {
		asked++
		if lost && w.openStarts(t) == 0 {
			return serviceerror.NewNotFound("no such workflow")
		}
		return workflow(o, into)
	})
	want := effects[string(a)][column]
	unstarted := lost && column == "pending"
	if lost && a == lifecycle.ActionResume && want == "noop" && !unstarted {
		want = "continue" // the workflow was started again
	}
	send := func() answer {
		return w.do("POST", "/api/v1/admin/jobs/"+job.ID+"/actions/"+string(a), map[string]any{"reason": "matrix"}, header{"Idempotency-Key": "k"})
	}
	require.NotNil(t, job.NodeID)
	node, err := w.store.Node(t.Context(), *job.NodeID)
	require.NoError(t, err)
	got := send()
	after, err := w.store.Node(t.Context(), node.ID)
	require.NoError(t, err)
	require.Equal(t, node.Status, after.Status, "an action sets no state of a node: only steps of the job do")
	if want == "-" {
		p := got.refused(problem.ActionRefused)
		require.Equal(t, allowedIn(effects, column), p.Allowed)
		require.Regexp(t, "^(?i)"+string(a)+" is refused while the job is "+string(status.Status)+": .+", p.Detail)
		require.NotContains(t, p.Detail, "allowed", "it is listed once")
	} else {
		require.Contains(t, string(got.want(http.StatusOK).raw), `"effect":"`+want+`"`, "%s in %s", a, column)
	}
	rows := actionRows(t, w, job.ID)
	byAPI := lifecycle.Job.Terminal(status.Status) || unstarted || (lost && want == "-")
	if byAPI {
		require.Len(t, rows, 1, "%s in %s", a, column)
		require.Equal(t, "matrix", *rows[0].Comment)
		require.Equal(t, want == "-", strings.Contains(string(rows[0].Metadata), "is refused while"))
	} else {
		require.Empty(t, rows, "the workflow writes it")
	}
	sent, open := asked, w.openStarts(t)
	again := send()
	require.Equal(t, got.status, again.status)
	require.Equal(t, withoutRequest(t, got), withoutRequest(t, again))
	require.Equal(t, sent, asked, "the first answer is kept")
	require.Equal(t, open, w.openStarts(t))
	require.Len(t, actionRows(t, w, job.ID), len(rows))
	w.do("POST", "/api/v1/admin/jobs/"+job.ID+"/actions/"+string(a), map[string]any{"reason": "other"}, header{"Idempotency-Key": "k"}).refused(problem.KeyReused)
}

// withoutRequest is a body without the id of its request.
func withoutRequest(t *testing.T, a answer) map[string]any {
	t.Helper()
	var body map[string]any
	a.into(&body)
	delete(body, "request_id")
	return body
}

// TestNothingIsOfferedForAdoptionInACleanUp: what the workflow would refuse is not
// among the actions that the job and the attention list name.
func TestNothingIsOfferedForAdoptionInACleanUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := jobIn(t, w, string(lifecycle.JobFailedManual))
	type shown struct {
		AllowedActions []lifecycle.Action `json:"allowed_actions"`
	}
	get := func() (out shown) {
		w.do("GET", "/api/v1/admin/jobs/"+job.ID, nil).want(http.StatusOK).into(&out)
		return out
	}
	require.Contains(t, get().AllowedActions, lifecycle.ActionAdopt)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{
			JobID: job.ID, Seq: 11, Status: lifecycle.JobFailedManual, Stage: lifecycle.StageWaitReady, FailureClass: lifecycle.FailCompensation, FailedStage: "s", Message: "it is not clean",
		})
		return err
	}))
	require.Equal(t, []lifecycle.Action{"retry_stage", "resume", "rerun", "restart_clean", "cancel", "mark_manual_intervention_required"}, get().AllowedActions)
	var found bool
	for _, a := range w.attention("").Data {
		if a.JobID == job.ID {
			found = true
			require.NotContains(t, a.AllowedActions, string(lifecycle.ActionAdopt))
		}
	}
	require.True(t, found)
}
