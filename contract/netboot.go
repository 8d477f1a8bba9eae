package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// NetbootFacts is what a job boots a node from the network for.
type NetbootFacts struct {
	Purpose  lifecycle.Netboot `json:"purpose,omitempty"`
	Workflow string            `json:"workflow,omitempty"` // its name
	// BootID is the boot that the node's agent was last heard from before.
	BootID string `json:"boot_id,omitempty"`
	// Installed is set where the agent of the installed system has listed the
	// machine's disks; Disks are those.
	Installed bool                     `json:"installed,omitempty"`
	Disks     []lifecycle.DeviceResult `json:"disks,omitempty"`
	// Armed is whether this job's netboot is armed now.
	Armed bool   `json:"armed,omitempty"`
	Note  string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f NetbootFacts) TimelineNote() string { return f.Note }

// SystemFacts is what is known of the system that a job waits for on a node.
type SystemFacts struct {
	// Done: its agent has enrolled, or the moved one has booted again, and the other
	// conditions of the request hold.
	Done   bool   `json:"done,omitempty"`
	BootID string `json:"boot_id,omitempty"`
	// Serial is that of the machine as it says; "" where it does not.
	Serial    string `json:"serial,omitempty"`
	Simulated bool   `json:"simulated,omitempty"`
	Note      string `json:"note,omitempty"` // what is still missing, or what was found
}

// TimelineNote is what the node's timeline says of the facts.
func (f SystemFacts) TimelineNote() string { return f.Note }

// HardwareFacts is the hardware that takes a node's place.
type HardwareFacts struct {
	// Done: the job has put the node on it.
	Done   bool     `json:"done,omitempty"`
	MACs   []string `json:"macs,omitempty"`
	Serial string   `json:"serial,omitempty"`
	// Moved: the node's disks move into it, with the system and its agent.
	Moved bool `json:"moved,omitempty"`
	// BootID is the last boot of the old hardware.
	BootID string `json:"boot_id,omitempty"`
	Note   string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f HardwareFacts) TimelineNote() string { return f.Note }
