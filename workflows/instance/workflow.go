// Package instance is the two jobs of an instance at a cloud provider: one makes it, and one
// deletes it with everything that is billed.
package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a job of an instance knows; it is checkpointed with each projection.
type State struct {
	Job     contract.JobRef         `json:"job"`
	Request contract.InstanceInput  `json:"request"`
	Facts   contract.InstanceFacts  `json:"facts,omitzero"`
	Worker  contract.InstancePhases `json:"worker,omitzero"`
	// Boots is set once the instance is booting.
	Boots bool `json:"boots,omitempty"`
	// ReadyBy is when the startup has taken too long; zero before it begins, and after it has
	// failed.
	ReadyBy time.Time `json:"ready_by,omitzero"`
	// GaveUp is the failure at which the creation ended.
	GaveUp *contract.Failure `json:"gave_up,omitempty"`
}

// Create is the workflow that makes an instance.
func Create(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, CreateJob(in), in)
}

// Terminate is the workflow that deletes an instance.
func Terminate(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, TerminateJob(in), in)
}

func (s *State) init(in contract.JobInput, input []byte) error {
	s.Job = in.Ref()
	if err := json.Unmarshal(input, &s.Request); err != nil {
		return fmt.Errorf("request of an instance: %w", err)
	}
	if s.Request.InstanceID == "" || s.Request.InstanceID != in.ResourceID {
		return errors.New("the request names no instance")
	}
	return nil
}

func progress(s *State, _ contract.Step) *contract.Move {
	return contract.InstanceProgress{GaveUp: s.GaveUp}.Move(s.Request.InstanceID)
}

func (s *State) metadata() lifecycle.ActionMetadata { return s.Facts.ActionMetadata() }

// CreateJob is the creation for one input. Before the instance boots, what the provider refuses
// ends it: everything that was made is deleted. Later it parks, with its server, and goes on from
// there.
func CreateJob(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:     contract.KindInstanceCreate,
		Stages:   createStages(),
		Init:     func(s *State, input []byte) error { return s.init(in, input) },
		Metadata: (*State).metadata,
		Moves:    progress,
		GivesUp: func(s *State, f contract.Failure) bool {
			now := lifecycle.InstanceProvisioning
			if s.Boots {
				now = lifecycle.InstanceBooting
			}
			if !lifecycle.InstanceGivesUp(now, f.Class) {
				return false
			}
			s.GaveUp = &f
			return true
		},
		Subject: func(_ workflow.Context, s *State, _ lifecycle.Action) contract.SubjectFacts {
			return contract.SubjectFacts{HasServer: s.Boots || s.Facts.ServerID != ""}
		},
	}
}

// TerminateJob is the termination for one input. It only goes forward, and ends early only once the
// instance has ended another way.
func TerminateJob(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:     contract.KindInstanceTerminate,
		Stages:   terminateStages(),
		Init:     func(s *State, input []byte) error { return s.init(in, input) },
		Metadata: (*State).metadata,
		Moves:    progress,
		Subject: func(ctx workflow.Context, s *State, a lifecycle.Action) contract.SubjectFacts {
			if a != lifecycle.ActionCancel && a != lifecycle.ActionRestartClean {
				return contract.SubjectFacts{}
			}
			f, err := stage.Do(ctx, stage.KindLocalWork, "has the instance ended", acts.LoadInstance, s.Job)
			return contract.SubjectFacts{Ended: err == nil && (f.Status == lifecycle.InstanceTerminated || f.Status == lifecycle.InstanceArchived)}
		},
	}
}
