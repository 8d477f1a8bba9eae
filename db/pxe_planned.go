package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// PlanHardware keeps the hardware that is to take the place of a migrating
// node's, for the job that migrates it; a plan that is there is replaced. The
// caller has normalised it. *ConflictError when nothing migrates the node, its
// hardware is replaced already, another node has an address or the BMC, or a tenant's data
// would move with the disks; ErrStale when the node has another version.
func (tx *Tx) PlanHardware(ctx context.Context, nodeID string, version int64, h PlannedHardware, a Actor) (Node, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return Node{}, err
	}
	j, err := tx.migrating(ctx, n)
	if err != nil {
		return Node{}, err
	}
	p, err := tx.PXENode(ctx, nodeID)
	if err != nil {
		return Node{}, err
	}
	if p.PlannedHardware != nil && p.PlannedHardware.ReplacedBy == j.ID {
		return Node{}, &ConflictError{What: "hardware", Existing: j.ID, Message: "job " + j.ID + " has put the node on its new hardware already; cancel it and migrate again for other hardware"}
	}
	if err := errors.Join(tx.HardwareFree(ctx, h, nodeID), tenantStays(n, h.Disks)); err != nil {
		return Node{}, err
	}
	n, err = tx.q.TouchNode(ctx, gen.TouchNodeParams{ID: nodeID, Version: version})
	if n, err = CheckUpdate("node "+nodeID, n, err, func() error { return nil }); err != nil {
		return Node{}, err
	}
	h.ReplacedBy = ""
	if err := tx.q.PlanHardware(ctx, gen.PlanHardwareParams{NodeID: nodeID, PlannedHardware: &h}); err != nil {
		return Node{}, MapError("planned hardware of node "+nodeID, err)
	}
	a.Metadata = map[string]any{"job_id": j.ID, "mac_addresses": h.MACs, "serial_number": h.SerialNumber, "system_uuid": h.SystemUUID, "disks": h.Disks}
	return n, tx.AppendAudit(ctx, Entry{ResourceKind: "node", ResourceID: nodeID, NodeID: &nodeID, Kind: EntryAction, Name: "plan_hardware", From: string(n.Status), To: string(n.Status), Actor: a})
}

// HardwareFree refuses hardware of which another node has an address or the BMC.
func (tx *Tx) HardwareFree(ctx context.Context, h PlannedHardware, nodeID string) error {
	for _, mac := range h.MACs {
		if err := tx.macFree(ctx, mac, nodeID); err != nil {
			return err
		}
	}
	if b := h.BMC; b != nil {
		return tx.BMCFree(ctx, b.Address, b.Protocol, b.SystemID, nodeID)
	}
	return nil
}

// migrating is the live job that migrates the node.
func (tx *Tx) migrating(ctx context.Context, n Node) (Job, error) {
	j, err := tx.LiveOperation(ctx, n.ID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Job{}, err
	}
	if err != nil || n.Status != lifecycle.NodeMigrating || modeOf(j) != lifecycle.ModeMigrate {
		return Job{}, &ConflictError{What: "state", Existing: n.ID, Message: fmt.Sprintf("hardware is planned while a job migrates the node, and the node is %s; migrate it first", n.Status)}
	}
	return j, nil
}

// macFree refuses an address that a node has which is more than discovered: that
// one is the hardware itself, and goes when the hardware is taken.
func (tx *Tx) macFree(ctx context.Context, mac, nodeID string) error {
	other, err := tx.NodeOfMAC(ctx, mac)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case other.ID == nodeID || other.Status == lifecycle.NodeDiscovered:
		return nil
	}
	return macTaken(mac, other)
}

// BMCFree refuses a BMC that another node has which is in use: its jobs would switch that node's
// machine. *ConflictError names that node. Two nodes may share a Redfish service that has several
// systems, where each names another. Of two transactions that ask for one BMC the second waits for
// the first to end. A rack device's is no node's, and neither is that of a machine without a node.
func (tx *Tx) BMCFree(ctx context.Context, address, protocol, systemID, nodeID string) error {
	if err := tx.LockBMCAddress(ctx, address); err != nil {
		return err
	}
	there, err := tx.BMCsAt(ctx, address)
	if err != nil {
		return err
	}
	for _, b := range there {
		if b.NodeID == nil {
			if err := errors.Join(tx.noRackDevice(ctx, b), tx.noMachine(ctx, b)); err != nil {
				return err
			}
		}
		apart := protocol == redfish && b.Protocol == redfish && systemID != "" && b.SystemID != "" && systemID != b.SystemID
		if b.NodeID == nil || *b.NodeID == nodeID || apart {
			continue
		}
		other, err := tx.Node(ctx, *b.NodeID)
		if err != nil {
			return err
		}
		if other.Status != lifecycle.NodeRetired && other.Status != lifecycle.NodeDeleted {
			return &ConflictError{What: "bmc", Existing: other.ID, Message: fmt.Sprintf(
				"node %s (%s) has the BMC at %s; name another address, or retire that node first", other.Hostname, other.ID, address)}
		}
	}
	return nil
}

// LockBMCAddress makes a transaction wait for another that gives the BMC at an address to a node,
// a machine or a rack device, until that ends.
func (tx *Tx) LockBMCAddress(ctx context.Context, address string) error {
	return MapError("BMC at "+address, tx.q.Lock(ctx, "bmc/"+writtenAs(address)[0]))
}

// noRackDevice refuses a BMC that is a rack device's.
func (tx *Tx) noRackDevice(ctx context.Context, b BMC) error {
	d, err := tx.q.RackDeviceOfBMC(ctx, b.ID)
	if err == nil {
		return &ConflictError{What: "bmc", Existing: d.ID, Message: fmt.Sprintf(
			"rack device %s (%s) has the BMC at %s; name another address, or remove that rack device first", d.Name, d.ID, b.Address)}
	}
	if err = MapError("rack device of BMC "+b.ID, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// noMachine refuses a BMC that is that of a machine without a node.
func (tx *Tx) noMachine(ctx context.Context, b BMC) error {
	id, err := tx.q.MachineOfBMC(ctx, b.ID)
	if err == nil {
		return &ConflictError{What: "bmc", Existing: id, Message: fmt.Sprintf(
			"machine %s has the BMC at %s; name another address, or take the login of the BMC from that machine first", id, b.Address)}
	}
	if err = MapError("machine of BMC "+b.ID, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// redfish is the protocol whose services may have several systems.
const redfish = "redfish"

// ApplyHardware puts a migrating node on its planned hardware, once for a job, and returns the
// plan: addresses and serial number, the BMC where one is planned; what the job had armed for the
// old hardware ends, and unless the disks move the old agent's identity is shut out with its
// enrolment tokens; with new disks what a tenant left stays behind. ErrNotFound while nothing is
// planned. Repeatable.
func (tx *Tx) ApplyHardware(ctx context.Context, nodeID, jobID string, a Actor) (PlannedHardware, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return PlannedHardware{}, err
	}
	p, err := tx.PXENode(ctx, nodeID)
	if err != nil {
		return PlannedHardware{}, err
	}
	if p.PlannedHardware == nil {
		return PlannedHardware{}, fmt.Errorf("planned hardware of node %s: %w", nodeID, ErrNotFound)
	}
	h := *p.PlannedHardware
	if h.ReplacedBy == jobID {
		return h, nil
	}
	if err := tenantStays(n, h.Disks); err != nil {
		return h, err
	}
	if _, err := tx.ReplaceHardware(ctx, nodeID, n.Version, Hardware{MACs: h.MACs, Serial: h.SerialNumber, HardwareUUID: h.SystemUUID}, a); err != nil {
		return h, err
	}
	if b := h.BMC; b != nil {
		given := NewBMC{Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, SystemID: b.SystemID, CipherSuite: b.IPMICipherSuite}
		if _, err := tx.GiveBMC(ctx, nodeID, BMCSpec{NewBMC: given, NewMachine: true}, a); err != nil {
			return h, err
		}
	}
	if err := tx.leaveHardware(ctx, nodeID, jobID, h.Disks); err != nil {
		return h, err
	}
	h.ReplacedBy = jobID
	return h, MapError("planned hardware of node "+nodeID, tx.q.PlanHardware(ctx, gen.PlanHardwareParams{NodeID: nodeID, PlannedHardware: &h}))
}

// leaveHardware forgets how the old machine was reached and, unless its disks move along, shuts out
// the agent that was on them. The record of drives goes with them; it stays where the node keeps
// its hardware.
func (tx *Tx) leaveHardware(ctx context.Context, nodeID, jobID, disks string) error {
	if err := tx.DisarmNetboot(ctx, nodeID, jobID); err != nil {
		return err
	}
	if err := tx.q.ForgetPXEFacts(ctx, nodeID); err != nil {
		return MapError("facts of node "+nodeID, err)
	}
	if err := tx.DeleteNodeAccess(ctx, nodeID); err != nil || disks == DisksMoved {
		return err
	}
	if disks == DisksSame {
		return tx.EndAgentIdentity(ctx, nodeID, "job "+jobID+" has erased the disks of the node")
	}
	forgotten := MapError("drives of node "+nodeID, tx.q.ForgetDrives(ctx, nodeID))
	if err := errors.Join(forgotten, tx.clearTenantLeft(ctx, nodeID)); err != nil {
		return err
	}
	return tx.EndAgentIdentity(ctx, nodeID, "job "+jobID+" put the node on other hardware with other disks")
}
