package rest

import (
	"context"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/pxejob"
)

// HardwareRequest is the hardware that takes a node's place.
type HardwareRequest struct {
	HardwareFacts
	KeepBMC bool `json:"keep_bmc,omitempty" doc:"The BMC stays the same, as when only a network card was replaced: needed for hardware without a bmc on a node that has one"`
}

// HardwareFacts tell the new hardware from another.
type HardwareFacts struct {
	MACAddresses []string `json:"mac_addresses" required:"true" itemMaxLength:"32" minItems:"1" maxItems:"8" nullable:"false" doc:"The first is the one that it boots with"`
	SerialNumber string   `json:"serial_number,omitempty" maxLength:"128" doc:"As its firmware says it; the job stops when the machine that boots says another"`
	SystemUUID   string   `json:"system_uuid,omitempty" maxLength:"64"`
	// BMC is that of the new hardware.
	BMC *BMCRequest `json:"bmc,omitempty" doc:"Without it a node that has a BMC keeps it, which keep_bmc must say"`
}

// hardware is the request as an intent takes it; nil for none.
func (r *HardwareRequest) hardware() *pxejob.Hardware {
	if r == nil {
		return nil
	}
	out := &pxejob.Hardware{MACs: r.MACAddresses, SerialNumber: r.SerialNumber, SystemUUID: r.SystemUUID, KeepBMC: r.KeepBMC}
	if r.BMC != nil {
		b := r.BMC.bmc(intent.ProtocolRedfish) // no profile names the protocol of a PXE node
		out.BMC = &b
	}
	return out
}

// planNodeHardware says which hardware the job of a migration is to put a node
// on. It may be said again until the job has.
func (s *server) planNodeHardware(ctx context.Context, in *struct {
	NodePath
	op.Match
	Body HardwareRequest
}) (*op.Versioned[Node], error) {
	plan, err := pxejob.CheckHardware(ctx, s.store, "", in.Body.hardware())
	if err != nil {
		return nil, err
	}
	return s.changePXENode(ctx, in.Match, func(tx *db.Tx, version int64) (db.Node, error) {
		return pxejob.PlanHardware(ctx, tx, in.ID, version, plan, op.Actor(ctx))
	})
}

// plannedView is the planned hardware as it was asked for.
func plannedView(h *db.PlannedHardware) *PlannedHardware {
	if h == nil {
		return nil
	}
	out := &PlannedHardware{
		HardwareFacts: HardwareFacts{MACAddresses: list(h.MACs), SerialNumber: h.SerialNumber, SystemUUID: h.SystemUUID}, Disks: h.Disks,
		ReplacedBy: h.ReplacedBy,
	}
	if b := h.BMC; b != nil {
		out.BMC = &BMCRequest{Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, SystemID: b.SystemID, IPMICipherSuite: b.IPMICipherSuite}
	}
	return out
}

// PlannedHardware is the hardware that a migrating node is to get.
type PlannedHardware struct {
	HardwareFacts
	Disks      string `json:"disks" enum:"new,moved,same"`
	ReplacedBy string `json:"replaced_by,omitempty" doc:"The job that has put the node on it"`
}
