package decommission

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// The Undo of each stage, and beside it the proof that reads the outside again. All are repeatable.

// withdrawDrain is sanitize.WithdrawTasks for the stages that end an allocation. It reads again
// whether one was ended, as the answer that said so may have been lost.
func withdrawDrain(ctx workflow.Context, s *State) error {
	if err := sanitize.WithdrawTasks(ctx, &s.State); err != nil || s.IsPXE() {
		return err
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "did a tenant leave", nodeActs.ReadNodeFacts, s.Job)
	if err == nil {
		s.RecordNode(f)
	}
	return err
}

// undoRemoval leaves a node whose removal was begun retired. An identity that
// was shut out stays so: the node can be removed again, and not reactivated.
func undoRemoval(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageRemoveNode
	if err := sanitize.WithdrawTasks(ctx, &s.State); err != nil {
		return err
	}
	if err := s.ReadNode(ctx, at); err != nil || s.Node.Status != lifecycle.NodeRemoving {
		return err
	}
	note := "the removal was cancelled; the identity is kept"
	if s.Uninstalled {
		note = "the removal was cancelled after the agent's identity had been shut out: the node cannot be reactivated, only removed"
	}
	return s.move(ctx, at, lifecycle.NodeRemoving, lifecycle.NodeRetired, lifecycle.OwnerDecommission, nil, note)
}

func verifyRemovalUndone(ctx workflow.Context, s *State) (string, error) {
	if err := s.ReadNode(ctx, lifecycle.StageRemoveNode); err != nil {
		return "", err
	}
	if s.Node.Status == lifecycle.NodeRemoving {
		return "the node is still removing", nil
	}
	return "", nil
}

func verifyTasksWithdrawn(ctx workflow.Context, s *State) (string, error) {
	return sanitize.VerifyTasksWithdrawn(ctx, &s.State)
}

func disarmNetboot(ctx workflow.Context, s *State) error {
	return sanitize.DisarmNetboot(ctx, &s.State)
}

func verifyDisarmed(ctx workflow.Context, s *State) (string, error) {
	return sanitize.VerifyDisarmed(ctx, &s.State)
}
