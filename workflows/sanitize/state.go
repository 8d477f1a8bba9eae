package sanitize

import (
	"fmt"
	"time"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// State is what making a node clean knows. The state of each kind of job that makes a node clean
// has one.
type State struct {
	Job  contract.JobRef  `json:"job"`
	Kind contract.JobKind `json:"kind"`
	// Mode is the mode of the decommission or node operation. The release of an allocation and a
	// run have the one whose stages they carry out: reimage or soft_reset.
	Mode lifecycle.DecommissionMode `json:"mode"`
	// TenantRelease is set where the release of an allocation makes the node clean.
	TenantRelease bool `json:"tenant_release,omitempty"`
	// Series is the system that MAAS is to install, "" for the one that the profile names.
	Series string `json:"series,omitempty"`
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
	// those that were erased. DisksRecorded says that they are those of the node's record, since
	// the agent's word proves nothing.
	InitialDisks  []lifecycle.DeviceResult `json:"initial_disks,omitempty"`
	DisksRecorded bool                     `json:"disks_recorded,omitempty"`
	// AgentUnreachable says why the agent could not be asked, once the node was drained by
	// switching it off instead.
	AgentUnreachable string `json:"agent_unreachable,omitempty"`
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

	// BMCChecked is set once the BMC of a root tenant was compared and has another password.
	// RotatesBMC is the BMC whose password the job began to change.
	BMCChecked bool   `json:"bmc_checked,omitempty"`
	RotatesBMC string `json:"rotates_bmc,omitempty"`

	// Netboot is the system that this job has the node boot from the network, and what was known of
	// its disks before. RestartRequested has the stages at which an operator was asked to restart
	// the machine.
	Netboot          contract.NetbootFacts `json:"netboot,omitzero"`
	RestartRequested map[string]bool       `json:"restart_requested,omitempty"`

	// Retired is set once the job has retired the node, or found it retired. IrreversibleStage is
	// the stage that cannot be undone; a compensation sets it.
	Retired           bool   `json:"retired,omitempty"`
	IrreversibleStage string `json:"irreversible_stage,omitempty"`
}

// Tries are those of each task.
type Tries struct {
	Storage  contract.TaskTries `json:"storage"`
	Scrub    contract.TaskTries `json:"scrub"`
	Validate contract.TaskTries `json:"validate"`
}

// next asks the agent for new tasks.
func (t Tries) next() Tries {
	for _, one := range []*contract.TaskTries{&t.Storage, &t.Scrub, &t.Validate} {
		one.Round++
	}
	return t
}

// Restarted returns the state of a job that begins again from its first stage. It keeps what cannot
// be taken back: evidence, and what is gone.
func (s *State) Restarted() State {
	return State{
		Job: s.Job, Kind: s.Kind, Mode: s.Mode, Release: s.Release, Deploy: Deployment{Attempt: s.Deploy.Attempt},
		ScrubBootID: s.ScrubBootID, Retired: s.Retired, Tries: s.Tries.next(),
		InitialDisks: s.InitialDisks, DisksRecorded: s.DisksRecorded,
		Netboot: contract.NetbootFacts{Installed: s.Netboot.Installed, Disks: s.Netboot.Disks},
	}
}

// IsProven reports whether the certificate proves the node clean.
func (s *State) IsProven() bool {
	return s.Evidence.CertificateID != "" && len(s.Evidence.Unproven) == 0
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

// ModeInfo describes the mode of the job.
func (s *State) ModeInfo() lifecycle.DecommissionModeInfo {
	info, _ := lifecycle.DecommissionModeOf(s.Mode) // checked where the job begins
	return info
}

// IsFullDecommission reports whether the node leaves service for good.
func (s *State) IsFullDecommission() bool { return s.Mode == lifecycle.ModeFull }

// NewTenantRelease returns the state in which the release of an allocation cleans its node. A node
// whose tenant was root is installed again; on any other the installed system stays.
func NewTenantRelease(job contract.JobRef, kind contract.JobKind, root bool) State {
	mode := lifecycle.ModeSoftReset
	if root {
		mode = lifecycle.ModeReimage
	}
	return State{Job: job, Kind: kind, TenantRelease: true, Mode: mode}
}

// IsDistrusted reports that the node's system is that of a tenant who was root and has left. It is
// not asked for anything: the machine is switched off, and what is installed next proves the node
// clean. An operation erases nothing, and the release of an allocation goes by what it knows of its
// tenant.
func (s *State) IsDistrusted() bool {
	erases := s.IsFullDecommission() || s.Mode == lifecycle.ModeReimage
	return erases && !s.TenantRelease && s.Node.TenantRoot && s.Node.AllocationID == "" && s.Node.TenantLeft != nil && !s.Deploy.Completed
}

// distrustsReport reports that what the node's agent has reported proves nothing: the node's tenant
// is or was root, or only the power ended his access. One disk that he made up could never be
// erased.
func (s *State) distrustsReport() bool {
	return s.Node.TenantRoot || s.TenantRelease && s.Mode == lifecycle.ModeReimage
}

// recordedDisks returns the drives of the node's record, none of them erased or verified.
func recordedDisks(drives []spec.ExpectedDrive) []lifecycle.DeviceResult {
	out := make([]lifecycle.DeviceResult, 0, len(drives))
	for _, d := range drives {
		out = append(out, lifecycle.DeviceResult{Kind: "disk", Serial: d.Serial, Model: d.Model, Method: lifecycle.SanitizeNone})
	}
	return out
}

// ReleaseForbidden returns why MAAS must not release the machine, "" where it may.
func (s *State) ReleaseForbidden() string {
	if !s.Mode.KeepsSystem() && s.Mode != lifecycle.ModeReimage { // a state that another build has written
		return fmt.Sprintf("nothing says whether the node has to be installed again (mode %q)", s.Mode)
	}
	if s.Mode == lifecycle.ModeReimage && s.Node.SystemID == "" {
		return "the tenant was root, so that the node has to be installed again, and MAAS does not manage it"
	}
	return s.ProtectedFromRelease()
}

// MachineIn names the machine of the node at a stage.
func (s *State) MachineIn(name string) maasact.MachineIn {
	return maasact.MachineIn{JobRef: s.Job.At(name), SystemID: s.Node.SystemID, Poll: s.Config.Profile.PollInterval}
}

// RecordMachine keeps the newest facts of the machine.
func (s *State) RecordMachine(f contract.MachineFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Machine.SystemID
	}
	if f.Status == "" {
		f.Status, f.IPs = s.Machine.Status, s.Machine.IPs
	}
	s.Machine = f
	if f.Power != "" {
		s.LastPower = f.Power
	}
}

// RecordPower keeps what was read of the machine's power.
func (s *State) RecordPower(f contract.PowerFacts) {
	s.Power = f
	if f.State != "" {
		s.LastPower = f.State
	}
}

// RecordNode keeps the newest facts of the node; what a record no longer says, since
// this job has let go of it, stays known.
func (s *State) RecordNode(f contract.DecommissionFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Node.SystemID
	}
	if len(f.MACs) == 0 {
		f.MACs = s.Node.MACs
	}
	// A drive that was protected when the job began stays so, whoever takes the protection away
	// meanwhile: the plan said that it stays.
	f.ProtectSerials = spec.JoinSerials(s.Node.ProtectSerials, f.ProtectSerials)
	s.Node = f
}
