package contract

import (
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// MachineRunInput is the accepted request of a run. The parameters of the steps stay in the run's
// row: only the activity that carries a step out reads them.
type MachineRunInput struct {
	RunID     string    `json:"run_id"`
	MachineID string    `json:"machine_id"`
	Steps     []RunStep `json:"steps"`
	// NodeFrom is the state that the run has taken its node from, to install it again or to have it leave;
	// "" of a run that leaves the node where it is.
	NodeFrom lifecycle.NodeStatus `json:"node_from,omitempty"`
}

// RunStep is what the workflow of a run knows of a step. The bounds hold for one attempt.
type RunStep struct {
	Name           string       `json:"name"`
	Kind           runplan.Kind `json:"kind"`
	TimeoutSeconds int          `json:"timeout_seconds"`
	Retries        int          `json:"retries"`
}

// RunSteps returns what the workflow of a run knows of the steps of its plan.
func RunSteps(steps []runplan.Step) []RunStep {
	out := make([]RunStep, len(steps))
	for i, s := range steps {
		out[i] = RunStep{Name: s.Name, Kind: s.Kind(), TimeoutSeconds: int(s.Timeout().Seconds()), Retries: s.Retries()}
	}
	return out
}

// RunProgress is what a projection says of a run besides its job.
type RunProgress struct {
	// Failure is that of the step that ended the run; nil while none has.
	Failure *Failure `json:"failure,omitempty"`
}

// Move returns the move of the job's run.
func (p RunProgress) Move() *Move { return newMove(SubjectRun, "", false, p) }
