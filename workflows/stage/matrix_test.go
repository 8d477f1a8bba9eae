package stage_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// matrix is written down apart from what lifecycle.Decide reads. waiting is a running job whose
// stage waits on the outside. "-" is refuse.
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

// leadsTo is the state that an effect leaves the job in; none leaves it as it was.
var leadsTo = map[lifecycle.Effect]lifecycle.JobStatus{
	"retry_stage": "running", "continue": "running", "from_top": "running", "adopt": "running",
	"compensate_then_from_top": "compensating", "cancel": "compensating", "freeze": "failed_manual_intervention",
}

// column brings a job into a state at the time when it is asked.
type column struct {
	status  lifecycle.JobStatus
	when    time.Duration
	end     time.Duration // when the rest of the job is called off
	prepare func(*fixture)
}

func ended(s lifecycle.JobStatus) column {
	return column{status: s, prepare: func(b *fixture) {
		b.Store.Update(func(snap *contract.Snapshot) { snap.Status = s })
	}}
}

var columns = map[string]column{
	"pending": {status: "pending", end: 6 * time.Hour, prepare: func(*fixture) {}},
	"running": {status: "running", when: 10 * time.Second, end: 6 * time.Hour, prepare: func(b *fixture) { // between two attempts
		b.out.fail["two"] = times(500, stagetest.Failure(lifecycle.FailMAASUnavailable))
	}},
	"waiting": {status: "running", when: waiting, end: waiting - 100*time.Millisecond, prepare: func(b *fixture) {
		b.out.block["wait"] = true
	}},
	"failed_retryable": {status: "failed_retryable", when: 30 * time.Minute, end: 6 * time.Hour, prepare: func(b *fixture) {
		b.out.fail["wait"] = times(2, stagetest.Failure(lifecycle.FailCommissioning))
	}},
	"failed_manual_intervention": {status: "failed_manual_intervention", when: 30 * time.Minute, end: 6 * time.Hour, prepare: func(b *fixture) {
		b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	}},
	"compensating": {status: "compensating", when: 30 * time.Minute, end: 6 * time.Hour, prepare: func(b *fixture) { // between two attempts to undo
		b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
		b.out.fail["undo-one"] = times(3, stagetest.Failure(lifecycle.FailMAASUnavailable))
		b.at(30*time.Minute-time.Second, lifecycle.ActionCancel, contract.ActionRequest{Actor: "before"})
	}},
	"completed": ended("completed"), "cancelled": ended("cancelled"), "reconciled": ended("reconciled"),
}

// TestEveryCellOfTheMatrix asks each action in each state of a running workflow,
// as an Update and as a signal.
func TestEveryCellOfTheMatrix(t *testing.T) {
	t.Parallel()
	cells := 0
	names, rows := table(matrix)
	for action, row := range rows {
		for i, want := range row {
			for _, via := range []string{"update", "signal"} {
				cells++
				t.Run(names[i]+"/"+action+"/"+via, func(t *testing.T) {
					t.Parallel()
					cell(t, columns[names[i]], lifecycle.Action(action), via, lifecycle.Effect(want), allowed(names, rows, names[i]))
				})
			}
		}
	}
	require.Equal(t, len(lifecycle.Actions)*len(columns)*2, cells)
}

// table reads the names of the columns and the cells of each row.
func table(text string) (names []string, rows map[string][]string) {
	rows = map[string][]string{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var cells []string
		for _, c := range strings.Split(line, "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		if i == 0 {
			names = cells[1:]
			continue
		}
		rows[cells[0]] = cells[1:]
	}
	return names, rows
}

// allowed lists what a column allows, by the table, in the order of lifecycle.Actions.
func allowed(names []string, rows map[string][]string, column string) []lifecycle.Action {
	out := []lifecycle.Action{}
	if lifecycle.Job.Terminal(lifecycle.JobStatus(column)) {
		return out // to cancel it once more succeeds and does nothing
	}
	for _, a := range lifecycle.Actions {
		for i, n := range names {
			if n == column && rows[string(a)][i] != "-" {
				out = append(out, a)
			}
		}
	}
	return out
}

func cell(t *testing.T, col column, a lifecycle.Action, via string, want lifecycle.Effect, allowed []lifecycle.Action) {
	b := setup(t)
	b.out.found["wait"] = "Deploying" // may be adopted
	col.prepare(b)
	ask := contract.ActionRequest{Actor: "anna", Reason: "matrix"}
	got, calls := &stagetest.Answer{}, 0
	b.after(col.when, func() { calls = len(b.out.made("")) })
	if via == "update" {
		got = b.at(col.when, a, ask)
	} else {
		b.after(col.when, func() { b.Env.SignalWorkflow(string(a), ask) })
	}
	if col.end != 0 {
		b.after(col.end, b.out.release)
		b.at(col.end, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"})
	}
	b.Run()
	require.True(t, lifecycle.Job.Terminal(b.Store.Snapshot().Status))

	entries, at := b.Store.AuditOf("anna")
	require.Len(t, entries, 1, "one action is one audit row")
	entry, now := entries[0], b.Store.Steps()[at[0]]
	require.Equal(t, contract.ActionEntry{Action: a, Actor: "anna", Reason: "matrix", Via: via, Effect: entry.Effect, Refused: entry.Refused}, entry)
	require.NoError(t, got.Rejected, "validators refuse what is malformed and nothing else")
	if want == "-" {
		changedNothing(t, b, col, at[0], calls)
		refusedCell(t, col, a, allowed, entry, got, via)
		return
	}
	require.Equal(t, want, entry.Effect)
	require.Empty(t, entry.Refused)
	next := leadsTo[want]
	if next == "" {
		next = col.status
		changedNothing(t, b, col, at[0], calls)
	}
	require.Equal(t, next, now.Status)
	require.Equal(t, want == "freeze", now.Frozen)
	if via == "update" {
		require.NoError(t, got.Err)
		require.Equal(t, contract.ActionResult{Action: a, Effect: want, Status: next, Stage: got.Result.Stage}, got.Result)
	}
}

// refusedCell: nothing is changed, and whoever asked learns why and what may be
// done instead; a signal's row in the audit says it.
func refusedCell(t *testing.T, col column, a lifecycle.Action, allowed []lifecycle.Action, e contract.ActionEntry, got *stagetest.Answer, via string) {
	t.Helper()
	require.EqualValues(t, "refuse", e.Effect)
	says := string(a) + " is refused while the job is " + string(col.status) + ": "
	require.True(t, strings.HasPrefix(e.Refused, says), e.Refused)
	sep := "; allowed now: "
	if len(allowed) == 0 {
		sep = "; no action is allowed now"
	}
	reason, list, found := strings.Cut(strings.TrimPrefix(e.Refused, says), sep)
	require.True(t, found, e.Refused)
	require.NotEmpty(t, reason)
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	require.Equal(t, strings.Join(names, ", "), list)
	if via == "signal" {
		return
	}
	var app *temporal.ApplicationError
	require.True(t, errors.As(got.Err, &app), "%v", got.Err)
	require.Equal(t, contract.ErrTypeActionRefused, app.Type())
	require.Equal(t, e.Refused, app.Message())
	refused, ok := contract.RefusalOf(got.Err)
	require.True(t, ok)
	require.Equal(t, &lifecycle.ActionRefusedError{Action: a, Status: col.status, Reason: reason, Allowed: allowed}, refused)
}

// changedNothing compares the step that stored the row with the one before it,
// and what was done outside with what had been done when the action came.
func changedNothing(t *testing.T, b *fixture, col column, at, calls int) {
	t.Helper()
	now := b.Store.Steps()[at]
	require.Equal(t, col.status, now.Status)
	require.Nil(t, stagetest.NodeMove(now))
	require.Equal(t, calls, b.callsAt[at], "nothing was done outside")
	if at == 0 {
		return
	}
	before := b.Store.Steps()[at-1]
	before.Seq, before.Actions, before.Observed, before.Moves, before.By, before.At = now.Seq, now.Actions, now.Observed, now.Moves, now.By, now.At
	before.Stages = slices.Clone(before.Stages)
	for i := range before.Stages {
		before.Stages[i].Message, before.Stages[i].FailureClass = now.Stages[i].Message, now.Stages[i].FailureClass // of an attempt that failed meanwhile
	}
	require.Equal(t, before, now)
}
