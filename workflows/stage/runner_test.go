package stage_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func TestAllStagesInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res := b.Run()
	require.Equal(t, lifecycle.JobCompleted, res.Status)
	require.Equal(t, []string{"one", "two", "wait", "last"}, b.out.calls)
	require.Equal(t, 100, b.Store.Last().Progress)
	require.Equal(t, lifecycle.StageSkipped, b.Store.Last().Stages[3].State)
	require.Equal(t, []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.JobCompleted}, b.Store.Statuses())
	require.Equal(t, lifecycle.NodeEnrolling, b.Store.Moves()[0].To)
	require.Equal(t, lifecycle.NodeActive, b.Store.Moves()[1].To)
}

func TestAutomaticAttemptsAreBoundedByTheClass(t *testing.T) {
	t.Parallel()
	for _, class := range []lifecycle.FailureClass{lifecycle.FailMAASUnavailable, lifecycle.FailInternal, lifecycle.FailMAASRejected, lifecycle.FailBMCAuthRejected} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			info := lifecycle.Failure(class)
			b := setup(t)
			b.out.fail["two"] = times(info.AutoAttempts, stagetest.Failure(class))
			parked := contract.Projection{}
			b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last() }, time.Hour)
			ans := b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
			res := b.Run()
			require.Equal(t, info.ParkStatus(), parked.Status)
			require.Equal(t, class, parked.Failure.Class)
			require.Equal(t, "two", parked.Failure.Stage)
			require.Equal(t, "it broke", parked.Failure.Message)
			require.Equal(t, 0, parked.Progress)
			require.Equal(t, 10, parked.Reached)
			require.Len(t, b.out.made("two"), info.AutoAttempts+1)
			require.NoError(t, ans.Rejected)
			require.Equal(t, lifecycle.JobRunning, ans.Result.Status)
			require.Equal(t, lifecycle.JobCompleted, res.Status)
		})
	}
}

// A database that blinks must not use up the tries of what fails beside it.
func TestEachFailureClassHasItsOwnTries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	commissioning := stagetest.Failure(lifecycle.FailCommissioning)
	b.out.fail["two"] = append(times(lifecycle.Failure(lifecycle.FailInternal).AutoAttempts-1, stagetest.Failure(lifecycle.FailInternal)),
		append(times(lifecycle.Failure(lifecycle.FailCommissioning).AutoAttempts-1, commissioning), times(4, stagetest.Failure(lifecycle.FailMAASUnavailable))...)...)
	res := b.Run()
	require.Equal(t, lifecycle.JobCompleted, res.Status)
	require.Len(t, b.out.made("two"), 2+1+4+1)
}

func TestFailureAtEveryStageParksAndRetries(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "two", "wait", "last"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail[name] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
			require.Len(t, b.out.made(name), 2)
		})
	}
}

func TestUnsafeFailureQuarantinesTheNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailNodeUnhealthy))
	b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	b.Run()
	var to []lifecycle.NodeStatus
	for _, m := range b.Store.Moves() {
		to = append(to, m.To)
	}
	require.Equal(t, []lifecycle.NodeStatus{lifecycle.NodeEnrolling, lifecycle.NodeQuarantined, lifecycle.NodeActive}, to)
}

func TestCancelAtEveryStageCompensatesNewestFirst(t *testing.T) {
	t.Parallel()
	undone := map[string][]string{
		"one":  {"undo-one"},
		"two":  {"undo-two", "undo-one"},
		"wait": {"undo-two", "undo-one"},
		"last": {"undo-last", "undo-two", "undo-one"},
	}
	for name, want := range undone {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail[name] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			ans := b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Reason: "not today"})
			res := b.Run()
			require.Equal(t, lifecycle.JobCancelled, res.Status)
			require.Equal(t, want, b.out.made("undo"))
			require.Equal(t, lifecycle.EffectCancel, ans.Result.Effect)
			require.Equal(t, "not today", b.Store.Audit()[0].Reason)
			require.Equal(t, lifecycle.NodeQuarantined, b.Store.Moves()[len(b.Store.Moves())-1].To)
		})
	}
}

func TestTemporalCancelIsTheCancelAction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.Env.RegisterDelayedCallback(b.Env.CancelWorkflow, time.Hour)
	err := b.Execute()
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, lifecycle.JobCancelled, b.Store.Last().Status)
	require.Equal(t, []string{"undo-two", "undo-one"}, b.out.made("undo"))
	require.Equal(t, "temporal_cancel", b.Store.Audit()[0].Via)
}

func TestRestartCleanCompensatesThenRunsFromTheTop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.at(time.Hour, lifecycle.ActionRestartClean, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, []string{"one", "two", "wait", "last", "undo-last", "undo-two", "undo-one", "one", "two", "wait", "last"}, b.out.calls)
	require.JSONEq(t, `{"state":{"trail":["one","two","wait","last"],"resets":1}}`, string(b.Store.Last().Checkpoint))
}

func TestRerunObservesAndSkipsWhatIsSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.found["one"], b.out.found["two"] = "done", "not yet"
	b.at(time.Hour, lifecycle.ActionRerun, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, []string{"one", "two", "wait", "look:one", "look:two", "two", "look:wait", "wait", "last"}, b.out.calls)
}

func TestFailedCompensationParksAndIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-two"] = times(4, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last() }, 2*time.Hour)
	b.at(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
	require.Equal(t, lifecycle.JobFailedManual, parked.Status)
	require.Len(t, b.out.made("undo-last"), 1, "what is undone is not undone again")
	require.Len(t, b.out.made("undo-two"), 5)
}

func TestStageDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(50, stagetest.Failure(lifecycle.FailMAASUnavailable))
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last() }, 3*time.Hour)
	b.at(4*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.Run()
	require.True(t, parked.Status.Parked())
	require.NotNil(t, parked.Failure)
}

func TestDatabaseAwayIsWaitedOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.FailWrites = 15
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
}

// TestLostWorkflowContinues: a new run takes up the projected stage, observes
// first, and repeats nothing that is done.
func TestLostWorkflowContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost := contract.Snapshot{
		Seq: 41, Status: lifecycle.JobRunning, Stage: "two", Reached: 10, Input: []byte(`{}`),
		Stages: []lifecycle.StageRow{
			{Ordinal: 1, Name: "one", State: lifecycle.StageSucceeded, Attempts: 1},
			{Ordinal: 2, Name: "two", State: lifecycle.StageRunning, Attempts: 1},
		},
		Checkpoint: []byte(`{"state":{"trail":["one"]}}`),
	}
	b.Store.Update(func(snap *contract.Snapshot) { *snap = lost })
	b.out.found["two"] = "done"
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, []string{"look:two", "look:wait", "wait", "last"}, b.out.calls)
	require.Greater(t, b.Store.Last().Seq, int64(41))
}

// TestObserved_TimeOutlivesTheRun: a run that takes over has looked at nothing, and does not say
// that it has.
func TestObserved_TimeOutlivesTheRun(t *testing.T) {
	t.Parallel()
	out := &outside{fail: map[string][]error{}, found: map[string]string{}, block: map[string]bool{}, left: map[string][]string{}}
	h := stagetest.New(t, func(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
		j := job()
		j.Observed = func(*state) lifecycle.Observed { return lifecycle.Observed{MAAS: "Ready", Power: "off"} }
		return stage.Run(ctx, j, in)
	}, contract.KindOnboarding, struct{}{}, out)
	out.fail["two"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	h.Act(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Reason: "test"})
	h.RunUntil(30*time.Minute, func() []any { return []any{out} })
	parked := h.Store.Last()
	require.True(t, parked.Status.Parked())
	require.NotNil(t, parked.Observed.At)
	h.Env.SetStartTime(parked.Observed.At.Add(24 * time.Hour))
	h.Act(time.Minute, lifecycle.ActionCancel, contract.ActionRequest{Reason: "test"})
	require.Equal(t, lifecycle.JobCancelled, h.Run().Status)
	require.Equal(t, *parked.Observed.At, *h.Store.Last().Observed.At)
}

// TestResetRunCatchesUp: a run that Temporal reset to an earlier point writes
// behind the stored sequence number, and finds its way to the front.
func TestResetRunCatchesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Env.RegisterDelayedCallback(func() {
		b.Store.Update(func(snap *contract.Snapshot) { snap.Seq += 100 })
	}, time.Minute)
	b.out.fail["two"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, lifecycle.JobCompleted, b.Store.Last().Status)
	require.Greater(t, b.Store.Last().Seq, int64(100))
}

// A run whose writes another run overtakes again and again ends with an error. It does not continue
// as if it had written.
func TestAStateThatIsNotStoredIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.LoseRaces = 3
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status, "three times it catches up")

	b = setup(t)
	b.Store.LoseRaces = 1000
	require.ErrorContains(t, b.Execute(), "another run of its workflow writes at the same time")
	require.Empty(t, b.out.calls, "nothing is done outside on a state that was not stored")
}

// TestAJobThatHasEndedTakesNoOtherWay: a workflow task ended the job and was lost. When it runs
// again, an action has come, and the task takes another way. Nothing is undone of a job that has
// ended, each action is decided on that, with an audit row, and the workflow ends as its job did.
func TestAJobThatHasEndedTakesNoOtherWay(t *testing.T) {
	t.Parallel()
	for _, how := range []lifecycle.JobStatus{lifecycle.JobCompleted, lifecycle.JobCancelled} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["two"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			asked := b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			second := b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
			var rows []lifecycle.StageRow
			b.Env.RegisterDelayedCallback(func() {
				b.Store.Update(func(snap *contract.Snapshot) {
					snap.Seq, snap.Status, snap.Failure = snap.Seq+2, how, nil
					rows = snap.Stages
				})
			}, 30*time.Minute)
			require.Equal(t, how, b.Run().Status)
			require.Empty(t, b.out.made("undo"))
			_, refused := contract.RefusalOf(second.Err)
			require.True(t, refused, "%v", second.Err)
			require.NoError(t, asked.Err)
			require.Equal(t, how, asked.Result.Status, "a job that has ended has nothing to cancel")
			audit := b.Store.Audit()
			require.Len(t, audit, 2)
			for _, e := range audit {
				require.Equal(t, map[lifecycle.Action]lifecycle.Effect{
					lifecycle.ActionCancel: lifecycle.EffectNoop, lifecycle.ActionRetryStage: lifecycle.EffectRefuse,
				}[e.Action], e.Effect)
			}
			require.Equal(t, rows, b.Store.Last().Stages, "what is stored of its stages stays")
		})
	}
}

// TestAnActionFindsTheEndFirst: the run waits in a stage when a refused action finds that the job
// has ended. The caller gets the refusal, it has one audit row, and the run ends without waiting
// longer.
func TestAnActionFindsTheEndFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.block["wait"] = true
	b.after(waiting, func() {
		b.Store.Update(func(snap *contract.Snapshot) { snap.Seq, snap.Status = snap.Seq+2, lifecycle.JobCancelled })
	})
	refused := b.at(waiting-100*time.Millisecond, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	_, is := contract.RefusalOf(refused.Err)
	require.True(t, is, "%v", refused.Err)
	require.Len(t, b.Store.Audit(), 1)
	require.Empty(t, b.out.made("last"), "nothing is done for a job that has ended")
}

// TestTheEndMovesTheNodeWhoeverStoresIt: two refused signals are written at the moment in which the
// job ends. The second one stores the end before the runner does.
func TestTheEndMovesTheNodeWhoeverStoresIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.block["last"] = true
	stored := b.Store.OnProject
	var once sync.Once
	b.Store.OnProject = func(p contract.Projection) {
		stored(p)
		if len(p.Actions) > 0 {
			once.Do(func() {
				b.out.release()
				<-time.After(100 * time.Millisecond) // the runner finds the stage done, and waits to store the end
			})
		}
	}
	b.after(waiting, func() {
		for _, who := range []string{"anna", "bert"} {
			b.Env.SignalWorkflow(string(lifecycle.ActionRetryStage), contract.ActionRequest{Actor: who})
		}
	})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Len(t, b.Store.Audit(), 2)
	moves := b.Store.Moves()
	require.Len(t, moves, 2)
	require.Equal(t, lifecycle.NodeActive, moves[1].To)
	for _, p := range b.Store.Steps() {
		if p.Status == lifecycle.JobCompleted {
			require.NotNil(t, stagetest.NodeMove(p), "the step that ends the job moves its node")
			break
		}
	}
}

// TestParkingAfterALostTakeOver: a workflow task stored that an operator took the job over, and was
// lost. When it runs again the stage fails first. The job stays with the operator, and goes on.
func TestParkingAfterALostTakeOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tries := lifecycle.Failure(lifecycle.FailMAASUnavailable).AutoAttempts
	b.out.fail["two"] = times(tries, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.Env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
		var name string
		if args.Get(&name) == nil && name == "two" && len(b.out.made("two")) == tries-1 {
			b.Store.Update(func(snap *contract.Snapshot) { snap.Seq, snap.Status = snap.Seq+2, lifecycle.JobFailedManual })
		}
	})
	parked := b.LastAt(30 * time.Minute)
	b.at(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, lifecycle.JobFailedManual, parked.Status)
	require.Equal(t, lifecycle.FailMAASUnavailable, parked.Failure.Class)
}

// TestAnActionDoesNotWriteWhileTheRunLeaves: a refused signal waits to be written when the runner
// finds that the job has ended by another way. The stored state of the job stays, and the refusal
// has its row.
func TestAnActionDoesNotWriteWhileTheRunLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ended contract.Snapshot
	b.Env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
		var name string
		if args.Get(&name) == nil && name == "last" {
			b.Store.Update(func(snap *contract.Snapshot) {
				snap.Seq, snap.Status, snap.Checkpoint = snap.Seq+2, lifecycle.JobCompleted, []byte(`{"state":{"trail":["by another way"]}}`)
				ended = *snap
			})
		}
	})
	var once sync.Once
	b.Store.Refuse = func(p contract.Projection) error {
		if p.Status == lifecycle.JobCompleted {
			once.Do(func() {
				b.Env.SignalWorkflow(string(lifecycle.ActionRetryStage), contract.ActionRequest{Actor: "anna"})
				<-time.After(100 * time.Millisecond)
			})
		}
		return nil
	}
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Len(t, b.Store.Audit(), 1)
	got := b.Store.Snapshot()
	require.Contains(t, string(got.Checkpoint), "by another way")
	require.Equal(t, ended.Stages, got.Stages)
}

// TestARefusalAfterTheEndMovesNothing: a signal comes while the end is stored, and its refusal was
// stored by a workflow task that was lost. It has its row, and the allocation is not moved twice.
func TestARefusalAfterTheEndMovesNothing(t *testing.T) {
	t.Parallel()
	out := &outside{fail: map[string][]error{}, found: map[string]string{}, block: map[string]bool{}, left: map[string][]string{}}
	h := stagetest.New(t, func(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
		j := job()
		j.Moves = func(_ *state, at contract.Step) *contract.Move {
			if at.Entered == "" {
				return nil
			}
			return contract.AllocationMove{}.Move("alc_1")
		}
		return stage.Run(ctx, j, in)
	}, contract.KindOnboarding, struct{}{}, out)
	h.Store.Refuse = func(p contract.Projection) error {
		switch {
		case p.Status != lifecycle.JobCompleted:
		case stagetest.NodeMove(p) != nil:
			h.Env.SignalWorkflow(string(lifecycle.ActionRetryStage), contract.ActionRequest{Actor: "anna"})
			<-time.After(100 * time.Millisecond)
		default:
			h.Store.LoseRaces, h.Store.Refuse = 1, nil
		}
		return nil
	}
	require.Equal(t, lifecycle.JobCompleted, h.Run().Status)
	require.Nil(t, h.Store.Refuse, "the refusal was stored twice")
	require.Len(t, h.Store.Audit(), 1)
	require.Nil(t, stagetest.MoveOf[contract.AllocationMove](h.Store.Last(), contract.SubjectAllocation))
}

// TestACancelWhileTheEndIsRefused: the node cannot follow, which is found after a cancel has come.
func TestACancelWhileTheEndIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.Refuse = func(p contract.Projection) error {
		if p.Status != lifecycle.JobCompleted {
			return nil
		}
		b.Env.SignalWorkflow(string(lifecycle.ActionCancel), contract.ActionRequest{Actor: "anna"})
		<-time.After(100 * time.Millisecond)
		return &lifecycle.IllegalTransitionError{Resource: "node", From: "offline", To: "active", Reason: "not by onboarding"}
	}
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.Equal(t, lifecycle.EffectCancel, b.Store.Audit()[0].Effect)
}
