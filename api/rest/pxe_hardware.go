package rest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// HardwareRequest is the hardware that takes a node's place.
type HardwareRequest struct {
	MACAddresses []string `json:"mac_addresses" required:"true" minItems:"1" maxItems:"8" nullable:"false" doc:"The first is the one that it boots with"`
	SerialNumber string   `json:"serial_number,omitempty" maxLength:"128"`
	SystemUUID   string   `json:"system_uuid,omitempty" maxLength:"64"`
	// BMC is that of the new hardware; without it the node keeps the one it has.
	BMC *BMCRequest `json:"bmc,omitempty"`
}

func (s *Server) replaceHardware(ctx context.Context, in *struct {
	NodePath
	Match
	Body HardwareRequest
}) (*Versioned[Node], error) {
	h, protocol, err := s.checkHardware(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	var view Node
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		v, err := in.version(func() (int64, error) { n, err := tx.Node(ctx, in.ID); return n.Version, err })
		if err != nil {
			return err
		}
		n, err := tx.ReplaceHardware(ctx, in.ID, v, h, s.actor(ctx))
		if err != nil {
			return err
		}
		view = nodeView(n)
		if in.Body.BMC != nil {
			if view.BMCID, err = replaceBMC(ctx, tx, n.ID, *in.Body.BMC, protocol); err != nil {
				return err
			}
		}
		return addPXE(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return versioned(view.Version, view), nil
}

// checkHardware names all that is wrong with the request.
func (s *Server) checkHardware(ctx context.Context, r HardwareRequest) (h db.Hardware, protocol string, err error) {
	var bad []problem.Field
	wrong := func(field, message string) {
		bad = append(bad, problem.Field{Location: "body." + field, Message: message})
	}
	for i, text := range r.MACAddresses {
		mac, ok := lifecycle.NormalMAC(text)
		switch {
		case !ok:
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "must be the Ethernet address of a network card, such as 52:54:00:12:34:56")
		case slices.Contains(h.MACs, mac):
			wrong(fmt.Sprintf("mac_addresses[%d]", i), "is listed twice")
		}
		h.MACs = append(h.MACs, mac)
	}
	h.Serial, h.HardwareUUID = boot.Clean(r.SerialNumber, maxFact), boot.Clean(r.SystemUUID, maxFact)
	if r.BMC != nil {
		if protocol = r.BMC.Protocol; protocol == "" {
			protocol = "redfish"
		}
		if err := s.checkBMC(ctx, *r.BMC, protocol, wrong); err != nil {
			return h, "", err
		}
	}
	if len(bad) > 0 {
		return h, "", problem.NewInvalid(bad...)
	}
	return h, protocol, nil
}

// replaceBMC gives a node the BMC of its new hardware. The certificate that was
// approved for the old one does not hold.
func replaceBMC(ctx context.Context, tx *db.Tx, nodeID string, r BMCRequest, protocol string) (string, error) {
	old, err := tx.BMCOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		b, err := tx.CreateBMC(ctx, db.NewBMC{
			NodeID: &nodeID, Address: r.Address, Protocol: protocol, CredentialRef: r.CredentialRef, SystemID: r.SystemID, CipherSuite: r.IPMICipherSuite,
		})
		return b.ID, err
	}
	if err != nil {
		return "", err
	}
	old.Address, old.CredentialRef, old.Protocol, old.SystemID = r.Address, r.CredentialRef, protocol, r.SystemID
	if r.IPMICipherSuite != 0 {
		old.IPMICipherSuite = r.IPMICipherSuite
	}
	if _, err := tx.UpdateBMC(ctx, old); err != nil {
		return "", err
	}
	return old.ID, tx.SetBMCPin(ctx, old.ID, "")
}
