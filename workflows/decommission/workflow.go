// Package decommission takes a node out of service: the thirteen stages of seed
// 001 section 5.2, and those of PXE nodes, on the one stage runner. Which of them a job runs, and in which
// order, is data (lifecycle.DecommissionModes); the node operations drain, retire
// and remove run the same stages.
package decommission

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a decommission knows; it is checkpointed with each projection.
type State struct {
	Job     contract.JobRef            `json:"job"`
	Kind    contract.JobKind           `json:"kind"`
	Request contract.DecommissionInput `json:"request"`
	// StartedAt is when the first stage ran.
	StartedAt time.Time              `json:"started_at,omitzero"`
	Config    contract.LeavingConfig `json:"config"`
	// Loaded is set once Config was read.
	Loaded  bool                  `json:"loaded,omitempty"`
	Node    contract.LeavingFacts `json:"node"`
	Machine contract.MachineFacts `json:"machine"`
	Power   contract.PowerFacts   `json:"power"`
	Tries   Tries                 `json:"tries"`

	// Known are the disks that the agent had listed when the job began: each has
	// to be among what is erased.
	Known []lifecycle.DeviceResult `json:"known,omitempty"`
	// Dark says why the agent could not be asked, once the node was drained by
	// switching it off instead.
	Dark string `json:"dark,omitempty"`
	// ScrubBoot is the boot that the last scrub ran in. Unclean is set when the
	// validation found what a scrub should have removed: a person's retry scrubs
	// again.
	ScrubBoot string `json:"scrub_boot,omitempty"`
	Unclean   bool   `json:"unclean,omitempty"`
	Validated bool   `json:"validated,omitempty"`

	Release  Release                   `json:"release"`
	UserData contract.UserData         `json:"user_data"`
	Deploy   Deployment                `json:"deploy"`
	Agent    contract.AgentFacts       `json:"agent"`
	Evidence contract.CertificateFacts `json:"evidence"`

	// Netboot is what this job has the node boot from the network, and what was
	// known of its disks before; Hardware what takes the node's place. Asked
	// lists the stages at which a person was asked to restart the machine.
	Netboot  contract.NetbootFacts  `json:"netboot,omitzero"`
	Hardware contract.HardwareFacts `json:"hardware,omitzero"`
	Asked    map[string]bool        `json:"asked,omitempty"`

	// Retired and Uninstalled are what is behind the job; Spent names the stage
	// from which nothing can be taken back, and is set by a clean-up.
	Retired     bool   `json:"retired,omitempty"`
	Uninstalled bool   `json:"uninstalled,omitempty"`
	Spent       string `json:"spent,omitempty"`
}

// Tries are those of each task.
type Tries struct {
	Revoke    contract.TaskTries `json:"revoke"`
	Drain     contract.TaskTries `json:"drain"`
	Storage   contract.TaskTries `json:"storage"`
	Scrub     contract.TaskTries `json:"scrub"`
	Validate  contract.TaskTries `json:"validate"`
	Uninstall contract.TaskTries `json:"uninstall"`
}

// Release is the release of the machine in MAAS.
type Release struct {
	contract.ReleaseFacts
	// Seen is set once the machine was looked at before its release.
	Seen bool `json:"seen,omitempty"`
	// Over is set once the machine is free.
	Over bool `json:"over,omitempty"`
}

// Deployment is the deployment of a reimage.
type Deployment struct {
	Attempt int                    `json:"attempt"`
	Outcome contract.DeployOutcome `json:"outcome,omitempty"`
	Over    bool                   `json:"over,omitempty"`
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
		Choose:    func(s *State) []string { return s.mode().Stages },
		Deadline:  deadline,
		Observed:  observed,
		Succeeded: succeeded,
		Parked:    parked,
		Resumed:   resumed,
		Cancelled: cancelled,
		Reset:     reset,
	}
}

func initialise(s *State, in contract.JobInput, input []byte) error {
	s.Job, s.Kind = contract.JobRef{JobID: in.JobID, NodeID: in.NodeID, SiteID: in.SiteID}, in.Kind
	if err := json.Unmarshal(input, &s.Request); err != nil {
		return fmt.Errorf("decommission request: %w", err)
	}
	info, ok := lifecycle.DecommissionModeOf(s.Request.Mode)
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

func (s *State) mode() lifecycle.DecommissionModeInfo {
	info, _ := lifecycle.DecommissionModeOf(s.Request.Mode) // checked by Init
	return info
}

func (s *State) full() bool { return s.Request.Mode == lifecycle.ModeFull }

// reset keeps what cannot be taken back: evidence, and what is gone.
func reset(s *State) {
	*s = State{
		Job: s.Job, Kind: s.Kind, Request: s.Request, Release: s.Release, Deploy: Deployment{Attempt: s.Deploy.Attempt},
		ScrubBoot: s.ScrubBoot, Retired: s.Retired, Uninstalled: s.Uninstalled, Tries: s.Tries.next(), Hardware: s.Hardware,
		Known:   s.Known,
		Netboot: contract.NetbootFacts{Installed: s.Netboot.Installed, Disks: s.Netboot.Disks},
	}
}

// next asks the agent for new tasks.
func (t Tries) next() Tries {
	for _, one := range []*contract.TaskTries{&t.Revoke, &t.Drain, &t.Storage, &t.Scrub, &t.Validate, &t.Uninstall} {
		one.Round++
	}
	return t
}

// drainGrace is what draining takes beyond the grace that it gives.
const drainGrace = 45 * time.Minute

// deadline is the profile's when it names the stage.
func deadline(s *State, name string, dflt time.Duration) time.Duration {
	if p, ok := s.Config.Profile.StageDeadlines[name]; ok {
		return p.D()
	}
	if name != lifecycle.StageDrainNode {
		return dflt
	}
	d := drainGrace + time.Duration(s.Request.GraceSeconds)*time.Second
	if s.Request.Mode == lifecycle.ModeDrain {
		d += dflt
	}
	return d
}

func observed(s *State) contract.Observed {
	o := contract.Observed{MAAS: s.Machine.Status, Power: s.Power.State, Agent: "none"}
	if o.Power == "" {
		o.Power = s.Machine.Power
	}
	if s.Node.Agent == contract.AgentAlive {
		o.Agent = "enrolled"
	}
	return o
}
