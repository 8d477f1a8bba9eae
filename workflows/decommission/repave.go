package decommission

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// What a run that installs its machine again takes from here: the stages of a reimage, as one step of its
// plan. No tenant is on the node, and its installed system is not asked for anything: MAAS erases the
// disks and installs the machine, and the new system scrubs and validates it.

// repaveStages lists the stages of a repave in their order.
func repaveStages() []string {
	return []string{
		lifecycle.StageDisableNode, lifecycle.StageLoadSite, lifecycle.StageReleaseMAAS, lifecycle.StageScrubGPU, lifecycle.StageValidateClean,
	}
}

// NewRepave returns the state in which a run installs its machine again. from is the state of the node
// before the run, series what MAAS is to install.
func NewRepave(job contract.JobRef, runID string, from lifecycle.NodeStatus, series string) State {
	return State{
		Job: job, Kind: contract.KindMachineRun, Series: series,
		Request: contract.DecommissionInput{Mode: lifecycle.ModeReimage, NodeID: job.NodeID, From: from, Reason: "run " + runID},
	}
}

// Repave carries the stages out, from the first one on, and returns when the node is proven clean. What is
// done already is found so. saved is called when a stage has ended.
func (s *State) Repave(ctx workflow.Context, saved func(workflow.Context) error) error {
	names := repaveStages()
	for i := 0; i < len(names); i++ {
		st := s.stage(names[i])
		// An attempt that comes after an erasure begins at the first stage again, and fails there perhaps:
		// what was begun before stays begun.
		if i > slices.Index(names, s.Begun) {
			s.Begun = st.Name
		}
		err := st.Run(ctx, s)
		if to, ok := stage.GoesTo(err); ok {
			if i = slices.Index(names, to) - 1; i < -1 {
				return fmt.Errorf("stage %s is none of a repave", to)
			}
			err = nil
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

func (s *State) stage(name string) stage.Stage[State] {
	all := stages()
	return all[slices.IndexFunc(all, func(st stage.Stage[State]) bool { return st.Name == name })]
}

// begun returns the stages of a repave that were begun, the newest first.
func (s *State) begun() []stage.Stage[State] {
	names := repaveStages()
	var out []stage.Stage[State]
	for i := slices.Index(names, s.Begun); i >= 0; i-- {
		out = append(out, s.stage(names[i]))
	}
	return out
}

// UndoRepave undoes the stages of a repave that were begun, the newest first.
func (s *State) UndoRepave(ctx workflow.Context) error {
	for _, st := range s.begun() {
		if st.Undo == nil {
			continue
		}
		if err := st.Undo(ctx, s); err != nil {
			return err
		}
	}
	s.RepaveUndone = s.Begun != ""
	return nil
}

// VerifyRepaveUndone returns what is left of a repave that was undone, "" when nothing is.
func (s *State) VerifyRepaveUndone(ctx workflow.Context) (string, error) {
	var left string
	var err error
	for _, st := range s.begun() {
		if st.VerifyUndo == nil || left != "" {
			continue
		}
		one, failed := st.VerifyUndo(ctx, s)
		left, err = one, errors.Join(err, failed)
	}
	return left, err
}

// Repaved returns the move of a node that is proven clean: a healthy heartbeat makes it active.
func (s *State) Repaved() *contract.Move { return succeeded(s) }

// Unrepaved returns the move of a node that a run leaves without a proof: back to where it was, or to
// quarantine where something was done that nobody can take back.
func (s *State) Unrepaved() *contract.Move { return cancelled(s) }

// Clean reports whether the certificate of the repave proves the node clean.
func (s *State) Clean() bool {
	return s.Evidence.CertificateID != "" && len(s.Evidence.Unproven) == 0 && !s.RepaveUndone
}

// InstalledAt returns the addresses that MAAS gave the machine with its last installation.
func (s *State) InstalledAt() []string {
	if !s.Deploy.Completed {
		return nil
	}
	return s.Machine.IPs
}

// Leaves returns the move of a node whose machine leaves for its vendor: nothing is to be scheduled on it.
func Leaves(note string) *contract.Move { return quarantine(note) }
