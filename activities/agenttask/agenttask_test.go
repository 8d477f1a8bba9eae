package agenttask_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	devtemporal "github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

var acts *agenttask.Activities // names activities only

const (
	scrubArgs = `{"run_id": "r", "expected_drives": [{"serial": "S1"}]}`
	drainArgs = `{"grace_seconds": 1}`
)

// waits is a stage that runs one task.
func waits(ctx workflow.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	return stage.Do(ctx, stage.KindAgentTask, "wait for the agent", acts.RunTask, in)
}

// persists is a stage that an operator retries, by a signal, each time that it
// failed.
func persists(ctx workflow.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	for {
		out, err := waits(ctx, in)
		if err == nil {
			return out, nil
		}
		in.Failed(stage.ClassOf(err))
		var again string
		workflow.GetSignalChannel(ctx, "again").Receive(ctx, &again)
	}
}

func TestAWorkflowWaitsForTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, waits)
	run := w.start(w.in(lifecycle.TaskKindScrub, scrubArgs))
	task := w.claim()
	require.Equal(t, lifecycle.TaskKindScrub, task.Kind)
	w.stop() // no worker is there when the result comes
	want := lifecycle.TaskResult{OK: true, Message: "clean", Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0", Method: lifecycle.SanitizePurge, Verified: true}}}
	w.finish(task, want)
	w.until("the activity is completed by the relay", func() bool { return w.tasks()[0].ToldAt != nil })
	w.work()
	var got lifecycle.TaskResult
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, want, got)
	line, err := w.store.NodeTimeline(t.Context(), w.node.ID, 0, 100)
	require.NoError(t, err)
	names := []string{}
	for _, l := range line {
		if l.ResourceKind == "node_task" {
			names = append(names, l.Name)
		}
	}
	require.Equal(t, []string{"succeed", "dispatch", "create"}, names)
}

// TestAResetFindsWhatWasDone: the stage runs again, the node does not.
func TestAResetFindsWhatWasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, waits)
	run := w.start(w.in(lifecycle.TaskKindScrub, scrubArgs))
	w.finish(w.claim(), lifecycle.TaskResult{OK: true, Message: "clean"})
	require.NoError(t, run.Get(t.Context(), nil))
	for range 2 {
		_, err := w.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: devtemporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
			Reason: "an operator", WorkflowTaskFinishEventId: 4, RequestId: db.NewID("r"),
		})
		require.NoError(t, err)
		var got lifecycle.TaskResult
		require.NoError(t, w.client.GetWorkflow(t.Context(), run.GetID(), "").Get(t.Context(), &got))
		require.Equal(t, "clean", got.Message)
		require.Len(t, w.tasks(), 1)
	}
}

// TestAResetTakesOverTheWait: the run before is gone, and its waiter with it.
func TestAResetTakesOverTheWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, waits)
	run := w.start(w.in(lifecycle.TaskKindDrain, drainArgs))
	task := w.claim()
	reset, err := w.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: devtemporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason: "an operator", WorkflowTaskFinishEventId: 4, RequestId: db.NewID("r"),
	})
	require.NoError(t, err)
	w.until("the new run waits", func() bool { return w.tasks()[0].WaiterRunID == reset.GetRunId() })
	w.finish(task, lifecycle.TaskResult{OK: true, Message: "drained"})
	var got lifecycle.TaskResult
	require.NoError(t, w.client.GetWorkflow(t.Context(), run.GetID(), "").Get(t.Context(), &got))
	require.Equal(t, "drained", got.Message)
	require.Len(t, w.tasks(), 1)
}

func TestRunTask_RetryQueuesAnotherTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, persists)
	run := w.start(w.in(lifecycle.TaskKindDrain, drainArgs))
	w.finish(w.claim(), lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed, Message: "a container does not end"})
	w.until("told", func() bool { return w.tasks()[0].ToldAt != nil })
	require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "again", "please"))
	second := w.claim()
	w.finish(second, lifecycle.TaskResult{OK: true})
	require.NoError(t, run.Get(t.Context(), nil))
	require.Len(t, w.tasks(), 2)
	require.Equal(t, second.ID, w.tasks()[0].ID)
}

// TestRunTask_UndoIsAnotherTask: an undo of the same kind in the same stage asks for something
// else, as the withdrawal of keys does.
func TestRunTask_UndoIsAnotherTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, persists)
	in := w.in(lifecycle.TaskKindDrain, drainArgs)
	run := w.start(in)
	w.finish(w.claim(), lifecycle.TaskResult{OK: true, Message: "done"})
	require.NoError(t, run.Get(t.Context(), nil))

	step, err := lifecycle.JobTransition(lifecycle.JobRunning, lifecycle.JobCompensating)
	require.NoError(t, err)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), w.job.ID, step, nil, db.Actor{Owner: step.Owners[0], ID: "test"})
		return err
	}))
	in.Undo, in.Args = true, []byte(`{"grace_seconds": 2}`)
	undo := w.start(in)
	task := w.claim()
	require.JSONEq(t, string(in.Args), string(task.Args))
	w.finish(task, lifecycle.TaskResult{OK: true, Message: "undone"})
	var got lifecycle.TaskResult
	require.NoError(t, undo.Get(t.Context(), &got))
	require.Equal(t, "undone", got.Message)
	require.Len(t, w.tasks(), 2)
}

func TestUncertainTask_IsDoneAgainOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runenv.Patience(2*time.Second), persists) // the second run must end within its lease
	run := w.start(w.in(lifecycle.TaskKindScrub, scrubArgs))
	first := w.claim() // and dies
	w.until("told that the task is uncertain", func() bool { return w.tasks()[0].ToldAt != nil })
	require.Equal(t, lifecycle.TaskUncertain, w.tasks()[0].Status)
	require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "again", "please"))
	second := w.claim()
	require.Equal(t, first.ID, second.ID)
	require.Equal(t, 2, second.Attempt)
	w.finish(second, lifecycle.TaskResult{OK: true, Message: "clean"})
	var got lifecycle.TaskResult
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	require.NoError(t, run.Get(ctx, &got))
	require.Equal(t, "clean", got.Message)
	require.Len(t, w.tasks(), 1)
	node, err := w.store.Node(t.Context(), w.node.ID)
	require.NoError(t, err)
	require.Equal(t, w.node.Version, node.Version)
}

func TestATaskThatNobodyTakesInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, waits)
	in := w.in(lifecycle.TaskKindDrain, drainArgs)
	in.Deadline = time.Now().Add(time.Second)
	err := w.start(in).Get(t.Context(), nil)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(lifecycle.FailNodeTaskUncertain), app.Type())
	require.Contains(t, app.Message(), "no agent took it before its deadline")
	require.Equal(t, lifecycle.TaskExpired, w.tasks()[0].Status)

	in = w.in(lifecycle.TaskKindDrain, `{"command": "rm -rf /"}`)
	in.Key = "other"
	require.ErrorAs(t, w.start(in).Get(t.Context(), nil), &app)
	require.Equal(t, string(lifecycle.FailConfiguration), app.Type())
	in = w.in(lifecycle.TaskKindDrain, `{"grace_seconds": 2}`)
	require.ErrorAs(t, w.start(in).Get(t.Context(), nil), &app)
	require.Equal(t, string(lifecycle.FailStateDisagreement), app.Type(), "the same key for something else")
}

// turnsAway leaves its wait when it is told to, and comes back to it later.
func turnsAway(ctx workflow.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	cancellable, leave := workflow.WithCancel(ctx)
	workflow.Go(ctx, func(c workflow.Context) {
		workflow.GetSignalChannel(c, "leave").Receive(c, nil)
		leave()
	})
	if _, err := waits(cancellable, in); !temporal.IsCanceledError(err) {
		return lifecycle.TaskResult{}, errors.New("the wait was not left")
	}
	workflow.GetSignalChannel(ctx, "return").Receive(ctx, nil)
	return waits(ctx, in)
}

func TestAJobThatTurnedAwayComesBackToItsTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, turnsAway)
	run := w.start(w.in(lifecycle.TaskKindScrub, scrubArgs))
	task := w.claim()
	require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "leave", nil))
	w.until("the workflow has left its activity", func() bool {
		d, err := w.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
		return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetState() == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
	})
	w.finish(task, lifecycle.TaskResult{OK: true, Message: "clean"})
	w.until("its activity is over", func() bool { return w.tasks()[0].ToldAt != nil })
	require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "return", nil))
	var got lifecycle.TaskResult
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, "clean", got.Message)
	require.Len(t, w.tasks(), 1)
}

// hangs: the first worker died before it could ask; Temporal repeats the
// activity when its time is over.
func hangs(ctx workflow.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Second, ScheduleToCloseTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumInterval: 10 * time.Millisecond}})
	var out lifecycle.TaskResult
	return out, workflow.ExecuteActivity(ctx, acts.RunTask, in).Get(ctx, &out)
}

func TestAWaitThatWasLostIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, hangs)
	run := w.start(w.in(lifecycle.TaskKindDrain, drainArgs))
	task := w.claim()
	row := w.tasks()[0]
	require.NoError(t, w.store.DeleteTaskWaiter(t.Context(), row))
	w.until("the wait is known again", func() bool { return w.tasks()[0].WaiterActivityID == row.WaiterActivityID })
	w.finish(task, lifecycle.TaskResult{OK: true})
	require.NoError(t, run.Get(t.Context(), nil))
	require.Len(t, w.tasks(), 1)
}

func TestObservingAsksNothingOfTheNode(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	job := dbtest.Job(t, store, dbtest.JobStatus(lifecycle.JobRunning))
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	a := &agenttask.Activities{Store: store}
	env.RegisterActivity(a)
	in := agenttask.RunTaskIn{JobRef: contract.JobRef{JobID: job.ID, NodeID: *job.NodeID, ObserveOnly: true}, Kind: lifecycle.TaskKindDrain, Args: []byte(drainArgs)}
	look := func() lifecycle.TaskResult {
		v, err := env.ExecuteActivity(a.RunTask, in)
		require.NoError(t, err)
		var out lifecycle.TaskResult
		require.NoError(t, v.Get(&out))
		return out
	}
	require.False(t, look().OK)
	rows, err := store.ListTasks(t.Context(), db.TaskFilter{}, "", 10)
	require.NoError(t, err)
	require.Empty(t, rows)

	in.ObserveOnly = false
	_, err = env.ExecuteActivity(a.RunTask, in)
	require.ErrorIs(t, err, activity.ErrResultPending)
	in.ObserveOnly = true
	require.Contains(t, look().Message, "is queued")

	v, err := env.ExecuteActivity(a.RevokeTasks, agenttask.RevokeTasksIn{JobRef: in.JobRef})
	require.NoError(t, err)
	var out agenttask.RevokeTasksOut
	require.NoError(t, v.Get(&out))
	require.Len(t, out.Withdrawn, 1)
	require.Empty(t, out.StillOpen)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind  lifecycle.TaskKind
		code  string
		class lifecycle.FailureClass
	}{
		{lifecycle.TaskKindScrub, lifecycle.TaskCodeStepFailed, lifecycle.FailScrubUnverified},
		{lifecycle.TaskKindScrub, lifecycle.TaskCodeUnsupported, lifecycle.FailNodeTask},
		{lifecycle.TaskKindValidate, lifecycle.TaskCodeStepFailed, lifecycle.FailNodeUnhealthy},
		{lifecycle.TaskKindValidate, lifecycle.TaskCodeRefused, lifecycle.FailNodeTask},
		{lifecycle.TaskKindScrub, lifecycle.TaskCodeOtherMachine, lifecycle.FailOtherMachine},
		{lifecycle.TaskKindValidate, lifecycle.TaskCodeOtherMachine, lifecycle.FailOtherMachine},
		{lifecycle.TaskKindScrub, lifecycle.TaskCodeArguments, lifecycle.FailNodeTask},
		{lifecycle.TaskKindScrub, lifecycle.TaskCodeExpired, lifecycle.FailScrubUnverified},
		{lifecycle.TaskKindDrain, "anything", lifecycle.FailNodeTask},
	} {
		_, err := agenttask.Outcome(db.NodeTask{ID: "task_1", Kind: tc.kind, Status: lifecycle.TaskFailed, Result: &lifecycle.TaskResult{
			Code: tc.code, Steps: []lifecycle.StepResult{{Name: "good", OK: true}, {Name: "left out", Skipped: "not there"}, {Name: "wipe", Detail: "busy"}}}})
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, string(tc.class), app.Type())
		require.Contains(t, app.Message(), "step wipe: busy")
		require.True(t, app.NonRetryable())
	}
}
