package machinerun

import (
	"time"

	"go.temporal.io/sdk/workflow"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// tryNetwork has the machine try a network configuration and confirms it where the machine answers
// with it. The machine restores what was there before by itself otherwise.
func tryNetwork(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		of := s.of(step.Name)
		before := of.Network
		note := func() *Sent {
			of.Network = &Sent{Attempt: s.attempt(step), EndsBy: workflow.Now(ctx).Add(timeoutOf(step) + startSlack)}
			return of.Network
		}
		note()
		if err := stage.Save(ctx); err != nil { // a workflow that is lost now has it taken back all the same
			return err
		}
		facts, err := do(ctx, step, "try the network configuration of "+step.Name, machine.TryNetwork, func(again bool) machineact.StepIn {
			args := s.stepIn(step)
			now := note()
			args.Again = before != nil && now.Attempt == before.Attempt || again // a lost workflow may have sent it, or an interrupted try
			return args
		})
		if end := machineact.EndOf(err); err == nil || end != "" {
			of.Network = nil
		}
		s.Moved = s.Moved || err == nil && facts.Moved
		return s.endAttempt(step, err)
	}
}

// isNetworkPending reports whether the machine may wait for the confirmation of a change.
func isNetworkPending(step contract.RunStep) func(*State, lifecycle.StageRow) bool {
	return func(s *State, _ lifecycle.StageRow) bool {
		return s.of(step.Name).Network != nil
	}
}

// revertNetwork has the machine restore what was there before. A machine that does not answer does
// so by itself after the time for the confirmation.
func revertNetwork(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		sent := s.of(step.Name).Network
		if sent == nil {
			return nil
		}
		in := machineact.StopIn{StepIn: s.stepIn(step), EndsBy: sent.EndsBy.Add(time.Minute)}
		in.Attempt = sent.Attempt
		facts, err := stage.Do(ctx, stage.KindPoll, "restore the network of before "+step.Name, machine.RevertNetwork, in)
		if err == nil {
			s.of(step.Name).Network = nil
			s.Moved = s.Moved || facts.Moved
		}
		return err
	}
}
