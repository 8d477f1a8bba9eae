package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestCleanUpIsProvenNewestFirst: each undo is followed by its proof, and when
// all is undone everything is looked at once more.
func TestCleanUpIsProvenNewestFirst(t *testing.T) {
	t.Parallel()
	undone := []string{"one", "two", "wait", "last", "undo-last", "left-last", "undo-two", "left-two", "undo-one", "left-one", "left-last", "left-two", "left-one"}
	for a, want := range map[lifecycle.Action][]string{
		lifecycle.ActionCancel:       undone,
		lifecycle.ActionRestartClean: append(append([]string{}, undone...), "one", "two", "wait", "last"),
	} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			b.at(time.Hour, a, contract.ActionRequest{})
			b.Run()
			require.Equal(t, want, b.out.all)
			cleaning := 0
			for _, s := range b.Store.Steps() {
				switch {
				case s.Status == lifecycle.JobCompensating:
					cleaning++
					require.NotNil(t, s.StageDeadline, "a clean-up has a deadline as every stage has")
				case s.Status != lifecycle.JobRunning:
					require.Nil(t, s.StageDeadline)
				}
			}
			require.Equal(t, 4, cleaning, "when it begins, and after each undo")
		})
	}
}

// TestAnUndoThatLiesIsCaught: it says that it is done, and what it should have
// removed is still there. Nothing older is undone over it, nothing starts again,
// and the failure tells the operator what is left.
func TestAnUndoThatLiesIsCaught(t *testing.T) {
	t.Parallel()
	for a, ends := range map[lifecycle.Action]lifecycle.JobStatus{
		lifecycle.ActionCancel: lifecycle.JobCancelled, lifecycle.ActionRestartClean: lifecycle.JobCompleted,
	} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			b.out.isLeft("two", "machine m4 is still Deployed")
			b.at(time.Hour, a, contract.ActionRequest{})
			var parked contract.Projection
			var before []string
			b.Env.RegisterDelayedCallback(func() {
				parked, before = b.Store.Last(), b.out.made("")
				b.out.isLeft("two")
			}, 2*time.Hour)
			b.at(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
			require.Equal(t, ends, b.Run().Status)
			require.Equal(t, []string{"one", "two", "wait", "last", "undo-last", "undo-two", "undo-two", "undo-two", "undo-two"}, before)
			require.Equal(t, lifecycle.JobFailedManual, parked.Status)
			require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
			require.Equal(t, "two", parked.Failure.Stage)
			require.Contains(t, parked.Failure.Message, "machine m4 is still Deployed")
			require.Equal(t, lifecycle.StageFailed, parked.Stages[1].State)
			require.Contains(t, parked.Stages[1].Message, "machine m4 is still Deployed")
			require.Equal(t, []string{"undo-two", "undo-one"}, b.out.made("undo")[5:], "what is proven is not undone again")
		})
	}
}

// TestWhatComesBackIsCaught: it was gone when its stage was undone, and is there
// again when all is undone.
func TestWhatComesBackIsCaught(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.isLeft("last", "", "the agent enrolled again")
	b.at(time.Hour, lifecycle.ActionRestartClean, contract.ActionRequest{})
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last(); b.out.isLeft("last") }, 2*time.Hour)
	b.at(3*time.Hour, lifecycle.ActionRestartClean, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
	require.Equal(t, "last was undone, but it is not clean: the agent enrolled again", parked.Failure.Message)
	require.Equal(t, []string{"undo-last", "undo-two", "undo-one", "undo-last"}, b.out.made("undo"))
}

// TestAProofThatCannotBeReadIsNoProof.
func TestAProofThatCannotBeReadIsNoProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.isLeft("one", "error", "error", "") // read at the third try
	b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.Len(t, b.out.made("undo-one"), 3)

	b = setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.isLeft("one", "error")
	b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last(); b.out.isLeft("one") }, 2*time.Hour)
	b.at(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
}
