package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// HardwareRequest is the hardware that takes a node's place.
type HardwareRequest struct {
	HardwareFacts
	KeepBMC bool `json:"keep_bmc,omitempty" doc:"The BMC stays the same, as when only a network card was replaced: needed for hardware without a bmc on a node that has one"`
}

// HardwareFacts tell the new hardware from another.
type HardwareFacts struct {
	MACAddresses []string `json:"mac_addresses" required:"true" minItems:"1" maxItems:"8" nullable:"false" doc:"The first is the one that it boots with"`
	SerialNumber string   `json:"serial_number,omitempty" maxLength:"128" doc:"As its firmware says it; the job stops when the machine that boots says another"`
	SystemUUID   string   `json:"system_uuid,omitempty" maxLength:"64"`
	// BMC is that of the new hardware.
	BMC *BMCRequest `json:"bmc,omitempty" doc:"Without it a node that has a BMC keeps it, which keep_bmc must say"`
}

// planNodeHardware says which hardware the job of a migration is to put a node
// on. It may be said anew until the job has.
func (s *Server) planNodeHardware(ctx context.Context, in *struct {
	NodePath
	Match
	Body HardwareRequest
}) (*Versioned[Node], error) {
	plan, err := s.checkPlanned(ctx, &in.Body, "body.")
	if err != nil {
		return nil, err
	}
	var view Node
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.version(func() (int64, error) { return n.Version, nil })
		if err != nil {
			return err
		}
		ask, err := migrationOf(ctx, tx, n)
		if err != nil {
			return err
		}
		if n, err = s.planHardware(ctx, tx, n, v, ask, plan); err != nil {
			return err
		}
		view = nodeView(n)
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return versioned(view.Version, view), nil
}

// migrationOf is the request of the live job that migrates a node.
func migrationOf(ctx context.Context, tx *db.Tx, n db.Node) (contract.DecommissionInput, error) {
	var ask contract.DecommissionInput
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return ask, problem.New(problem.Conflict, "only a PXE node changes its hardware this way; onboard the new server, and decommission the old one")
	}
	live, err := tx.LiveJobOfNode(ctx, n.ID)
	if err == nil && json.Unmarshal(live.Input, &ask) == nil && ask.Mode == lifecycle.ModeMigrate {
		return ask, nil
	}
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return ask, err
	}
	return ask, problem.New(problem.Conflict, fmt.Sprintf(
		"no job migrates node %s, which is %s; its hardware is planned while one does: begin with slipway node migrate %s, or set the state migrating, which may name the hardware at once",
		n.Hostname, n.Status, n.Hostname))
}

// checkPlanned names all that is wrong with the hardware of a request; nil for
// none. at is where it stands in the body.
func (s *Server) checkPlanned(ctx context.Context, r *HardwareRequest, at string) (*hardwarePlan, error) {
	if r == nil {
		return nil, nil
	}
	var bad []problem.Field
	wrong := func(field, message string) {
		bad = append(bad, problem.Field{Location: at + field, Message: message})
	}
	h := db.PlannedHardware{SerialNumber: boot.Serial(r.SerialNumber), SystemUUID: boot.Clean(r.SystemUUID, maxFact)}
	for i, text := range r.MACAddresses {
		mac, ok := spec.NormalMAC(text)
		switch {
		case !ok:
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "must be the Ethernet address of a network card, such as 52:54:00:12:34:56")
		case slices.Contains(h.MACs, mac):
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "is listed twice")
		}
		h.MACs = append(h.MACs, mac)
	}
	if b := r.BMC; b != nil {
		h.BMC = &db.PlannedBMC{Address: b.Address, Protocol: bmcProtocol(*b), CredentialRef: b.CredentialRef, SystemID: b.SystemID, IPMICipherSuite: b.IPMICipherSuite}
		if err := s.checkBMC(ctx, *b, h.BMC.Protocol, wrong); err != nil {
			return nil, err
		}
		if r.KeepBMC {
			wrong("keep_bmc", "is for hardware without a BMC of its own, and the request names one; leave one of the two out")
		}
	}
	if len(bad) > 0 {
		return nil, problem.NewInvalid(bad...)
	}
	return &hardwarePlan{PlannedHardware: h, keepBMC: r.KeepBMC, at: at}, nil
}

// hardwarePlan is hardware as a request names it.
type hardwarePlan struct {
	db.PlannedHardware
	keepBMC bool
	at      string // where it stands in the body
}

// takable refuses hardware that is another node's, or that does not say what
// becomes of the node's BMC; nil is none.
func (p *hardwarePlan) takable(ctx context.Context, tx *db.Tx, n db.Node) error {
	if p == nil {
		return nil
	}
	if err := p.namesBMC(ctx, tx, n); err != nil {
		return err
	}
	for _, mac := range p.MACs {
		other, err := tx.OtherNodeOfMAC(ctx, mac)
		if err == nil {
			return problem.New(problem.Conflict, "a node that MAAS provisions has the MAC "+mac+"; decommission that node first, or name another address").With(other)
		}
		if !errors.Is(err, db.ErrNotFound) {
			return err
		}
	}
	return tx.HardwareFree(ctx, p.PlannedHardware, n.ID)
}

// facts is the hardware as a plan takes it; nil for none.
func (p *hardwarePlan) facts(disks string) *contract.HardwareFacts {
	if p == nil {
		return nil
	}
	return &contract.HardwareFacts{MACs: p.MACs, Serial: p.SerialNumber, Moved: disks == db.DisksMoved}
}

// namesBMC refuses hardware without a BMC for a node that has one: its jobs
// would switch the old machine on and off for the new one.
func (p hardwarePlan) namesBMC(ctx context.Context, tx *db.Tx, n db.Node) error {
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
	return problem.NewInvalid(problem.Field{Location: p.at + "bmc", Message: fmt.Sprintf(
		"node %s has a BMC, at %s, which would go on being switched as that of the new hardware; name the new hardware's (--bmc-address and --bmc-credential-ref), or say that it stays the same, with keep_bmc: true (--keep-bmc)",
		n.Hostname, b.Address)})
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
	Disks      string `json:"disks" enum:"new,moved"`
	ReplacedBy string `json:"replaced_by,omitempty" doc:"The job that has put the node on it"`
}
