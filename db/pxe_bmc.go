package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// BMCSpec describes the BMC that a PXE node is to have. NodeID is ignored.
type BMCSpec struct {
	NewBMC
	// NewMachine: the node gets another machine with it. A login that is not the
	// stored one then means another BMC, though it answers at the same address.
	NewMachine bool
}

// GiveBMC gives a PXE node its BMC; the same once more changes nothing. Another
// BMC than the node has gets a record of its own, and the node's is released as
// it is: it alone names the login that Slipway may have set on that BMC, and how
// far a rotation of it is. *ConflictError when another node in service has the
// BMC, or the login is to be replaced while the BMC takes one that a rotation set.
func (tx *Tx) GiveBMC(ctx context.Context, nodeID string, in BMCSpec, a Actor) (BMC, error) {
	if err := tx.BMCFree(ctx, in.Address, in.Protocol, in.SystemID, nodeID); err != nil {
		return BMC{}, err
	}
	in.NodeID = &nodeID
	old, err := tx.BMCOfNode(ctx, nodeID)
	switch {
	case errors.Is(err, ErrNotFound):
		b, err := tx.CreateBMC(ctx, in.NewBMC)
		if err != nil {
			return b, err
		}
		return b, tx.AuditBMC(ctx, b.ID, nodeID, "create", a, map[string]any{"address": b.Address, "protocol": b.Protocol})
	case err != nil:
		return BMC{}, err
	}
	if !IsSameBMCAddress(in.Address, old.Address) || in.NewMachine && old.CredentialRef != in.CredentialRef {
		return tx.ExchangeBMC(ctx, nodeID, old, in.NewBMC, a)
	}
	return tx.CorrectBMC(ctx, nodeID, old, in, a)
}

// ExchangeBMC puts a new record in the place of a BMC that is no longer the
// node's. Pin, login block, counted tries and rotation stay with the old one.
func (tx *Tx) ExchangeBMC(ctx context.Context, nodeID string, old BMC, in NewBMC, a Actor) (BMC, error) {
	if err := tx.ReleaseBMC(ctx, old.ID, nodeID, true); err != nil {
		return BMC{}, err
	}
	b, err := tx.CreateBMC(ctx, in)
	if err != nil {
		return b, err
	}
	both := map[string]any{"old_address": old.Address, "old_bmc_id": old.ID, "address": b.Address, "bmc_id": b.ID, "protocol": b.Protocol}
	if err := tx.AuditBMC(ctx, old.ID, nodeID, "release", a, both); err != nil {
		return b, err
	}
	return b, tx.AuditBMC(ctx, b.ID, nodeID, "create", a, both)
}

// CorrectBMC changes how a BMC is spoken to. Its approved pin stays. System and cipher
// suite stay where nothing is said of them, but for the system of a machine that
// is another. nodeID is "" for the BMC of a machine without a node.
func (tx *Tx) CorrectBMC(ctx context.Context, nodeID string, old BMC, in BMCSpec, a Actor) (BMC, error) {
	want := old
	want.Address, want.Protocol, want.CredentialRef = in.Address, in.Protocol, in.CredentialRef
	if in.SystemID != "" || in.NewMachine {
		want.SystemID = in.SystemID
	}
	if in.CipherSuite != 0 {
		want.IPMICipherSuite = in.CipherSuite
	}
	if want == old {
		return old, nil
	}
	set := old.RotationState == lifecycle.RotationApplied || old.RotationState == lifecycle.RotationVerified
	if set && want.CredentialRef != old.CredentialRef {
		return old, &ConflictError{What: "rotation", Existing: old.ID, Message: fmt.Sprintf("a rotation has set a password of its own on the BMC at %s and is not ended; "+
			"begin another rotation, which settles what the BMC takes, and set the login afterwards", old.Address)}
	}
	b, err := tx.UpdateBMC(ctx, want)
	if err != nil {
		return b, err
	}
	return b, tx.AuditBMC(ctx, b.ID, nodeID, "update", a, map[string]any{"old_address": old.Address, "address": b.Address, "protocol": b.Protocol})
}

// AuditBMC writes an audit row of a BMC. nodeID is "" for the BMC of a machine without a node.
func (tx *Tx) AuditBMC(ctx context.Context, id, nodeID, name string, a Actor, meta map[string]any) error {
	a.Metadata = meta
	of := &nodeID
	if nodeID == "" {
		of = nil
	}
	return tx.AppendAudit(ctx, Entry{ResourceKind: "bmc", ResourceID: id, NodeID: of, Kind: EntryAction, Name: name, Actor: a})
}

// letGoOfBMC takes the BMC from a node that retires, so that the machine may be
// another node's. The record stays, since it alone names the stored login.
func (tx *Tx) letGoOfBMC(ctx context.Context, id string, a Actor) error {
	b, err := tx.BMCOfNode(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.ReleaseBMC(ctx, b.ID, id, true); err != nil {
		return err
	}
	return tx.AuditBMC(ctx, b.ID, id, "release", a, map[string]any{"address": b.Address})
}
