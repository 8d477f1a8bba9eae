// Package machinerun is the job that carries out a run on a machine: the steps of a plan, strictly
// in order. A step that fails after its retries ends the run.
package machinerun

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a run knows.
type State struct {
	Job     contract.JobRef          `json:"job"`
	Request contract.MachineRunInput `json:"request"`
	// Steps has what is known of each step that has begun, by its name.
	Steps map[string]*StepState `json:"steps,omitempty"`
	// Netboot is the step that set the device of the next boot, "" when no boot is to come from it.
	Netboot string `json:"netboot,omitempty"`
	// Moved says that a confirmed change of the network counts, and not the addresses of the last
	// installation.
	Moved bool `json:"moved,omitempty"`
	// Failed is the failure of the step that ended the run.
	Failed *contract.Failure `json:"failed,omitempty"`
}

// StepState is what is known of a step.
type StepState struct {
	// Attempts is the number of the attempt that the machine is told, 0 for the first. An attempt
	// that was interrupted is taken up again, and keeps its number.
	Attempts int `json:"attempts,omitempty"`
	// BootID is that of the machine before the reboot of the step, and Ordered says that this
	// restart may have been ordered.
	BootID  string `json:"boot_id,omitempty"`
	Ordered bool   `json:"ordered,omitempty"`
	// Running is the command that may run on the machine.
	Running *Sent `json:"running,omitempty"`
	// Network is the change of the network that the machine may be trying.
	Network *Sent `json:"network,omitempty"`
	// NetbootUnsent counts the attempts whose order to set the device of the next boot was never
	// sent.
	NetbootUnsent int `json:"netboot_unsent,omitempty"`
	// Repave is what is known of the repave that the step has begun.
	Repave *sanitize.Repave `json:"repave,omitempty"`
}

// of returns the state of a step, a new one for a step that has none yet.
func (s *State) of(step string) *StepState {
	if s.Steps == nil {
		s.Steps = map[string]*StepState{}
	}
	if s.Steps[step] == nil {
		s.Steps[step] = &StepState{}
	}
	return s.Steps[step]
}

// Sent is a command that the machine was sent, or may have been.
type Sent struct {
	Attempt int       `json:"attempt"`
	EndsBy  time.Time `json:"ends_by"` // when the machine itself has ended it
}

// Run is the workflow of a run.
func Run(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, Job(in), in)
}

// Job is the run for one input.
func Job(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind: contract.KindMachineRun,
		Init: func(s *State, input []byte) error {
			s.Job = in.Ref()
			if err := json.Unmarshal(input, &s.Request); err != nil {
				return fmt.Errorf("request of a run: %w", err)
			}
			if s.Request.RunID == "" || s.Request.MachineID == "" {
				return errors.New("the request names no run")
			}
			return nil
		},
		Build: func(s *State) ([]stage.Stage[State], error) { return buildStages(s.Request.Steps) },
		Moves: func(s *State, _ contract.Step) *contract.Move { return contract.RunProgress{Failure: s.Failed}.Move() },
		GivesUp: func(s *State, f contract.Failure) bool {
			if !lifecycle.IsStepFailure(f.Class) {
				return false
			}
			s.Failed = &f
			return true
		},
		Succeeded: finished,
		Cancelled: unfinished,
	}
}
