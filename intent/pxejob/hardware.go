package pxejob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Hardware is the hardware that takes a node's place, as a request describes it.
type Hardware struct {
	MACs         []string
	SerialNumber string
	SystemUUID   string
	BMC          *intent.BMC
	KeepBMC      bool // the node keeps the BMC that it has
}

// Planned is hardware that is described correctly. CheckHardware makes it; nil is none.
type Planned struct {
	db.PlannedHardware
	keepBMC bool
	part    string // where it is in the request, with its dot
}

// CheckHardware names everything that is wrong with the hardware of a request. part is where it is
// in the request, "" for the whole of it.
func CheckHardware(ctx context.Context, store *db.Store, part string, r *Hardware) (*Planned, error) {
	if r == nil {
		return nil, nil
	}
	if part != "" {
		part += "."
	}
	var bad []intent.Field
	wrong := func(field, message string) { bad = append(bad, intent.Field{Name: part + field, Message: message}) }
	p := &Planned{keepBMC: r.KeepBMC, part: part}
	keys := spec.MachineKeys{Serial: r.SerialNumber, UUID: r.SystemUUID}.Normal()
	p.SerialNumber, p.SystemUUID = keys.Serial, keys.UUID
	if r.SerialNumber != "" && keys.Serial == "" {
		wrong("serial_number", "is what many machines show; leave it out where the machine has none")
	}
	if r.SystemUUID != "" && keys.UUID == "" {
		wrong("system_uuid", "must be a UUID such as 4c4c4544-0042-3510-8054-b7c04f503033, and none that many machines show; leave it out where the machine has none")
	}
	for i, text := range r.MACs {
		mac, ok := spec.NormalMAC(text)
		switch {
		case !ok:
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "must be the Ethernet address of a network card, such as 52:54:00:12:34:56")
		case slices.Contains(p.MACs, mac):
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "is listed twice")
		}
		p.MACs = append(p.MACs, mac)
	}
	if b := r.BMC; b != nil {
		p.BMC = &db.PlannedBMC{Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, SystemID: b.SystemID, IPMICipherSuite: b.CipherSuite}
		fields, err := intent.CheckBMC(ctx, store, *b)
		if err != nil {
			return nil, err
		}
		bad = append(bad, intent.Under(part+"bmc", fields)...)
		if r.KeepBMC {
			wrong("keep_bmc", "is for hardware without a BMC of its own, and the request names one; leave one of the two out")
		}
	}
	return p, intent.InvalidIf(bad)
}

// ownHardware is the hardware that the node has, for a migration that keeps it.
func ownHardware(n db.Node) *Planned {
	return &Planned{keepBMC: true, PlannedHardware: db.PlannedHardware{MACs: n.MACs, SerialNumber: n.Serial, SystemUUID: n.HardwareUUID}}
}

// PlanHardware says which hardware the job of a migration is to put a node on. It may be said again
// until the job has. version is the node's that the request is meant for; 0 is whichever is there.
func PlanHardware(ctx context.Context, tx *db.Tx, nodeID string, version int64, p *Planned, actor db.Actor) (db.Node, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return n, err
	}
	if version == 0 {
		version = n.Version
	}
	in, err := migrationOf(ctx, tx, n)
	if err != nil {
		return n, err
	}
	if in.Disks == db.DisksSame {
		return n, &intent.Refusal{Kind: intent.Conflict, Detail: "the job erases the hardware of node " + n.Hostname +
			" and installs it again; cancel it, and migrate the node to put it on other hardware"}
	}
	return p.plan(ctx, tx, n, version, in.Disks, actor)
}

// migrationOf returns the request of the live job that migrates a node.
func migrationOf(ctx context.Context, tx *db.Tx, n db.Node) (contract.DecommissionInput, error) {
	var in contract.DecommissionInput
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return in, &intent.Refusal{Kind: intent.Conflict, Detail: "only a PXE node changes its hardware this way; onboard the new server, and decommission the old one"}
	}
	live, err := tx.LiveJobOfNode(ctx, n.ID)
	if err == nil && json.Unmarshal(live.Input, &in) == nil && in.Mode == lifecycle.ModeMigrate {
		return in, nil
	}
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return in, err
	}
	return in, &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonNoMigration, Hostname: n.Hostname}, Detail: fmt.Sprintf(
		"no job migrates node %s, which is %s; its hardware is planned while one does: set the state migrating, which may name the hardware at once", n.Hostname, n.Status)}
}

// plan stores the hardware, if there is any, for the node's job.
func (p *Planned) plan(ctx context.Context, tx *db.Tx, n db.Node, version int64, disks string, actor db.Actor) (db.Node, error) {
	if p == nil {
		return n, nil
	}
	if err := p.available(ctx, tx, n); err != nil {
		return n, err
	}
	h := p.PlannedHardware
	h.Disks = disks
	return tx.PlanHardware(ctx, n.ID, version, h, actor)
}

// available refuses hardware that is another node's, or that does not say what becomes of the
// node's BMC.
func (p *Planned) available(ctx context.Context, tx *db.Tx, n db.Node) error {
	if p == nil {
		return nil
	}
	if err := p.namesBMC(ctx, tx, n); err != nil {
		return err
	}
	for _, mac := range p.MACs {
		other, err := tx.OtherNodeOfMAC(ctx, mac)
		if err == nil {
			return &intent.Refusal{Kind: intent.Conflict, Existing: other,
				Detail: "a node that MAAS provisions has the MAC " + mac + "; decommission that node first, or name another address"}
		}
		if !errors.Is(err, db.ErrNotFound) {
			return err
		}
	}
	return tx.HardwareFree(ctx, p.PlannedHardware, n.ID)
}

// facts is the hardware as a plan takes it; nil for none.
func (p *Planned) facts(disks string) *contract.HardwareFacts {
	if p == nil {
		return nil
	}
	return &contract.HardwareFacts{MACs: p.MACs, Serial: p.SerialNumber, Moved: disks == db.DisksMoved}
}

// namesBMC refuses hardware without a BMC for a node that has one: its jobs would switch the old
// machine on and off for the new one.
func (p *Planned) namesBMC(ctx context.Context, tx *db.Tx, n db.Node) error {
	if p.BMC != nil || p.keepBMC {
		return nil
	}
	b, err := tx.BMCOfNode(ctx, n.ID)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return intent.InvalidIf([]intent.Field{{Name: p.part + "bmc", Reason: intent.ReasonBMCOfOldHardware, Message: fmt.Sprintf(
		"node %s has a BMC, at %s, which would go on being switched as that of the new hardware; name the new hardware's, or say that it stays the same, with keep_bmc: true",
		n.Hostname, b.Address)}})
}
