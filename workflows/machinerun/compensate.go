package machinerun

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// mayRun reports whether the command of a step may still run on the machine: what became of it is
// not known, however its stage ended. A workflow that was lost took with it what it had sent.
func mayRun(step contract.RunStep) func(*State, lifecycle.StageRow) bool {
	return func(s *State, row lifecycle.StageRow) bool {
		return s.of(step.Name).Running != nil || row.State == lifecycle.StagePending || row.State == lifecycle.StageRunning || row.FailureClass == lifecycle.FailWorkflowLost
	}
}

// stopCommand ends a command that may still run. The machine itself ends it after its timeout, so
// that a machine that does not answer holds the run no longer. That moment is the same at every
// try.
func stopCommand(step contract.RunStep) func(workflow.Context, *State) error {
	return stop(step, "stop the command of "+step.Name, machine.StopCommand)
}

// stop ends what may still run of a step.
func stop(step contract.RunStep, summary string, act func(context.Context, machineact.StopIn) (machineact.StepFacts, error)) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		sent := s.of(step.Name).Running
		if sent == nil {
			sent = s.noteSent(ctx, step)
		}
		in := machineact.StopIn{StepIn: s.stepIn(step), EndsBy: sent.EndsBy.Add(time.Minute)} // SIGKILL, and other clocks
		in.Attempt = sent.Attempt
		_, err := stage.Do(ctx, stage.KindPoll, summary, act, in)
		if err == nil {
			s.of(step.Name).Running = nil
		}
		return err
	}
}

// isNetbootSet reports whether the next boot may come from the device that the step has set. After
// attempts that all failed before they sent anything it may not: a BMC that does not answer keeps
// no run from its end.
func isNetbootSet(step contract.RunStep) func(*State, lifecycle.StageRow) bool {
	return func(s *State, row lifecycle.StageRow) bool {
		return s.Netboot == step.Name || row.State != lifecycle.StageSucceeded && s.of(step.Name).NetbootUnsent < row.Attempts
	}
}

func clearNetboot(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		_, err := stage.Do(ctx, stage.KindPoll, "clear the device of the next boot", machine.ClearNetboot, s.stepIn(step))
		if err == nil && s.Netboot == step.Name {
			s.Netboot = ""
		}
		return err
	}
}

func verifyNetbootCleared(step contract.RunStep) func(workflow.Context, *State) (string, error) {
	return func(ctx workflow.Context, s *State) (string, error) {
		facts, err := stage.Do(ctx, stage.KindPoll, "read the device of the next boot", machine.ReadNetboot, s.stepIn(step))
		if err != nil || facts.Netboot == "" {
			return "", err
		}
		return "the next boot comes from " + facts.Netboot, nil
	}
}
