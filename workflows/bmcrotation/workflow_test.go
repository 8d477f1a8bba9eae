package bmcrotation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/bmcrotation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// callOf is the call of each stage.
var callOf = map[string]string{
	lifecycle.StagePrepareCandidate: "prepare", lifecycle.StageApplyToBMC: "apply", lifecycle.StageVerifyLogin: "verify",
	lifecycle.StageUpdateMAASPower: "maas:bmc/new", lifecycle.StageCommitCredential: "commit",
}

var wholeStory = []string{"prepare", "apply", "verify", "maas:bmc/new", "commit"}

func TestStagesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	var names []string
	for _, st := range bmcrotation.Job(contract.JobInput{}).Stages {
		names = append(names, st.Name)
		require.NotEmpty(t, st.Doc, st.Name)
		require.Positive(t, st.Weight, st.Name)
		require.Positive(t, st.Deadline, st.Name)
	}
	require.Equal(t, lifecycle.BMCRotationStages(), names)
	require.Equal(t, names, contract.Stages(contract.KindBMCRotation))
}

func TestARotation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, wholeStory, b.rack.calls)
	require.Equal(t, []string{"bmc/new", "bmc/new", "bmc/new"}, []string{b.rack.onBMC, b.rack.inMAAS, b.rack.current})
	require.Equal(t, 100, b.Store.Last().Progress)
	require.Equal(t, "on", b.Store.Last().Observed.Power)
	b.requireSafe()
}

func TestABMCWithoutANode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.In.NodeID, b.In.SiteID = "", ""
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, []string{"prepare", "apply", "verify", "commit"}, b.rack.calls)
	require.Equal(t, lifecycle.StageSkipped, b.Store.Last().Stages[3].State)
	b.requireSafe()
}

func TestARequestWithoutABMCIsNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.SetRequest(contract.BMCRotationInput{})
	require.ErrorContains(t, b.Execute(), "names no BMC")
}

// TestEachStageParksAndIsRetried, with the class that its activity gave.
func TestEachStageParksAndIsRetried(t *testing.T) {
	t.Parallel()
	for name, call := range callOf {
		for _, again := range []lifecycle.Action{lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun} {
			t.Run(name+"/"+string(again), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.rack.fail[call] = []error{stagetest.Failure(lifecycle.FailBMCAuthRejected)}
				parked := b.LastAt(time.Hour)
				b.at(2*time.Hour, again, false)
				require.Equal(t, lifecycle.JobCompleted, b.run())
				require.Equal(t, lifecycle.JobFailedManual, parked.Status)
				require.Equal(t, name, parked.Failure.Stage)
				require.Equal(t, lifecycle.FailBMCAuthRejected, parked.Failure.Class)
				require.Len(t, b.made(call), 2, "a rejected login is not tried again by itself")
				b.requireSafe()
			})
		}
	}
}

// TestCancelAtEachStage ends with the login that the BMC takes; MAAS is told of
// it where it was, or may have been, told of the other one, or of none.
func TestCancelAtEachStage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		login string
		calls []string
	}{
		lifecycle.StagePrepareCandidate: {"bmc/old", []string{"undo"}},
		lifecycle.StageApplyToBMC:       {"bmc/old", []string{"undo", "undo"}},
		lifecycle.StageVerifyLogin:      {"bmc/new", []string{"undo", "maas:bmc/new", "look", "undo", "look"}},
		lifecycle.StageUpdateMAASPower:  {"bmc/new", []string{"maas:bmc/new", "undo", "maas:bmc/new", "look", "undo", "look"}},
		lifecycle.StageCommitCredential: {"bmc/new", []string{"maas:bmc/new", "undo", "maas:bmc/new", "look", "undo", "look"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.rack.fail[callOf[name]] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			b.at(time.Hour, lifecycle.ActionCancel, false)
			require.Equal(t, lifecycle.JobCancelled, b.run())
			require.Equal(t, want.calls, b.made("undo", "maas:bmc/old", "maas:bmc/new", "look"))
			require.Equal(t, []string{want.login, want.login, want.login, ""}, []string{b.rack.onBMC, b.rack.inMAAS, b.rack.current, b.rack.candidate})
			b.requireSafe()
		})
	}
}

// TestAnUndoThatLeavesTheRotationOpenIsCaught: what it says of itself is no
// proof.
func TestAnUndoThatLeavesTheRotationOpenIsCaught(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["apply"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
	b.rack.falseUndos = 2 // of both stages
	b.at(time.Hour, lifecycle.ActionCancel, false)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Empty(t, b.rack.candidate)
	require.Greater(t, len(b.made("undo")), 2, "it was asked again")
	b.requireSafe()
}

// TestCancelGivesMAASTheOldLoginBack: the BMC said that it took the candidate,
// let it in, and came back with the old one.
func TestCancelGivesMAASTheOldLoginBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["commit"] = []error{stagetest.Failure(lifecycle.FailStateDisagreement)}
	b.After(time.Minute, func() { b.rack.onBMC = "bmc/old" })
	b.at(time.Hour, lifecycle.ActionCancel, false)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, []string{"bmc/old", "bmc/old"}, []string{b.rack.inMAAS, b.rack.current})
	b.requireSafe()
}

func TestRestartClean(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["apply"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
	b.at(time.Hour, lifecycle.ActionRestartClean, false)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.Equal(t, append([]string{"prepare", "apply", "undo", "undo", "check", "check"}, wholeStory...), b.rack.calls)
	b.requireSafe()
}

// TestCleanUpThatFailsIsTakenUpAgain: MAAS is away while it should be told.
func TestCleanUpThatFailsIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["verify"] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
	for range 4 {
		b.rack.fail["maas:bmc/new"] = append(b.rack.fail["maas:bmc/new"], stagetest.Failure(lifecycle.FailMAASUnavailable))
	}
	b.at(time.Hour, lifecycle.ActionCancel, false)
	parked := b.LastAt(2 * time.Hour)
	b.at(3*time.Hour, lifecycle.ActionResume, false)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
	require.Equal(t, "bmc/new", b.rack.inMAAS)
	b.requireSafe()
}

// An operator may accept the risk of what MAAS has. Whether the BMC accepts a password cannot be
// observed.
func TestAdoption(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["maas:bmc/new"] = []error{stagetest.Failure(lifecycle.FailStateDisagreement)}
	refused := b.at(time.Hour, lifecycle.ActionAdopt, false)
	b.at(2*time.Hour, lifecycle.ActionAdopt, true)
	require.Equal(t, lifecycle.JobReconciled, b.run())
	require.ErrorContains(t, refused.Err, "may be adopted")
	require.Equal(t, "bmc/old", b.rack.inMAAS)
	require.Equal(t, "bmc/new", b.rack.current)

	b = setup(t)
	b.rack.fail["apply"] = []error{stagetest.Failure(lifecycle.FailBMCAuthRejected)}
	refused = b.at(time.Hour, lifecycle.ActionAdopt, true)
	b.at(2*time.Hour, lifecycle.ActionCancel, false)
	require.Equal(t, lifecycle.JobCancelled, b.run())
	require.ErrorContains(t, refused.Err, "has no outside state to observe")
}

func TestAFrozenRotationDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rack.fail["verify"] = []error{stagetest.Failure(lifecycle.FailBMCUnreachable), stagetest.Failure(lifecycle.FailBMCUnreachable), stagetest.Failure(lifecycle.FailBMCUnreachable)}
	b.at(time.Hour, lifecycle.ActionMarkManual, false)
	frozen := b.LastAt(5 * time.Hour)
	b.at(6*time.Hour, lifecycle.ActionResume, false)
	require.Equal(t, lifecycle.JobCompleted, b.run())
	require.True(t, frozen.Frozen)
	b.requireSafe()
}

// TestALostWorkflowGoesOn from every stage, with nothing set twice by itself:
// each activity is asked again and decides by what it reads.
func TestALostWorkflowGoesOn(t *testing.T) {
	t.Parallel()
	for i, name := range lifecycle.BMCRotationStages() {
		t.Run(fmt.Sprintf("%d_%s", i, name), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.rack.fail[callOf[name]] = []error{stagetest.Failure(lifecycle.FailConfiguration)}
			b.loseRun()
			b.at(time.Hour, lifecycle.ActionResume, false)
			require.Equal(t, lifecycle.JobCompleted, b.run())
			require.Equal(t, []string{"bmc/new", "bmc/new", "bmc/new"}, []string{b.rack.onBMC, b.rack.inMAAS, b.rack.current})
			b.requireSafe()
		})
	}
}
