package machinerun

import (
	"go.temporal.io/sdk/workflow"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// joinCluster has the machine join its cluster. A join is a command that may be left running.
func joinCluster(step contract.RunStep) func(workflow.Context, *State) error {
	return send(step, "join the cluster", machine.JoinCluster)
}

// undoJoin ends a join that may still run, and deletes its token.
func undoJoin(step contract.RunStep) func(workflow.Context, *State) error {
	return stop(step, "delete the bootstrap token of "+step.Name, machine.UndoJoin)
}

func verifyNoToken(step contract.RunStep) func(workflow.Context, *State) (string, error) {
	return func(ctx workflow.Context, s *State) (string, error) {
		facts, err := stage.Do(ctx, stage.KindPoll, "look for bootstrap tokens of "+step.Name, machine.ReadJoin, s.stepIn(step))
		return facts.Note, err
	}
}

// bootIDs returns the boots that the run's restarts have ended, in the order of the steps' names.
func bootIDs(s *State) []string {
	out := make([]string, 0, len(s.Steps))
	for _, step := range workflow.DeterministicKeys(s.Steps) {
		if of := s.Steps[step]; of.Ordered {
			out = append(out, of.BootID)
		}
	}
	return out
}

// verifyInCluster waits until the machine is a ready node by a boot that none of the run's restarts
// has ended.
func verifyInCluster(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		_, err := do(ctx, step, "wait for the node in its cluster", machine.VerifyInCluster, func(again bool) machineact.VerifyIn {
			return machineact.VerifyIn{StepIn: s.inOf(step)(again), Before: bootIDs(s)}
		})
		return s.endAttempt(step, err)
	}
}
