package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// matrix is the table of actions and states in the words of the command line; waiting is a
// running job whose stage waits on the outside, "-" is refuse.
const matrix = `
command       | pending | running | waiting | failed_retryable         | failed_manual_intervention | compensating | completed | cancelled | reconciled
retry         | -       | -       | -       | retry_stage              | retry_stage                | -            | -         | -         | -
resume        | noop    | noop    | noop    | continue                 | continue                   | noop         | -         | -         | -
rerun         | -       | -       | -       | from_top                 | from_top                   | -            | -         | -         | -
restart-clean | -       | -       | -       | compensate_then_from_top | compensate_then_from_top   | -            | -         | -         | -
cancel        | cancel  | cancel  | cancel  | cancel                   | cancel                     | noop         | noop      | noop      | noop
adopt         | -       | -       | adopt   | adopt                    | adopt                      | -            | -         | -         | -
mark-manual   | freeze  | freeze  | freeze  | freeze                   | noop                       | -            | -         | -         | -
`

// apiName is what API and Temporal call a command.
var apiName = map[string]lifecycle.Action{
	"retry": "retry_stage", "resume": "resume", "rerun": "rerun", "restart-clean": "restart_clean", "cancel": "cancel",
	"adopt": "adopt_observed_state", "mark-manual": "mark_manual_intervention_required",
}

// readable is what the command says of an effect.
var readable = map[string]string{
	"retry_stage": "the failed stage runs again", "continue": "goes on", "from_top": "from the top", "compensate_then_from_top": "undone, then the job runs from the top",
	"cancel": "undone, then the job ends", "adopt": "is taken over", "freeze": "until an operator resumes it", "noop": "nothing to do",
}

func cells() (columns []string, effects map[string][]string) {
	effects = map[string][]string{}
	for i, line := range strings.Split(strings.TrimSpace(matrix), "\n") {
		parts := strings.Split(line, "|")
		for j := range parts {
			parts[j] = strings.TrimSpace(parts[j])
		}
		if i == 0 {
			columns = parts[1:]
			continue
		}
		effects[parts[0]] = parts[1:]
	}
	return columns, effects
}

// TestEveryCellFromTheCommandLine: exit code 0 and what happens, or exit code 4
// with the reason and, once, what is allowed instead.
func TestEveryCellFromTheCommandLine(t *testing.T) {
	t.Parallel()
	columns, effects := cells()
	require.Len(t, effects, len(lifecycle.Actions))
	for i, column := range columns {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			w := signedIn(t)
			status := lifecycle.JobStatus(column)
			if column == "waiting" {
				status = lifecycle.JobRunning
			}
			var allowed []lifecycle.Action
			for _, a := range lifecycle.Actions {
				for command, row := range effects {
					if apiName[command] == a && row[i] != "-" && !lifecycle.Job.Terminal(status) {
						allowed = append(allowed, a)
					}
				}
			}
			for command, row := range effects {
				job := dbtest.Job(t, w.store, dbtest.JobStatus(status))
				w.workflow = workflowSays(row[i], status, allowed)
				said := w.run("", "job", command, job.ID, "--reason", "matrix")
				if row[i] != "-" {
					require.Contains(t, said.exits(cli.ExitOK).out, readable[row[i]], "%s in %s", command, column)
					require.Contains(t, said.out, job.ID+" is "+string(status))
					continue
				}
				said.exits(cli.ExitRefused)
				require.Contains(t, strings.ToLower(said.err), string(apiName[command])+" is refused while the job is "+string(status)+": ")
				if len(allowed) == 0 { // it has ended
					require.NotContains(t, said.err, "allowed now:")
					continue
				}
				require.Equal(t, 1, strings.Count(said.err, "allowed now:"))
				require.Contains(t, said.err, "allowed now: "+strings.Join(names(allowed), ", "))
			}
		})
	}
}

func names(actions []lifecycle.Action) (out []string) {
	for _, a := range actions {
		out = append(out, string(a))
	}
	return out
}

// workflowSays answers for a workflow in which a cell holds.
func workflowSays(effect string, status lifecycle.JobStatus, allowed []lifecycle.Action) func(client.UpdateWorkflowOptions, *contract.ActionResult) error {
	return func(o client.UpdateWorkflowOptions, into *contract.ActionResult) error {
		a := lifecycle.Action(o.UpdateName)
		if effect == "-" {
			return contract.Refusal(lifecycle.ActionRefusedError{Action: a, Status: status, Reason: "the table says so", Allowed: allowed})
		}
		*into = contract.ActionResult{Action: a, Effect: lifecycle.Effect(effect), Status: status, Stage: "wait_for_ready"}
		return nil
	}
}

// TestActionsUnderTheirOtherNames: what a refusal lists can be typed.
func TestActionsUnderTheirOtherNames(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedManual))
	var asked []string
	w.workflow = func(o client.UpdateWorkflowOptions, into *contract.ActionResult) error {
		asked = append(asked, o.UpdateName)
		*into = contract.ActionResult{Effect: "continue", Status: "running"}
		return nil
	}
	for _, a := range lifecycle.Actions {
		w.run("", "job", string(a), job.ID).exits(cli.ExitOK)
	}
	require.Equal(t, names(lifecycle.Actions), asked)
}

// TestARepeatedActionByItsKey gives the first answer and asks nobody.
func TestARepeatedActionByItsKey(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedManual))
	asked := 0
	w.workflow = func(o client.UpdateWorkflowOptions, into *contract.ActionResult) error {
		asked++
		return workflowSays("retry_stage", "running", nil)(o, into)
	}
	first := w.run("", "job", "retry", job.ID, "--idempotency-key", "k").exits(cli.ExitOK)
	again := w.run("", "job", "retry", job.ID, "--idempotency-key", "k").exits(cli.ExitOK)
	require.Equal(t, first.out, again.out)
	require.Equal(t, 1, asked)
	rows, err := w.store.ResourceTimeline(t.Context(), "job", job.ID, 0, 50)
	require.NoError(t, err)
	for _, r := range rows {
		require.NotEqual(t, db.EntryAction, r.Kind, "the workflow writes the row")
	}
}

// TestJobShow_EveryTry: after a stage was tried again, its first outcome with class and time is
// shown too; a job without such a stage shows its stages only. The current stage stands at the top.
func TestJobShow_EveryTry(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	w := newWorldOn(t, dbtest.Open(t, dsn))
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	j := dbtest.Job(t, w.store)
	show := func() string { return w.run("", "job", "show", j.ID).exits(cli.ExitOK).out }
	require.NotContains(t, show(), "tries:")
	at := time.Now().Add(-3 * time.Hour)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{
			JobID: j.ID, Seq: 1, Status: lifecycle.JobRunning, Stage: lifecycle.StageWaitReady, Observed: &lifecycle.Observed{MAAS: "Ready", Power: "off", At: &at},
			Actor: db.Actor{Owner: lifecycle.OwnerJob},
		})
		return err
	}))
	require.Regexp(t, `(?m)^\s*stage:?\s+`+lifecycle.StageWaitReady+`$`, show())
	require.Contains(t, show(), "MAAS Ready, power off, agent -, first seen so 3h00m ago")
	_, err := dbtest.Owner(t, dsn).Exec(t.Context(), `INSERT INTO action_logs
		(id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms, failure_class, error_message) VALUES
		('act_1', $1, 1, 'wait_for_deployed', 1, 'wait_for_deployed', 'orchestrator', 'failed', now() - interval '2 hours', now() - interval '1 hour', 3600000,
			'datasource_none', 'no datasource'),
		('act_2', $1, 2, 'wait_for_deployed', 2, 'wait_for_deployed', 'orchestrator', 'success', now() - interval '1 hour', now(), 3600000, '', '')`, j.ID)
	require.NoError(t, err)
	out := show()
	require.Regexp(t, `(?s)tries:.*wait_for_deployed\s+1\s+failed\s+1h0m0s\s+datasource_none\s+no datasource.*wait_for_deployed\s+2\s+success\s+1h0m0s`, out)
}
