package stage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestLostBeforeItsFirstStep: the sweeper parked a job whose workflow never
// projected anything; resumed, it still takes the node into enrolling.
func TestLostBeforeItsFirstStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.snap.Status = lifecycle.JobFailedRetryable
	b.store.snap.Failure = &contract.Failure{Class: lifecycle.FailWorkflowLost}
	b.at(time.Minute, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.Len(t, b.store.moves, 2)
	require.Equal(t, lifecycle.NodeEnrolling, b.store.moves[0].To)
	require.Equal(t, lifecycle.NodeActive, b.store.moves[1].To)
}

// TestNodeThatCannotFollowParksTheJob: the last move is refused for good; the
// job waits for a person and its workflow lives on.
func TestNodeThatCannotFollowParksTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.refuse = func(p contract.Projection) error {
		if p.Status != lifecycle.JobCompleted {
			return nil
		}
		return &lifecycle.IllegalTransitionError{Resource: "node", From: "offline", To: "active", Reason: "not by onboarding"}
	}
	var parked contract.Projection
	b.env.RegisterDelayedCallback(func() { parked = b.store.last; b.store.refuse = nil }, time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, b.run(t).Status)
	require.Equal(t, lifecycle.JobFailedManual, parked.Status)
	require.Equal(t, lifecycle.FailStateDisagreement, parked.Failure.Class)
	require.Contains(t, parked.Failure.Message, "the node cannot follow")
}

// TestAdoptionDuringCleanUpIsRefused: a job that is half undone must not go on.
func TestAdoptionDuringCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-one"] = times(4, failure(lifecycle.FailMAASUnavailable))
	b.at(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	adopt := b.at(2*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
	b.at(3*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.run(t).Status)
	require.ErrorContains(t, adopt.err, "clean-up has begun")
	require.Empty(t, b.out.made("last"))
}

// TestRefusedAdoptionsDoNotMoveTheDeadline: a stage interrupted in vain ends when
// it would have ended.
func TestRefusedAdoptionsDoNotMoveTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.block["wait"] = true
	var before, after contract.Projection
	b.after(waiting, func() { before = b.store.last })
	adopt := b.at(waiting, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "look"})
	b.after(waiting-400*time.Millisecond, func() { after = b.store.last })
	b.at(waiting-500*time.Millisecond, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.run(t).Status)
	require.ErrorContains(t, adopt.err, "is not a pair that may be adopted")
	require.Equal(t, "wait", before.Stage)
	require.Equal(t, contract.StageRunning, after.Stages[2].State)
	require.NotNil(t, before.StageDeadline)
	require.Equal(t, before.StageDeadline, after.StageDeadline)
	require.Equal(t, before.Stages[2].StartedAt, after.Stages[2].StartedAt)
}

// TestUpdateDuringATemporalCancel gets its answer and its audit row.
func TestUpdateDuringATemporalCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-one"] = times(2, failure(lifecycle.FailMAASUnavailable))
	b.env.RegisterDelayedCallback(b.env.CancelWorkflow, time.Hour)
	late := b.at(time.Hour+time.Second, lifecycle.ActionCancel, contract.ActionRequest{Reason: "me too"})
	b.env.ExecuteWorkflow(testJob, input)
	require.True(t, b.env.IsWorkflowCompleted())
	require.NoError(t, late.err)
	require.Equal(t, lifecycle.EffectNoop, late.result.Effect)
	require.NotNil(t, firstBy(b.store.audit, "ops", "me too"))
	require.Equal(t, lifecycle.JobCancelled, b.store.last.Status)
}

// TestLongMessagesStayReadable: a message is cut between characters.
func TestLongMessagesStayReadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["two"] = times(1, failureSaying(lifecycle.FailMAASRejected, "x"+strings.Repeat("ü", 700)))
	var parked contract.Projection
	b.env.RegisterDelayedCallback(func() { parked = b.store.last }, time.Hour)
	b.at(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
	b.run(t)
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
