package db

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Hardware is what tells one machine from another. The caller has normalised
// the addresses; the first is the one that the node is known by.
type Hardware struct {
	MACs                 []string
	Serial, HardwareUUID string
}

// ReplaceHardware puts a migrating PXE node on other hardware: id, history and
// labels stay. A machine that was discovered under one of the addresses
// meanwhile is that hardware, and its node is purged. *ConflictError when
// another node has an address, ErrStale when the node has another version.
func (tx *Tx) ReplaceHardware(ctx context.Context, id string, version int64, h Hardware, a Actor) (Node, error) {
	old, err := tx.LockNode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	if old.Lifecycle != lifecycle.NodePXE.Lifecycle || old.Status != lifecycle.NodeMigrating {
		return Node{}, &ConflictError{What: "state", Existing: id, Message: "hardware is replaced while the node is migrating, and it is " + string(old.Status) + "; set that state first"}
	}
	for _, mac := range h.MACs {
		if err := tx.purgeDiscoveredAt(ctx, mac, id, a); err != nil {
			return Node{}, err
		}
	}
	if err := tx.q.DropPXEMACs(ctx, id); err != nil {
		return Node{}, MapError("MACs of node "+id, err)
	}
	if err := tx.takeMACs(ctx, id, h.MACs); err != nil {
		return Node{}, err
	}
	k := spec.MachineKeys{Serial: h.Serial, UUID: h.HardwareUUID}.Normal()
	h.Serial, h.HardwareUUID = k.Serial, k.UUID
	n, err := tx.q.ReplaceNodeHardware(ctx, gen.ReplaceNodeHardwareParams{ID: id, Version: version, MACs: h.MACs, Serial: h.Serial, HardwareUUID: h.HardwareUUID})
	if n, err = CheckUpdate("node "+id, n, err, func() error { return nil }); err != nil {
		return Node{}, err
	}
	a.Metadata = map[string]any{
		"from": map[string]any{"mac_addresses": old.MACs, "serial_number": old.Serial, "system_uuid": old.HardwareUUID},
		"to":   map[string]any{"mac_addresses": h.MACs, "serial_number": h.Serial, "system_uuid": h.HardwareUUID},
	}
	return n, tx.AppendAudit(ctx, Entry{ResourceKind: "node", ResourceID: id, NodeID: &id, Kind: EntryAction, Name: "replace_hardware", From: string(old.Status), To: string(old.Status), Actor: a})
}

// purgeDiscoveredAt deletes the node that was made when the new hardware booted
// before anybody said whose it is.
func (tx *Tx) purgeDiscoveredAt(ctx context.Context, mac, takenBy string, a Actor) error {
	n, err := tx.NodeOfMAC(ctx, mac)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if n, err = tx.LockNode(ctx, n.ID); err != nil || n.Status != lifecycle.NodeDiscovered {
		return err
	}
	a.Metadata = map[string]any{"taken_by": takenBy}
	return tx.purge(ctx, n.ID, a)
}

// purge deletes a node that was only ever discovered; its audit row goes first.
func (tx *Tx) purge(ctx context.Context, id string, a Actor) error {
	err := tx.AppendAudit(ctx, Entry{ResourceKind: "node", ResourceID: id, NodeID: &id, Kind: EntryAction, Name: "purge", From: string(lifecycle.NodeDiscovered), Actor: a})
	if err != nil {
		return err
	}
	_, err = tx.q.DeleteDiscoveredNode(ctx, id)
	return MapError("purge node "+id, err)
}
