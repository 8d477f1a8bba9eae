package machinerun

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// repave installs the machine again: by its provider, or through the node that it is linked to,
// with the stages of a reimage. A device of the next boot counted for this installation.
func repave(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		facts, err := do(ctx, step, "compare the machine with its record", machine.CheckMachine, s.inOf(step))
		switch {
		case err != nil:
		case facts.ByNode:
			err = s.repaveNode(ctx, step, facts.Series)
		default:
			_, err = do(ctx, step, "install the image of "+step.Name, machine.RepaveMachine, s.inOf(step))
		}
		if err == nil && s.Netboot != "" {
			err = clearNetboot(contract.RunStep{Name: s.Netboot})(ctx, s)
		}
		return s.endAttempt(step, err)
	}
}

// repaveNode installs the machine of a node through MAAS, within the time of one attempt.
func (s *State) repaveNode(ctx workflow.Context, step contract.RunStep, series string) error {
	of := s.of(step.Name)
	if of.Repave == nil {
		of.Repave = sanitize.NewRepave(s.Job, s.Request.NodeFrom, series)
	}
	s.Moved = false
	return of.Repave.Repave(stage.Limit(ctx, timeoutOf(step)), stage.Save)
}

// isRepaveBegun reports whether a repave was begun and has not ended well.
func isRepaveBegun(step contract.RunStep) func(*State, lifecycle.StageRow) bool {
	return func(s *State, row lifecycle.StageRow) bool {
		return row.State != lifecycle.StageSucceeded && s.of(step.Name).Repave != nil
	}
}

func undoRepave(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error { return s.of(step.Name).Repave.UndoRepave(ctx) }
}

func verifyRepaveUndone(step contract.RunStep) func(workflow.Context, *State) (string, error) {
	return func(ctx workflow.Context, s *State) (string, error) {
		return s.of(step.Name).Repave.VerifyRepaveUndone(ctx)
	}
}

// returnMachine proves that the machine may leave for its vendor.
func returnMachine(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		_, err := do(ctx, step, "look for the proof that the machine may leave", machine.ReturnMachine, s.inOf(step))
		return s.endAttempt(step, err)
	}
}

// lastRepave returns the repave of the run that began last; one that has not begun where none has.
func (s *State) lastRepave() *sanitize.Repave {
	for i := len(s.Request.Steps) - 1; i >= 0; i-- {
		if of := s.Steps[s.Request.Steps[i].Name]; of != nil && of.Repave != nil {
			return of.Repave
		}
	}
	return sanitize.NewRepave(s.Job, s.Request.NodeFrom, "")
}

// installedAt returns the addresses of the machine that the run has installed through its node. It
// returns none where a later step has changed the network: then the record of the machine says
// where it answers.
func (s *State) installedAt() []string {
	if s.Moved {
		return nil
	}
	return s.lastRepave().InstalledAt()
}

// finished is the move of the node of a run that has succeeded, nil where the run has not taken it.
func finished(s *State) *contract.Move {
	if s.Request.NodeFrom == "" {
		return nil
	}
	for _, step := range s.Request.Steps {
		if step.Kind == runplan.KindRMA {
			return sanitize.Quarantine("its machine leaves for its vendor, run " + s.Request.RunID)
		}
	}
	return s.lastRepave().Repaved()
}

// unfinished is the move of the node of a run that has failed or was cancelled, nil where the run
// has not taken it. A node that the run has installed and proven clean returns to service all the
// same.
func unfinished(s *State) *contract.Move {
	if s.Request.NodeFrom == "" {
		return nil
	}
	if r := s.lastRepave(); !r.IsClean() {
		return r.Unrepaved()
	}
	return s.lastRepave().Repaved()
}
