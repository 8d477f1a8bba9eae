package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// end ends a run as its job does: with the states of its steps, and the class of the step that
// failed, "" for a cancellation.
func (w *world) end(run machinesdb.Run, class lifecycle.FailureClass, states ...lifecycle.StageState) {
	w.t.Helper()
	var rows []lifecycle.StageRow
	for i, s := range states {
		rows = append(rows, lifecycle.StageRow{Ordinal: i + 1, Name: run.Steps[i].Name, State: s, Attempts: 1})
	}
	by := db.Actor{Owner: lifecycle.OwnerJob}
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		for _, s := range []machinesdb.Step{
			{Status: lifecycle.JobRunning, Stages: rows, Actor: by}, {Status: lifecycle.JobCancelled, Failed: class, Message: "it failed", Stages: rows, Actor: by},
		} {
			m, now, err := machinesdb.LockForJob(w.t.Context(), tx, run.JobID)
			if err != nil {
				return err
			}
			if err := machinesdb.Project(w.t.Context(), tx, m, now, s); err != nil {
				return err
			}
		}
		_, err := tx.TransitionJob(w.t.Context(), run.JobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
}

func (w *world) retry(in machines.Retry) (run machinesdb.Run, err error) {
	w.t.Helper()
	in.Offers = func(string) []runplan.Capability { return runplan.Capabilities() }
	err = w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		run, err = machines.RetryRun(w.t.Context(), tx, in, admin)
		return err
	})
	return run, err
}

// threeSteps starts a run of three commands on a new machine.
func (w *world) threeSteps(machine string) machinesdb.Run {
	w.t.Helper()
	_, err := w.register(machines.Registration{ID: machine, Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(w.t, err)
	var p runplan.Plan
	for _, name := range []string{"one", "two", "three"} {
		p.Steps = append(p.Steps, runplan.Step{Name: name, SSH: &runplan.SSHCommand{Command: "echo " + name}})
	}
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) (err error) {
		p, err = machines.CreatePlan(w.t.Context(), tx, p, false, admin)
		return err
	}))
	run, err := w.start(machines.Start{RequestID: "first", MachineID: machine, Type: lifecycle.RunTypeUpgrade, PlanID: p.ID})
	require.NoError(w.t, err)
	return run
}

func names(steps []runplan.Step) (out []string) {
	for _, s := range steps {
		out = append(out, s.Name)
	}
	return out
}

// TestRetryRun: each action of an operator starts a run in the place of the failed one, from the
// first step that has not succeeded or from the beginning.
func TestRetryRun(t *testing.T) {
	t.Parallel()
	const done, failed, undone, waits = lifecycle.StageSucceeded, lifecycle.StageFailed, lifecycle.StageUndone, lifecycle.StagePending
	w := newWorld(t)
	for name, tc := range map[string]struct {
		action lifecycle.Action
		states []lifecycle.StageState
		want   []string
	}{
		"from-the-failed":  {lifecycle.ActionRetryStage, []lifecycle.StageState{done, failed, waits}, []string{"two", "three"}},
		"resumed":          {lifecycle.ActionResume, []lifecycle.StageState{done, done, failed}, []string{"three"}},
		"what-was-undone":  {lifecycle.ActionRetryStage, []lifecycle.StageState{undone, done, failed}, []string{"one", "two", "three"}},
		"all":              {lifecycle.ActionRerun, []lifecycle.StageState{done, failed, waits}, []string{"one", "two", "three"}},
		"all-from-scratch": {lifecycle.ActionRestartClean, []lifecycle.StageState{done, done, failed}, []string{"one", "two", "three"}},
	} {
		first := w.threeSteps("m-" + name)
		w.end(first, lifecycle.FailCommand, tc.states...)
		in := machines.Retry{RunID: first.ID, RequestID: "again", Action: tc.action, Reason: "the disk was full"}
		run, err := w.retry(in)
		require.NoError(t, err, name)
		require.Equal(t, tc.want, names(run.Steps), name)
		require.Equal(t, first.ID, *run.RetryOf)
		require.Equal(t, first.ID, machinesdb.ViewOf(run).RetryOf)
		require.Equal(t, []any{first.Type, first.PlanID, lifecycle.RunPending}, []any{run.Type, run.PlanID, run.Status})
		again, err := w.retry(in)
		require.NoError(t, err, name)
		require.Equal(t, run.ID, again.ID, "a repeated request starts nothing")
		var comment string
		require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT comment FROM audit_log WHERE resource_kind = 'run' AND resource_id = $1", run.ID).Scan(&comment))
		require.Contains(t, comment, string(tc.action)+" of run "+first.ID+": the disk was full")
		_, err = w.store.DBTX().Exec(t.Context(), "UPDATE runs SET retry_of = NULL WHERE id = $1", run.ID)
		require.Error(t, err, "it never changes")
	}
}

// TestRetryRun_Refuses what would repeat steps that another run has changed, and what is no
// failure.
func TestRetryRun_Refuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed := w.threeSteps("m-failed")
	_, err := w.retry(machines.Retry{RunID: failed.ID, RequestID: "x", Action: lifecycle.ActionRetryStage})
	require.Equal(t, intent.ActionRefused, intent.AsRefusal(err).Kind, "it is active")
	w.end(failed, lifecycle.FailCommand, lifecycle.StageSucceeded, lifecycle.StageFailed, lifecycle.StagePending)
	cancelled := w.threeSteps("m-cancelled")
	w.end(cancelled, "", lifecycle.StageFailed, lifecycle.StagePending, lifecycle.StagePending)
	for name, tc := range map[string]struct {
		in   machines.Retry
		kind intent.Kind
		says string
	}{
		"cancelled":            {machines.Retry{RunID: cancelled.ID, RequestID: "a", Action: lifecycle.ActionRerun}, intent.ActionRefused, "CANCELED"},
		"adopted":              {machines.Retry{RunID: failed.ID, RequestID: "a", Action: lifecycle.ActionAdopt}, intent.ActionRefused, "proves"},
		"cancel":               {machines.Retry{RunID: failed.ID, RequestID: "a", Action: lifecycle.ActionCancel}, intent.Invalid, "has ended"},
		"no action":            {machines.Retry{RunID: failed.ID, RequestID: "a"}, intent.Invalid, "retry_stage"},
		"no request":           {machines.Retry{RunID: failed.ID, Action: lifecycle.ActionRerun}, intent.Invalid, "1 to 128"},
		"the request of a run": {machines.Retry{RunID: failed.ID, RequestID: "first", Action: lifecycle.ActionRerun}, intent.Invalid, failed.ID},
	} {
		_, err := w.retry(tc.in)
		require.NotNil(t, intent.AsRefusal(err), "%s: %v", name, err)
		require.Equal(t, tc.kind, intent.AsRefusal(err).Kind, name)
		require.Contains(t, err.Error(), tc.says, name)
	}
	_, err = w.retry(machines.Retry{RunID: "run_none", RequestID: "a", Action: lifecycle.ActionRerun})
	require.ErrorIs(t, err, db.ErrNotFound)

	second, err := w.retry(machines.Retry{RunID: failed.ID, RequestID: "second", Action: lifecycle.ActionRetryStage})
	require.NoError(t, err)
	_, err = w.retry(machines.Retry{RunID: failed.ID, RequestID: "third", Action: lifecycle.ActionRerun})
	var refused *runplan.StartRefusal
	require.ErrorAs(t, err, &refused, "the machine has a run")
	require.Equal(t, second.ID, refused.Existing)
	w.end(second, lifecycle.FailCommand, lifecycle.StageFailed, lifecycle.StagePending)
	_, err = w.retry(machines.Retry{RunID: failed.ID, RequestID: "third", Action: lifecycle.ActionResume})
	require.ErrorContains(t, err, second.ID, "the machine had another run since")
	third, err := w.retry(machines.Retry{RunID: failed.ID, RequestID: "third", Action: lifecycle.ActionRerun})
	require.NoError(t, err)
	require.Len(t, third.Steps, 3)
	_, err = w.start(machines.Start{RequestID: "third", MachineID: "m-failed", Type: failed.Type, PlanID: failed.PlanID})
	require.Equal(t, intent.Invalid, intent.AsRefusal(err).Kind, "the request made a retry")
}

// A run that one project had on a machine is not repeated in another project.
func TestRetryRun_StaysInItsProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed := w.threeSteps("m-1")
	w.end(failed, lifecycle.FailCommand, lifecycle.StageFailed, lifecycle.StagePending, lifecycle.StagePending)
	_, err := w.register(machines.Registration{ID: "m-1", ProjectID: dbtest.Project(t, w.store).ID, Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	_, err = w.retry(machines.Retry{RunID: failed.ID, RequestID: "a", Action: lifecycle.ActionRerun})
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	require.Equal(t, intent.ActionRefused, intent.AsRefusal(err).Kind)
}

// A node that a tenant has, or has left, takes no retry either.
func TestRetryRun_ProtectsTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	failed := w.threeSteps("m-1")
	w.end(failed, lifecycle.FailCommand, lifecycle.StageFailed, lifecycle.StagePending, lifecycle.StagePending)
	require.NoError(t, w.access("m-1", machines.Access{NodeID: node.ID}))
	dbtest.Occupy(t, w.store, node.ID)
	_, err := w.retry(machines.Retry{RunID: failed.ID, RequestID: "a", Action: lifecycle.ActionRerun})
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	require.Equal(t, intent.ActionRefused, intent.AsRefusal(err).Kind)
}
