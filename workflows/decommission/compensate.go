package decommission

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// What each stage's Undo does, and beside it the proof that reads the outside again. All are
// repeatable.

// withdrawTasks withdraws the tasks that no agent has begun, and waits for the end of the others: an
// agent does not stop what it has begun.
func withdrawTasks(ctx workflow.Context, s *State) error {
	in := agenttask.RevokeTasksIn{JobRef: s.Job}
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, in); err != nil {
		return err
	}
	_, err := stage.Do(ctx, stage.KindPoll, "wait for what the agent has begun", agent.WaitForTasks, s.awaitTasksIn(ctx, false))
	return err
}

// withdrawDrain is withdrawTasks for the stages that end an allocation. It reads again whether one
// was ended, as the answer that said so may have been lost.
func withdrawDrain(ctx workflow.Context, s *State) error {
	if err := withdrawTasks(ctx, s); err != nil || s.pxe() {
		return err
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "did a tenant leave", nodeActs.ReadNodeFacts, s.Job)
	if err == nil {
		s.recordNode(f)
	}
	return err
}

// verifyTasksWithdrawn proves withdrawTasks.
func verifyTasksWithdrawn(ctx workflow.Context, s *State) (string, error) {
	left, err := stage.Do(ctx, stage.KindLocalWork, "no task of the job is open", agent.WaitForTasks, s.awaitTasksIn(ctx, true))
	if err != nil || left.Done {
		return "", err
	}
	return left.Note, nil
}

func (s *State) awaitTasksIn(ctx workflow.Context, observe bool) agenttask.WaitForTasksIn {
	in := agenttask.WaitForTasksIn{JobRef: s.Job, Until: workflow.Now(ctx).Add(awaitTasksLimit), Poll: s.Config.Profile.PollInterval}
	in.ObserveOnly = observe
	return in
}

// awaitTasksLimit is how long a clean-up waits for what an agent has begun; it
// has four tries.
const awaitTasksLimit = 15 * time.Minute

// markIrreversible withdraws the tasks that no agent has begun. It does not wait for an erasure,
// which may take half a day, and records the stage once an agent has begun to erase.
func markIrreversible(name string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job}); err != nil {
			return err
		}
		begun, err := stage.Do(ctx, stage.KindLocalWork, "was anything erased", agent.CheckNothingErased, s.Job)
		if err == nil && !begun.Done {
			s.IrreversibleStage = name
		}
		return err
	}
}

// undoRelease takes back a deployment of this job; that the machine was
// released, and perhaps erased, nobody can.
func undoRelease(ctx workflow.Context, s *State) error {
	s.IrreversibleStage = lifecycle.StageReleaseMAAS
	if s.isFullDecommission() {
		return nil
	}
	return undoDeployment(ctx, s)
}

// undoDeployment releases the machine where this job has deployed it, and
// shuts out the agent that it installed. What carries no mark of this job is
// left alone.
func undoDeployment(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageReleaseMAAS
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.machineIn(at))
	if err != nil {
		return err
	}
	if !f.Foreign && f.Status != "absent" {
		in := maasact.ReleaseIn{MachineIn: s.machineIn(at), OnlyOurs: true, DeployStarted: true}
		if f, err = stage.Do(ctx, stage.KindPoll, "release what this job deployed", maas.ReturnToReady, in); err != nil {
			return err
		}
	}
	s.recordMachine(f)
	// Rendered before anything carries a mark, so always.
	_, err = stage.Do(ctx, stage.KindLocalWork, "revoke token, discard user-data", node.RevokeBootstrap, s.Job.At(at))
	return err
}

// verifyDeploymentUndone proves takeBackDeployment.
func verifyDeploymentUndone(ctx workflow.Context, s *State) (string, error) {
	if s.isFullDecommission() {
		return "", nil
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "no deployment of this job is left", maas.ObserveMachine, s.machineIn(lifecycle.StageReleaseMAAS))
	if err != nil || f.Foreign || f.Status == "absent" {
		return "", err
	}
	return "machine " + s.Node.SystemID + " is still " + f.Status + " for this job", nil
}

// undoRemoval leaves a node whose removal was begun retired. An identity that
// was shut out stays so: the node can be removed again, and not reactivated.
func undoRemoval(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageRemoveNode
	if err := withdrawTasks(ctx, s); err != nil {
		return err
	}
	if err := s.readNode(ctx, at); err != nil || s.Node.Status != lifecycle.NodeRemoving {
		return err
	}
	note := "the removal was cancelled; the identity is kept"
	if s.Uninstalled {
		note = "the removal was cancelled after the agent's identity had been shut out: the node cannot be reactivated, only removed"
	}
	return s.move(ctx, at, lifecycle.NodeRemoving, lifecycle.NodeRetired, lifecycle.OwnerDecommission, nil, note)
}

func verifyRemovalUndone(ctx workflow.Context, s *State) (string, error) {
	if err := s.readNode(ctx, lifecycle.StageRemoveNode); err != nil {
		return "", err
	}
	if s.Node.Status == lifecycle.NodeRemoving {
		return "the node is still removing", nil
	}
	return "", nil
}

// disarmNetboot takes an armed netboot back: from then on the machine boots by the
// node's state. A live system that runs goes on until it is restarted.
func disarmNetboot(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "disarm the netboot", nodeActs.DisarmNetboot, s.Job)
	return err
}

// verifyDisarmed proves disarm.
func verifyDisarmed(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "no netboot of the job is armed", nodeActs.CheckNetboot, s.Job)
	if err != nil || !f.Armed {
		return "", err
	}
	return f.Note, nil
}
