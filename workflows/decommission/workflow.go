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
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// State is what a decommission knows; it is checkpointed with each projection.
type State struct {
	Job     contract.JobRef            `json:"job"`
	Kind    contract.JobKind           `json:"kind"`
	Request contract.DecommissionInput `json:"request"`
	// TenantRelease is set where the release of an allocation runs the stages.
	TenantRelease bool `json:"tenant_release,omitempty"`
	// Series is what a run has MAAS install, "" for what the profile says. Begun is the stage of a repave
	// that any attempt has come to, in their order. RepaveUndone is set once they were undone: what a
	// certificate said of the installation is void then.
	Series       string `json:"series,omitempty"`
	Begun        string `json:"begun,omitempty"`
	RepaveUndone bool   `json:"repave_undone,omitempty"`
	// StartedAt is when the first stage ran.
	StartedAt time.Time                   `json:"started_at,omitzero"`
	Config    contract.DecommissionConfig `json:"config"`
	// Loaded is set once Config was read.
	Loaded  bool                       `json:"loaded,omitempty"`
	Node    contract.DecommissionFacts `json:"node"`
	Machine contract.MachineFacts      `json:"machine"`
	Power   contract.PowerFacts        `json:"power"`
	Tries   Tries                      `json:"tries"`

	// InitialDisks are the disks that the agent had listed when the job began: each has to be among
	// what is erased. DisksRecorded says that they are those of the node's record, since the agent's
	// word proves nothing.
	InitialDisks  []lifecycle.DeviceResult `json:"initial_disks,omitempty"`
	DisksRecorded bool                     `json:"disks_recorded,omitempty"`
	// AgentUnreachable says why the agent could not be asked, once the node was drained by switching
	// it off instead.
	AgentUnreachable string `json:"agent_unreachable,omitempty"`
	// RootTenantOff is set once the machine was switched off to end the access of a tenant who was root.
	RootTenantOff bool `json:"root_tenant_off,omitempty"`
	// ScrubBootID is the boot that the last scrub ran in. ScrubRequired is set when the validation
	// found what a scrub should have removed: an operator's retry scrubs again.
	ScrubBootID   string `json:"scrub_boot_id,omitempty"`
	ScrubRequired bool   `json:"scrub_required,omitempty"`
	Validated     bool   `json:"validated,omitempty"`

	Release  Release                   `json:"release"`
	UserData contract.UserData         `json:"user_data"`
	Deploy   Deployment                `json:"deploy"`
	Agent    contract.AgentFacts       `json:"agent"`
	Evidence contract.CertificateFacts `json:"evidence"`

	// NotVerified names what the certificate says was not looked at.
	NotVerified []string `json:"not_verified,omitempty"`

	// LastPower is the machine's power as it was read last, from MAAS or the BMC.
	LastPower string `json:"last_power,omitempty"`

	// BMCChecked is set once the BMC of a root tenant was compared and has another password. RotatesBMC
	// is the BMC whose password the job began to change.
	BMCChecked bool   `json:"bmc_checked,omitempty"`
	RotatesBMC string `json:"rotates_bmc,omitempty"`

	// Netboot is what this job has the node boot from the network, and what was
	// known of its disks before. Hardware is what replaces the node's hardware. RestartRequested has
	// the stages at which an operator was asked to restart the machine.
	Netboot          contract.NetbootFacts  `json:"netboot,omitzero"`
	Hardware         contract.HardwareFacts `json:"hardware,omitzero"`
	RestartRequested map[string]bool        `json:"restart_requested,omitempty"`

	// Retired and Uninstalled are set once the job has retired the node and revoked its agent's
	// identity. IrreversibleStage is the stage that cannot be undone; a compensation sets it.
	Retired           bool   `json:"retired,omitempty"`
	Uninstalled       bool   `json:"uninstalled,omitempty"`
	IrreversibleStage string `json:"irreversible_stage,omitempty"`
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
	// MachineObserved is set once the machine was looked at before its release.
	MachineObserved bool `json:"machine_observed,omitempty"`
	// Completed is set once the machine is free.
	Completed bool `json:"completed,omitempty"`
}

// Deployment is the deployment of a reimage.
type Deployment struct {
	Attempt   int                    `json:"attempt"`
	Outcome   contract.DeployOutcome `json:"outcome,omitempty"`
	Completed bool                   `json:"completed,omitempty"`
	Until     time.Time              `json:"until,omitzero"`   // when one that hangs is aborted; zero before it is awaited
	Unseen    bool                   `json:"unseen,omitempty"` // nobody has looked at the machine at Until: it may be deployed
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

func (s *State) isFullDecommission() bool { return s.Request.Mode == lifecycle.ModeFull }

// reset keeps what cannot be taken back: evidence, and what is gone.
func reset(s *State) {
	*s = State{
		Job: s.Job, Kind: s.Kind, Request: s.Request, Release: s.Release, Deploy: Deployment{Attempt: s.Deploy.Attempt},
		ScrubBootID: s.ScrubBootID, Retired: s.Retired, Uninstalled: s.Uninstalled, Tries: s.Tries.next(), Hardware: s.Hardware,
		InitialDisks: s.InitialDisks, DisksRecorded: s.DisksRecorded,
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

// observed is what of the outside was read last. What the job itself has ended since is not there.
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
