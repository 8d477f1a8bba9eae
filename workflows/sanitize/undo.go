package sanitize

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// WithdrawTasks withdraws the tasks that no agent has begun, and waits for the end of the others:
// an agent does not stop what it has begun.
func WithdrawTasks(ctx workflow.Context, s *State) error {
	in := agenttask.RevokeTasksIn{JobRef: s.Job}
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, in); err != nil {
		return err
	}
	_, err := stage.Do(ctx, stage.KindPoll, "wait for what the agent has begun", agent.WaitForTasks, s.awaitTasksIn(ctx, false))
	return err
}

// VerifyTasksWithdrawn proves WithdrawTasks.
func VerifyTasksWithdrawn(ctx workflow.Context, s *State) (string, error) {
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
	if s.IsFullDecommission() {
		return nil
	}
	return undoDeployment(ctx, s)
}

// undoDeployment releases the machine where this job has deployed it, and shuts out the agent that
// it installed. A machine that carries no mark of this job is left alone.
func undoDeployment(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageReleaseMAAS
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.MachineIn(at))
	if err != nil {
		return err
	}
	if !f.Foreign && f.Status != "absent" {
		in := maasact.ReleaseIn{MachineIn: s.MachineIn(at), OnlyOurs: true, DeployStarted: true}
		if f, err = stage.Do(ctx, stage.KindPoll, "release what this job deployed", maas.ReturnToReady, in); err != nil {
			return err
		}
	}
	s.RecordMachine(f)
	// Rendered before anything carries a mark, so always.
	_, err = stage.Do(ctx, stage.KindLocalWork, "revoke token, discard user-data", node.RevokeBootstrap, s.Job.At(at))
	return err
}

// verifyDeploymentUndone proves undoDeployment.
func verifyDeploymentUndone(ctx workflow.Context, s *State) (string, error) {
	if s.IsFullDecommission() {
		return "", nil
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "no deployment of this job is left", maas.ObserveMachine, s.MachineIn(lifecycle.StageReleaseMAAS))
	if err != nil || f.Foreign || f.Status == "absent" {
		return "", err
	}
	return "machine " + s.Node.SystemID + " is still " + f.Status + " for this job", nil
}

// DisarmNetboot takes an armed netboot back: from then on the machine boots by the
// node's state. A live system that runs goes on until it is restarted.
func DisarmNetboot(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "disarm the netboot", nodeActs.DisarmNetboot, s.Job)
	return err
}

// VerifyDisarmed proves DisarmNetboot.
func VerifyDisarmed(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "no netboot of the job is armed", nodeActs.CheckNetboot, s.Job)
	if err != nil || !f.Armed {
		return "", err
	}
	return f.Note, nil
}
