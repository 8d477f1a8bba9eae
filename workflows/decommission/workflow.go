// Package decommission takes a node out of service: thirteen stages, and those of PXE nodes, on the
// one stage runner. Which of them a job runs, and in which order, is data
// (lifecycle.DecommissionModes). The node operations drain, retire and remove run the same stages.
package decommission

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

// State is what a decommission knows; it is checkpointed with each projection.
type State struct {
	sanitize.State
	Request contract.DecommissionInput `json:"request"`
	Drains  DrainTries                 `json:"drains"`
	// RootTenantOff is set once the machine was switched off to end the access of a tenant who was
	// root.
	RootTenantOff bool `json:"root_tenant_off,omitempty"`
	// Hardware is the machine that replaces the node's hardware.
	Hardware contract.HardwareFacts `json:"hardware,omitzero"`
	// Uninstalled is set once the job has revoked the identity of the node's agent.
	Uninstalled bool `json:"uninstalled,omitempty"`
}

// DrainTries are those of each task that sanitizing does not have: the end of a tenant, the drain,
// and the end of the agent.
type DrainTries struct {
	Revoke    contract.TaskTries `json:"revoke"`
	Drain     contract.TaskTries `json:"drain"`
	Uninstall contract.TaskTries `json:"uninstall"`
}

// Decommission is the workflow of the four modes.
func Decommission(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, Job(in), in)
}

// NodeOperation is the workflow of drain, retire and remove, and of deprovision
// and migrate.
func NodeOperation(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, Job(in), in)
}

// Job is the decommission job for one input.
func Job(in contract.JobInput) stage.Job[State] {
	return stage.Job[State]{
		Kind:      in.Kind,
		Stages:    stages(),
		Init:      func(s *State, input []byte) error { return initialise(s, in, input) },
		Choose:    func(s *State) []string { return s.ModeInfo().Stages },
		Deadline:  deadline,
		Observed:  observed,
		Metadata:  func(s *State) lifecycle.ActionMetadata { return s.Machine.ActionMetadata() },
		Succeeded: succeeded,
		Parked:    parked,
		Resumed:   resumed,
		Cancelled: cancelled,
		Reset:     reset,
	}
}

func initialise(s *State, in contract.JobInput, input []byte) error {
	s.Job, s.Kind = in.Ref(), in.Kind
	if err := json.Unmarshal(input, &s.Request); err != nil {
		return fmt.Errorf("decommission request: %w", err)
	}
	s.Mode = s.Request.Mode
	info, ok := lifecycle.DecommissionModeOf(s.Mode)
	switch {
	case !ok:
		return fmt.Errorf("decommission request: there is no mode %q", s.Request.Mode)
	case contract.DecommissionKind(info.Mode) != in.Kind:
		return fmt.Errorf("decommission request: %s is not run as %s", info.Mode, in.Kind)
	case in.NodeID == "":
		return errors.New("decommission request: it names no node")
	}
	return nil
}

// reset keeps what cannot be taken back: evidence, and what is gone.
func reset(s *State) {
	*s = State{State: s.Restarted(), Request: s.Request, Drains: s.Drains.next(), Hardware: s.Hardware, Uninstalled: s.Uninstalled}
}

// next asks the agent for new tasks.
func (t DrainTries) next() DrainTries {
	for _, one := range []*contract.TaskTries{&t.Revoke, &t.Drain, &t.Uninstall} {
		one.Round++
	}
	return t
}

// drainGrace is what draining takes beyond the grace that it gives.
const drainGrace = 45 * time.Minute

// deadline is the profile's when it names the stage.
func deadline(s *State, name string, dflt time.Duration) time.Duration {
	grace := drainGrace + time.Duration(s.Request.GraceSeconds)*time.Second
	switch {
	case name != lifecycle.StageDrainNode:
	case s.Request.Mode == lifecycle.ModeDrain: // which waits for the allocation first
		dflt += grace
	default:
		dflt = grace
	}
	return s.Config.Profile.StageDeadline(name, dflt)
}

// observed returns the last reading of the outside, without what the job itself has ended since.
func observed(s *State) lifecycle.Observed {
	o := lifecycle.Observed{MAAS: s.Machine.Status, Power: s.LastPower, Agent: "none"}
	switch {
	case s.Uninstalled, s.Release.Completed && s.Machine.Status != "Deployed": // by this job
	case s.Deploy.Completed && s.Agent.Healthy:
		o.Agent = "healthy"
	case s.Node.Agent == contract.AgentAlive:
		o.Agent = "enrolled"
	}
	return o
}
