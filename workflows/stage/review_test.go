package stage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestLostBeforeItsFirstStep: the sweeper parked a job whose workflow never
// projected anything; resumed, it still takes the node into enrolling.
func TestLostBeforeItsFirstStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.Update(func(snap *contract.Snapshot) {
		snap.Status, snap.Failure = lifecycle.JobFailedRetryable, &contract.Failure{Class: lifecycle.FailWorkflowLost}
	})
	b.at(time.Minute, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Len(t, b.Store.Moves(), 2)
	require.Equal(t, lifecycle.NodeEnrolling, b.Store.Moves()[0].To)
	require.Equal(t, lifecycle.NodeActive, b.Store.Moves()[1].To)
}

// TestNodeThatCannotFollowParksTheJob: the last move is refused for good; the
// job waits for an operator and its workflow keeps running.
func TestNodeThatCannotFollowParksTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Store.Refuse = func(p contract.Projection) error {
		if p.Status != lifecycle.JobCompleted {
			return nil
		}
		return &lifecycle.IllegalTransitionError{Resource: "node", From: "offline", To: "active", Reason: "not by onboarding"}
	}
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last(); b.Store.Refuse = nil }, time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
	require.Equal(t, lifecycle.JobFailedManual, parked.Status)
	require.Equal(t, lifecycle.FailStateDisagreement, parked.Failure.Class)
	require.Contains(t, parked.Failure.Message, "the node cannot follow")
}

// TestAdoptionDuringCleanUpIsRefused: a job that is half undone must not go on.
func TestAdoptionDuringCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-one"] = times(4, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	adopt := b.at(2*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
	b.at(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.ErrorContains(t, adopt.Err, "clean-up has begun")
	require.Empty(t, b.out.made("last"))
}

// TestRefusedAdoptionsDoNotMoveTheDeadline: a stage interrupted in vain ends when
// it would have ended.
func TestRefusedAdoptionsDoNotMoveTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.block["wait"] = true
	var before, after contract.Projection
	b.after(waiting, func() { before = b.Store.Last() })
	adopt := b.at(waiting, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "look"})
	b.after(waiting-400*time.Millisecond, func() { after = b.Store.Last() })
	b.at(waiting-500*time.Millisecond, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.ErrorContains(t, adopt.Err, "is not a pair that may be adopted")
	require.Equal(t, "wait", before.Stage)
	require.Equal(t, lifecycle.StageRunning, after.Stages[2].State)
	require.NotNil(t, before.StageDeadline)
	require.Equal(t, before.StageDeadline, after.StageDeadline)
	require.Equal(t, before.Stages[2].StartedAt, after.Stages[2].StartedAt)
}

// TestUpdateDuringATemporalCancel gets its answer and its audit row.
func TestUpdateDuringATemporalCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-one"] = times(2, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.Env.RegisterDelayedCallback(b.Env.CancelWorkflow, time.Hour)
	late := b.at(time.Hour+time.Second, lifecycle.ActionCancel, contract.ActionRequest{Reason: "me too"})
	_ = b.Execute()
	require.NoError(t, late.Err)
	require.Equal(t, lifecycle.EffectNoop, late.Result.Effect)
	require.NotNil(t, firstBy(b.Store.Audit(), "ops", "me too"))
	require.Equal(t, lifecycle.JobCancelled, b.Store.Last().Status)
}

// TestLongMessagesStayReadable: a message is cut between characters.
func TestLongMessagesStayReadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["two"] = times(1, stagetest.FailureSaying(lifecycle.FailMAASRejected, "x"+strings.Repeat("ü", 700)))
	var parked contract.Projection
	b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last() }, time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	b.Run()
	require.Len(t, parked.Failure.Message, 999)
	require.True(t, strings.HasSuffix(parked.Failure.Message, "ü"))
}

func firstBy(entries []contract.ActionEntry, actor, reason string) *contract.ActionEntry {
	for _, e := range entries {
		if e.Actor == actor && e.Reason == reason {
			return &e
		}
	}
	return nil
}
