package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// DecommissionInput is the accepted request of a decommission or a node
// operation. PlanHash is the plan that it was started with.
type DecommissionInput struct {
	Mode     lifecycle.DecommissionMode `json:"mode"`
	NodeID   string                     `json:"node_id"`
	Hostname string                     `json:"hostname"`
	BMCID    string                     `json:"bmc_id,omitempty"`
	SystemID string                     `json:"system_id,omitempty"` // in MAAS; "" for a node that MAAS does not manage
	// From is the node's state when the request was accepted.
	From     lifecycle.NodeStatus `json:"from"`
	PlanHash string               `json:"plan_hash,omitempty"`
	Reason   string               `json:"reason,omitempty"`
	// GraceSeconds is how long what runs on the node may take to end.
	GraceSeconds int `json:"grace_seconds,omitempty"`
	// EraseOld is for a migration: the old hardware is erased first.
	EraseOld bool `json:"erase_old,omitempty"`
	// Disks is for a migration: db/record's DisksNew, DisksMoved or DisksSame; "" is new.
	Disks string `json:"disks,omitempty"`
}
