// Package bmcrotation replaces a BMC's password by one that only Slipway knows:
// a job of its own on the one stage runner. Two slots make it safe at every
// step: the old login and the candidate both stay stored until the BMC takes
// the candidate, a login with it has succeeded and MAAS has been told. A
// password is never changed back: what is cancelled ends with the login that
// the BMC takes.
package bmcrotation

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a rotation knows; it is checkpointed with each projection.
// Logins are references.
type State struct {
	Job     contract.JobRef           `json:"job"`
	Request contract.BMCRotationInput `json:"request"`
	Facts   contract.RotationFacts    `json:"facts"`
	Machine contract.MachineFacts     `json:"machine"`
	// MAASUpdated is set before MAAS is told anything: a clean-up then tells it
	// again. Settled is the login that the clean-up gave it.
	MAASUpdated   bool   `json:"maas_updated,omitempty"`
	RestoredLogin string `json:"restored_login,omitempty"`
}

// Rotate is the workflow.
func Rotate(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, Job(in), in)
}

// Job is the rotation job for one input. The node's state does not change: its
// BMC answers to another password, and that is all.
func Job(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:   contract.KindBMCRotation,
		Stages: stages(),
		Init: func(s *State, input []byte) error {
			s.Job = in.Ref()
			if err := json.Unmarshal(input, &s.Request); err != nil {
				return fmt.Errorf("rotation request: %w", err)
			}
			if s.Request.BMCID == "" {
				return errors.New("the rotation request names no BMC")
			}
			return nil
		},
		Metadata: func(s *State) lifecycle.ActionMetadata { return s.Machine.ActionMetadata() },
		Observed: func(s *State) lifecycle.Observed { return lifecycle.Observed{Power: s.Machine.Power} },
		Reset:    func(s *State) { *s = State{Job: s.Job, Request: s.Request} },
	}
}
