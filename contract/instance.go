package contract

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// InstanceInput is the accepted request of a job of an instance: everything else is read from the
// instance.
type InstanceInput struct {
	InstanceID string `json:"instance_id"`
	Reason     string `json:"reason,omitempty"`
}

// InstanceFacts is what is known of an instance.
type InstanceFacts struct {
	Status    lifecycle.InstanceStatus `json:"status,omitempty"`
	Provider  string                   `json:"provider,omitempty"`
	Zone      string                   `json:"zone,omitempty"`
	ServerID  string                   `json:"server_id,omitempty"`
	IPAddress string                   `json:"ip_address,omitempty"`
	// GrowsVolume says that the root volume is grown before the first start.
	GrowsVolume bool `json:"grows_volume,omitempty"`
	// StartupSeconds is how long the type may take from its start to ready.
	StartupSeconds int    `json:"startup_seconds,omitempty"`
	Done           bool   `json:"done,omitempty"`
	Note           string `json:"note,omitempty"`
}

// TimelineNote is what the timeline says.
func (f InstanceFacts) TimelineNote() string { return f.Note }

// ActionMetadata is what the action log says of the instance.
func (f InstanceFacts) ActionMetadata() lifecycle.ActionMetadata {
	return lifecycle.ActionMetadata{ServerID: f.ServerID, Zone: f.Zone, IPAddress: f.IPAddress}
}

// InstanceWait is the input of an activity that waits for a part of an instance. Until is when it
// gives up.
type InstanceWait struct {
	JobRef
	Until time.Time `json:"until,omitzero"`
}

// InstancePhases is what came of the installation of a worker.
type InstancePhases struct {
	Done       bool     `json:"done,omitempty"`
	Phases     []string `json:"phases,omitempty"`
	ExitStatus string   `json:"exit_status,omitempty"`
	Version    string   `json:"version,omitempty"`
	BuildDate  string   `json:"build_date,omitempty"`
	Checksum   string   `json:"checksum,omitempty"`
}

// ActionMetadata is what the action log says of the installation.
func (p InstancePhases) ActionMetadata() lifecycle.ActionMetadata {
	m := lifecycle.ActionMetadata{Phases: p.Phases, SSHExitStatus: p.ExitStatus}
	if n := len(p.Phases); n > 0 {
		m.LastPhase = p.Phases[n-1]
	}
	if p.Checksum != "" {
		m.AgentInfo = &lifecycle.AgentInfo{Version: p.Version, BuildDate: p.BuildDate, Checksum: p.Checksum}
	}
	return m
}

// InstanceProgress is what a projection says of an instance besides its job.
type InstanceProgress struct {
	// GaveUp is the failure at which the creation ended; nil while there is none.
	GaveUp *Failure `json:"gave_up,omitempty"`
}

// Move returns the move of an instance.
func (p InstanceProgress) Move(instanceID string) *Move {
	return newMove(SubjectInstance, instanceID, false, p)
}
