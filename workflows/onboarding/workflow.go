// Package onboarding takes a bare server to an active GPU node, in sixteen stages on the one stage
// runner. A node that was bootstrapped by hand runs the same workflow without the MAAS stages.
package onboarding

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what an onboarding knows; it is checkpointed with each projection.
type State struct {
	Job     contract.JobRef          `json:"job"`
	Request contract.OnboardingInput `json:"request"`
	Site    contract.SiteFacts       `json:"site"`
	BMC     contract.BMCFacts        `json:"bmc"`
	Machine contract.MachineFacts    `json:"machine"`
	// UserData is the sealed user-data, by reference.
	UserData contract.UserData `json:"user_data"`
	Deploy   Deployment        `json:"deploy"`
	// Recommission is set when commissioning failed, or did not find the disk
	// that was asked for: to try again, it must be started again.
	Recommission bool `json:"recommission,omitempty"`
	// SSHFailures counts the tries at which this deployment refused Slipway's
	// SSH login, including operators' retries.
	SSHFailures int `json:"ssh_failures,omitempty"`
	// SyncRepaired is set once the hardware sync timer was repaired over SSH.
	SyncRepaired bool                `json:"sync_repaired,omitempty"`
	Agent        contract.AgentFacts `json:"agent"`
	// RotatesBMC is the BMC whose password the job began to change, "" once that is done. NewLogin
	// is set then.
	RotatesBMC string `json:"rotates_bmc,omitempty"`
	NewLogin   bool   `json:"new_login,omitempty"`
}

// Deployment is the deployment now under way.
type Deployment struct {
	Attempt int `json:"attempt"`
	// Started is set when this job set out to deploy a machine that was Ready.
	Started    bool                   `json:"started,omitempty"`
	Outcome    contract.DeployOutcome `json:"outcome,omitempty"`
	SyncBefore *time.Time             `json:"sync_before,omitempty"`
	Class      lifecycle.FailureClass `json:"class,omitempty"`
	Message    string                 `json:"message,omitempty"`
}

// Onboard is the workflow.
func Onboard(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, Job(in), in)
}

// Job is the onboarding job for one input.
func Job(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:   contract.KindOnboarding,
		Stages: stages(),
		Init: func(s *State, input []byte) error {
			s.Job = in.Ref()
			if err := json.Unmarshal(input, &s.Request); err != nil {
				return fmt.Errorf("onboarding request: %w", err)
			}
			return nil
		},
		Deadline:  deadline,
		Observed:  observed,
		Metadata:  func(s *State) lifecycle.ActionMetadata { return s.Machine.ActionMetadata() },
		Started:   func(*State) *contract.Move { return softMove(lifecycle.NodeEnrolling, "onboarding started") },
		Succeeded: succeeded,
		Blocked:   func(*State) *contract.Move { return softMove(lifecycle.NodeQuarantined, "onboarding is blocked") },
		Cancelled: func(*State) *contract.Move {
			return softMove(lifecycle.NodeQuarantined, "onboarding was cancelled")
		},
		Reset: func(s *State) {
			*s = State{Job: s.Job, Request: s.Request, NewLogin: s.NewLogin}
		},
	}
}

// softMove moves apply where the node's state has an edge for them: a quarantined
// node that is onboarded again stays quarantined until it is proven, and one
// whose onboarding never began is left as it was.
func softMove(to lifecycle.NodeStatus, note string) *contract.Move {
	return contract.NodeMove{To: to, Note: note, Soft: true}.Move()
}

// succeeded proves what wait_for_agent_enrollment has established.
func succeeded(s *State) *contract.Move {
	var proof []lifecycle.Need
	if s.Agent.Enrolled {
		proof = append(proof, lifecycle.NeedEnrolled)
	}
	if s.Agent.Healthy {
		proof = append(proof, lifecycle.NeedHealthy)
	}
	return contract.NodeMove{To: lifecycle.NodeActive, Note: "agent enrolled and healthy", Proof: proof}.Move()
}

// deadline is the profile's when it names the stage. wait_for_deployed gets a
// margin, because its activity ends a hanging deployment itself at the deadline
// and needs a moment for that.
func deadline(s *State, name string, dflt time.Duration) time.Duration {
	d := s.Site.Profile.StageDeadline(name, dflt)
	if name == lifecycle.StageWaitDeployed {
		d += abortMargin
	}
	return d
}

const abortMargin = 3 * time.Minute

func observed(s *State) lifecycle.Observed {
	o := lifecycle.Observed{MAAS: s.Machine.Status, Power: s.Machine.Power, Agent: "none"}
	if o.Power == "" {
		o.Power = s.BMC.Power
	}
	switch {
	case s.Agent.Healthy:
		o.Agent = "healthy"
	case s.Agent.Enrolled:
		o.Agent = "unhealthy"
	}
	return o
}
