package contract

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// AgentLiveness is whether a node's agent lives, as far as its heartbeats tell.
type AgentLiveness string

// The signs.
const (
	AgentAlive  AgentLiveness = "alive"
	AgentSilent AgentLiveness = "silent" // no heartbeat for longer than the policy bears
	AgentNone   AgentLiveness = "none"   // it never enrolled, or is shut out
)

// DecommissionFacts is what the control plane knows of a node that leaves service.
type DecommissionFacts struct {
	Status       lifecycle.NodeStatus `json:"status"`
	AllocationID string               `json:"allocation_id,omitempty"`
	// TenantRoot says that the tenant who is on the node, or who left it unproven, was root there.
	TenantRoot bool `json:"tenant_root,omitempty"`
	// LastTenancy is the allocation of that tenant; "" where none is known.
	LastTenancy string `json:"last_tenancy,omitempty"`
	// TenantLeft is when a tenant left a node that nothing proves clean since.
	TenantLeft    *time.Time    `json:"tenant_left,omitempty"`
	Hostname      string        `json:"hostname"`
	Serial        string        `json:"serial,omitempty"`
	SystemID      string        `json:"system_id,omitempty"` // "" for a node that MAAS does not manage
	BMCID         string        `json:"bmc_id,omitempty"`
	MACs          []string      `json:"macs,omitempty"`
	Simulated     bool          `json:"simulated,omitempty"`
	Agent         AgentLiveness `json:"agent"`
	LastHeartbeat *time.Time    `json:"last_heartbeat,omitempty"`
	BootID        string        `json:"boot_id,omitempty"`
	// HeldFor is the allocation that the agent says its node holds; "" for none, and where it does
	// not say.
	HeldFor string `json:"held_for,omitempty"`
	// Disks are those that the agent last reported.
	Disks []lifecycle.DeviceResult `json:"disks,omitempty"`
	// Drives are those that the node is expected to have, DrivesFrom says who named them, and
	// ProtectSerials are those that are never erased, by serial number or WWN.
	Drives         []spec.ExpectedDrive `json:"drives,omitempty"`
	DrivesFrom     string               `json:"drives_from,omitempty"`
	ProtectSerials []string             `json:"protect_serials,omitempty"`
	Done           bool                 `json:"done,omitempty"` // the outcome asked for is there
	Note           string               `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f DecommissionFacts) TimelineNote() string { return f.Note }

// DecommissionConfig is what a decommission goes by: the site, the node's profile and
// SKU, and what belongs to the platform on a node. Keys are public.
type DecommissionConfig struct {
	Site      spec.SiteSpec    `json:"site"`
	Profile   spec.ProfileSpec `json:"profile"`
	SKU       spec.SKUSpec     `json:"sku"`
	ProfileID string           `json:"profile_id,omitempty"`
	SKUID     string           `json:"sku_id,omitempty"`
	KeepUsers []string         `json:"keep_users,omitempty"`
	KeepKeys  []string         `json:"keep_keys,omitempty"`
}

// PowerFacts is what was read of a machine's power.
type PowerFacts struct {
	State      string `json:"state,omitempty"`       // on, off, unknown
	ReportedBy string `json:"reported_by,omitempty"` // who said so: BMC, MAAS
	Done       bool   `json:"done,omitempty"`
	Note       string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f PowerFacts) TimelineNote() string {
	if f.Note != "" {
		return f.Note
	}
	return f.ReportedBy + ": power " + f.State
}

// ReleaseFacts is where the release of a machine stands.
type ReleaseFacts struct {
	MachineFacts
	// Erased is set when MAAS said that it erased the disks during this release.
	Erased bool `json:"erased,omitempty"`
	// Fallback says why the machine was released without erasing, which the
	// profile allows.
	Fallback string `json:"fallback,omitempty"`
	// Disks are the physical disks as MAAS lists them.
	Disks []lifecycle.DeviceResult `json:"disks,omitempty"`
	// LastEvent is the number of MAAS's newest event about the machine.
	LastEvent int `json:"last_event,omitempty"`
}

// CertificateFacts is what became of the evidence of a run.
type CertificateFacts struct {
	CertificateID string `json:"certificate_id,omitempty"`
	Verdict       string `json:"verdict"`
	// Unproven lists what keeps the mode from succeeding: failed steps, and
	// devices that are not verified and that the mode neither keeps nor excuses.
	Unproven []string `json:"unproven,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f CertificateFacts) TimelineNote() string {
	return "certificate " + f.CertificateID + ": " + f.Verdict
}
