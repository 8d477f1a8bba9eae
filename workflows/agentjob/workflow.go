// Package agentjob has the jobs of a node's agent: one gives it a new identity by an enrolment
// token that is delivered over SSH, the other installs a signed release. Neither changes the node's
// state.
package agentjob

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// ReissueState is what a reissue knows. The token is a reference.
type ReissueState struct {
	Job     contract.JobRef            `json:"job"`
	Request contract.AgentReissueInput `json:"request"`
	Token   contract.AgentTokenFacts   `json:"token,omitzero"`
	Agent   contract.AgentSeen         `json:"agent,omitzero"`
}

// UpdateState is what an update knows.
type UpdateState struct {
	Job     contract.JobRef           `json:"job"`
	Request contract.AgentUpdateInput `json:"request"`
	Tries   contract.TaskTries        `json:"tries,omitzero"`
	Agent   contract.AgentSeen        `json:"agent,omitzero"`
}

// Reissue is the workflow that gives an agent a new identity.
func Reissue(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, ReissueJob(in), in)
}

// Update is the workflow that gives an agent a new version.
func Update(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, UpdateJob(in), in)
}

// ReissueJob is the reissue for one input.
func ReissueJob(in contract.JobInput) stage.Job[ReissueState] {
	return stage.Job[ReissueState]{
		Kind: contract.KindAgentReissue, Stages: reissueStages(),
		Init: func(s *ReissueState, input []byte) error {
			s.Job = in.Ref()
			return decode(input, &s.Request, in)
		},
		Observed: func(s *ReissueState) lifecycle.Observed { return observed(s.Agent) },
		Reset:    func(s *ReissueState) { *s = ReissueState{Job: s.Job, Request: s.Request} },
	}
}

// UpdateJob is the update for one input.
func UpdateJob(in contract.JobInput) stage.Job[UpdateState] {
	return stage.Job[UpdateState]{
		Kind: contract.KindAgentUpdate, Stages: updateStages(),
		Init: func(s *UpdateState, input []byte) error {
			s.Job = in.Ref()
			if err := decode(input, &s.Request, in); err != nil {
				return err
			}
			if s.Request.Version == "" || len(s.Request.Manifest) == 0 {
				return errors.New("the update request names no release")
			}
			return nil
		},
		Observed: func(s *UpdateState) lifecycle.Observed { return observed(s.Agent) },
		Metadata: func(s *UpdateState) lifecycle.ActionMetadata {
			return lifecycle.ActionMetadata{AgentInfo: &lifecycle.AgentInfo{Version: s.Request.Version}}
		},
		// The tries stay: the key of a task that failed is not used again.
		Reset: func(s *UpdateState) { s.Tries.Round++; s.Agent = contract.AgentSeen{} },
	}
}

func decode(input []byte, request any, in contract.JobInput) error {
	if err := json.Unmarshal(input, request); err != nil {
		return fmt.Errorf("agent request: %w", err)
	}
	if in.NodeID == "" {
		return errors.New("the request names no node")
	}
	return nil
}

func observed(a contract.AgentSeen) lifecycle.Observed {
	if a.Done {
		return lifecycle.Observed{Agent: "enrolled"}
	}
	return lifecycle.Observed{}
}
