package sanitize

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Repave is what a run knows that installs its machine again, as one step of its plan. No tenant is
// on the node, and its installed system is not asked for anything: MAAS erases the disks and
// installs the machine, and the new system scrubs and validates it.
type Repave struct {
	State
	// From is the state of the node before the run.
	From lifecycle.NodeStatus `json:"from,omitempty"`
	// Begun is the last of the stages, in their order, that any attempt has come to.
	Begun string `json:"begun,omitempty"`
	// Undone is set once the stages were undone: what a certificate said of the installation is
	// void then.
	Undone bool `json:"undone,omitempty"`
}

// NewRepave returns the state in which a run installs its machine again. from is the state of the
// node before the run, series the system that MAAS is to install.
func NewRepave(job contract.JobRef, from lifecycle.NodeStatus, series string) *Repave {
	return &Repave{State: State{Job: job, Kind: contract.KindMachineRun, Mode: lifecycle.ModeReimage, Series: series}, From: from}
}

// repaveStages lists the stages of a repave in their order.
func repaveStages() []stage.Stage[State] {
	begin := stage.Stage[State]{Name: lifecycle.StageDisableNode, Run: beginRepave}
	return []stage.Stage[State]{begin, LoadSite(), ReleaseMAAS(), ScrubGPU(), ValidateClean()}
}

// beginRepave reads the node, and confirms that the run may install it.
func beginRepave(ctx workflow.Context, s *State) error {
	if err := s.Load(ctx, lifecycle.StageDisableNode); err != nil {
		return err
	}
	if s.Node.Status != lifecycle.NodeDraining {
		return stage.Fail(lifecycle.FailStateDisagreement, "the node is %s and not draining: somebody took it out of this run's hands; cancel the run, or resume it to go on", s.Node.Status)
	}
	if why := s.ProtectedFromRelease(); why != "" {
		return stage.Fail(lifecycle.FailConfiguration, "%s", why)
	}
	if s.Node.SystemID == "" {
		return stage.Fail(lifecycle.FailConfiguration, "MAAS installs the machine again, and MAAS does not manage this node; install it by hand, then start another run")
	}
	return nil
}

// Repave carries the stages out, from the first one on, and returns when the node is proven clean.
// A stage finds work that is done already. saved is called when a stage has ended.
func (r *Repave) Repave(ctx workflow.Context, saved func(workflow.Context) error) error {
	stages := repaveStages()
	for i := 0; i < len(stages); i++ {
		// An attempt that comes after an erasure begins at the first stage again, and fails there
		// perhaps: what was begun before stays begun.
		if i > indexOf(stages, r.Begun) {
			r.Begun = stages[i].Name
		}
		err := stages[i].Run(ctx, &r.State)
		if to, ok := stage.GoesTo(err); ok {
			next := indexOf(stages, to)
			if next < 0 {
				return fmt.Errorf("stage %s is none of a repave", to)
			}
			i, err = next-1, nil
		}
		if err != nil {
			return err
		}
		if err := saved(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begun returns the stages that were begun, the newest first.
func (r *Repave) begun() []stage.Stage[State] {
	out := repaveStages()
	out = out[:indexOf(out, r.Begun)+1]
	slices.Reverse(out)
	return out
}

// indexOf returns the place of the stage with the name, -1 for none.
func indexOf(stages []stage.Stage[State], name string) int {
	return slices.IndexFunc(stages, func(st stage.Stage[State]) bool { return st.Name == name })
}

// UndoRepave undoes the stages that were begun, the newest first.
func (r *Repave) UndoRepave(ctx workflow.Context) error {
	for _, st := range r.begun() {
		if st.Undo == nil {
			continue
		}
		if err := st.Undo(ctx, &r.State); err != nil {
			return err
		}
	}
	r.Undone = r.Begun != ""
	return nil
}

// VerifyRepaveUndone returns what is left of a repave that was undone, "" when nothing is.
func (r *Repave) VerifyRepaveUndone(ctx workflow.Context) (string, error) {
	var left string
	var err error
	for _, st := range r.begun() {
		if st.VerifyUndo == nil || left != "" {
			continue
		}
		one, failed := st.VerifyUndo(ctx, &r.State)
		left, err = one, errors.Join(err, failed)
	}
	return left, err
}

// Repaved returns the move of a node that is proven clean: a healthy heartbeat makes it active.
func (r *Repave) Repaved() *contract.Move { return r.EndedMove() }

// Unrepaved returns the move of a node that a run leaves without a proof: back to where it was, or
// to quarantine where something was done that nobody can take back.
func (r *Repave) Unrepaved() *contract.Move { return r.CancelledMove(r.From) }

// IsClean reports whether the certificate of the repave proves the node clean.
func (r *Repave) IsClean() bool { return r.IsProven() && !r.Undone }

// InstalledAt returns the addresses that MAAS gave the machine with its last installation.
func (r *Repave) InstalledAt() []string {
	if !r.Deploy.Completed {
		return nil
	}
	return r.Machine.IPs
}
