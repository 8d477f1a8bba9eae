package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/internal/sender"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// PXENode is what a node of lifecycle pxe has beside its record.
type PXENode = gen.PXENode

// PXEFacts is what a node said of itself; nothing of it is proven.
type PXEFacts = record.PXEFacts

// MaxDiscovered is how many nodes may await approval: anybody on the boot
// network can make them.
const MaxDiscovered = 1000

// unseenLimit is how long a discovered node may be silent before it gives way to another one of a
// full list. A machine that waits for its approval asks every 30 seconds.
const unseenLimit = 24 * time.Hour

// ErrDiscoveryFull: as many nodes as may be await approval.
var ErrDiscoveryFull = errors.New("the list of discovered nodes is full; approve or purge some")

// Discovery is a machine that showed itself. The caller has normalised the MAC
// and bounded the facts.
type Discovery struct {
	MAC    string
	Source string // the address it came from
	Facts  PXEFacts
}

// PXENode reads what a PXE node has beside its record, or ErrNotFound.
func (s statements) PXENode(ctx context.Context, id string) (PXENode, error) {
	p, err := s.q.PXENode(ctx, id)
	return p, MapError("PXE node "+id, err)
}

// PXENodes reads those of many, by node id; the others are missing.
func (s statements) PXENodes(ctx context.Context, ids []string) (map[string]PXENode, error) {
	rows, err := s.q.PXENodes(ctx, ids)
	if err != nil {
		return nil, MapError("PXE nodes", err)
	}
	out := make(map[string]PXENode, len(rows))
	for _, r := range rows {
		out[r.NodeID] = r
	}
	return out, nil
}

// NodeOfMAC is the PXE node that has this address and is not retired.
func (s statements) NodeOfMAC(ctx context.Context, mac string) (Node, error) {
	n, err := s.q.NodeOfMAC(ctx, mac)
	return n, MapError("node of MAC "+mac, err)
}

// OtherNodeOfMAC is the id of a node of another lifecycle with this address.
func (s statements) OtherNodeOfMAC(ctx context.Context, mac string) (string, error) {
	id, err := s.q.OtherNodeOfMAC(ctx, mac)
	return id, MapError("node of MAC "+mac, err)
}

// SeePXENode notes that a node showed itself, and adds what it says of itself.
// It writes at most once in ten seconds when nothing is new.
func (s statements) SeePXENode(ctx context.Context, id, source string, f PXEFacts) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("facts of node %s: %w", id, err)
	}
	return MapError("see node "+id, s.q.SeePXENode(ctx, gen.SeePXENodeParams{NodeID: id, SeenFrom: source, Facts: CleanJSON(b)}))
}

// SeePXEFirmware notes what the firmware of a migrating node says, by which the
// job that migrates it tells the planned machine from another.
func (s statements) SeePXEFirmware(ctx context.Context, id, source string, f PXEFacts) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("firmware of node %s: %w", id, err)
	}
	return MapError("see node "+id, s.q.SeePXEFirmware(ctx, gen.SeePXEFirmwareParams{NodeID: id, SeenFrom: source, Firmware: CleanJSON(b)}))
}

// SeeDiscovered is SeePXENode for a node that awaits approval: its serial number
// and system UUID are what the machine says last. From the approval on they stay.
func (s *Store) SeeDiscovered(ctx context.Context, id, source string, f PXEFacts) error {
	if err := s.SeePXENode(ctx, id, source, f); err != nil {
		return err
	}
	k := spec.MachineKeys{Serial: f.SerialNumber, UUID: f.SystemUUID}.Normal()
	return MapError("identify node "+id, s.q.IdentifyDiscovered(ctx, gen.IdentifyDiscoveredParams{ID: id, Serial: k.Serial, HardwareUUID: k.UUID}))
}

// Discover makes a node in its first state for an address that no node has. It
// returns the node that has it when another transaction was faster. One runs at a time.
//
// At MaxDiscovered a node of the network that has the most gives way, where that is not the network
// of the new one, so that no network fills the list for all others. Else Discover returns
// ErrDiscoveryFull.
func (tx *Tx) Discover(ctx context.Context, d Discovery) (n Node, created bool, err error) {
	if err := tx.q.Lock(ctx, "slipway:pxe_discovery"); err != nil {
		return Node{}, false, MapError("discover "+d.MAC, err)
	}
	n, err = tx.NodeOfMAC(ctx, d.MAC)
	if !errors.Is(err, ErrNotFound) {
		return n, false, err
	}
	count, err := tx.q.CountDiscovered(ctx)
	if err != nil {
		return Node{}, false, MapError("count discovered nodes", err)
	}
	if count >= MaxDiscovered {
		if err := tx.crowdOut(ctx, d); err != nil {
			return Node{}, false, err
		}
	}
	n, err = tx.insertDiscovered(ctx, d)
	return n, err == nil, err
}

// crowdOut deletes the discovered node that gives way to d. It returns ErrDiscoveryFull when there
// is none.
func (tx *Tx) crowdOut(ctx context.Context, d Discovery) error {
	id, err := tx.q.CrowdedOutDiscovered(ctx, gen.CrowdedOutDiscoveredParams{SourceNetwork: sender.NetworkText(d.Source), UnseenSeconds: unseenLimit.Seconds()})
	if err = MapError("discovered node that gives way", err); errors.Is(err, ErrNotFound) {
		return ErrDiscoveryFull
	}
	if err != nil {
		return err
	}
	return tx.purge(ctx, id, Actor{Owner: lifecycle.OwnerNodeReport, Metadata: map[string]any{"gave_way_to": d.MAC, "source": d.Source}})
}

func (tx *Tx) insertDiscovered(ctx context.Context, d Discovery) (Node, error) {
	n := Node{ID: NewID("node"), Lifecycle: lifecycle.NodePXE.Lifecycle, Status: lifecycle.NodePXE.Initial[0], Labels: Labels{}, Serial: spec.NormalSerial(d.Facts.SerialNumber)}
	meta := map[string]any{"mac_address": d.MAC, "source": d.Source}
	old, err := tx.q.RetiredNodeOfMAC(ctx, d.MAC)
	if err = MapError("retired node of MAC "+d.MAC, err); err == nil {
		meta["retired_node_id"] = old
	} else if !errors.Is(err, ErrNotFound) {
		return Node{}, err
	}
	if n.Hostname, err = tx.discoveredName(ctx, n.ID, d.MAC); err != nil {
		return Node{}, err
	}
	if err := tx.insertNode(ctx, n, Actor{Owner: lifecycle.OwnerNodeReport, Metadata: meta}); err != nil {
		return Node{}, err
	}
	if err := tx.q.InsertPXENode(ctx, gen.InsertPXENodeParams{
		NodeID: n.ID, Facts: d.Facts, SeenFrom: d.Source, SourceNetwork: sender.NetworkText(d.Source),
	}); err != nil {
		return Node{}, MapError("PXE node "+n.ID, err)
	}
	if err := tx.takeMACs(ctx, n.ID, []string{d.MAC}); err != nil {
		return Node{}, err
	}
	if err := tx.SetNodeMachine(ctx, n.ID, NodeMachine{HardwareUUID: d.Facts.SystemUUID, MACs: []string{d.MAC}}); err != nil {
		return Node{}, err
	}
	return tx.Node(ctx, n.ID)
}

// discoveredName is made of the address, which no two nodes that live have. The
// name of a retired node is not given twice: its end becomes the new id's.
func (tx *Tx) discoveredName(ctx context.Context, id, mac string) (string, error) {
	name := "pxe-" + strings.ReplaceAll(mac, ":", "")
	_, err := tx.LiveNodeOfHost(ctx, "", name)
	switch {
	case errors.Is(err, ErrNotFound):
		return name, nil
	case err != nil:
		return "", err
	}
	return name + "-" + id[strings.LastIndexByte(id, '-')+1:], nil
}

// takeMACs gives a node its addresses; *ConflictError when another has one.
func (tx *Tx) takeMACs(ctx context.Context, id string, macs []string) error {
	for _, mac := range macs {
		rows, err := tx.q.InsertPXEMAC(ctx, gen.InsertPXEMACParams{MAC: mac, NodeID: id})
		if err != nil {
			return MapError("MAC "+mac, err)
		}
		if rows == 0 {
			other, err := tx.NodeOfMAC(ctx, mac)
			if err != nil {
				return err
			}
			if other.ID != id {
				return macTaken(mac, other)
			}
		}
	}
	return nil
}

func macTaken(mac string, other Node) error {
	return &ConflictError{What: "mac", Existing: other.ID, Message: "another node has the MAC " + mac + "; retire or purge that node first"}
}

// AssignInstallWorkflow says how a PXE node is installed; the version is the
// node's. While it is queued, what was handed out for the workflow before no
// longer counts.
func (tx *Tx) AssignInstallWorkflow(ctx context.Context, id string, version int64, workflowID string) (Node, error) {
	n, err := tx.LockNode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	queued := n.Status == lifecycle.NodePending
	n, err = tx.q.TouchNode(ctx, gen.TouchNodeParams{ID: id, Version: version})
	if n, err = CheckUpdate("node "+id, n, err, func() error { return nil }); err != nil {
		return Node{}, err
	}
	err = tx.q.AssignInstallWorkflow(ctx, gen.AssignInstallWorkflowParams{NodeID: id, InstallWorkflowID: optional(workflowID), Queued: queued})
	return n, MapError("assign an install workflow to node "+id, err)
}

// settlePXE follows a change of a PXE node's state, in its transaction.
func (tx *Tx) settlePXE(ctx context.Context, n Node) error {
	deadline := spec.InstallWorkflowSpec{}.Deadline()
	if n.Status == lifecycle.NodeInstalling {
		var err error
		if deadline, err = tx.installDeadline(ctx, n.ID); err != nil {
			return err
		}
	}
	err := tx.q.SettlePXENode(ctx, gen.SettlePXENodeParams{NodeID: n.ID, ToState: string(n.Status), DeadlineSeconds: deadline.Seconds()})
	return MapError("settle PXE node "+n.ID, err)
}

// purgeBatch is how many nodes one transaction deletes.
const purgeBatch = 200

// Purge deletes nodes that were only ever discovered and have not shown themselves for unseen, of
// one source where that is named, at most MaxDiscovered. The audit of a purged node stays, and
// names the actor of the purge. Repeatable.
func (s *Store) Purge(ctx context.Context, source string, unseen time.Duration, a Actor) (int, error) {
	purged := 0
	for purged < MaxDiscovered {
		n, err := s.purgeSome(ctx, source, unseen, a)
		purged += n
		if err != nil || n == 0 {
			return purged, err
		}
	}
	return purged, nil
}

func (s *Store) purgeSome(ctx context.Context, source string, unseen time.Duration, a Actor) (purged int, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		ids, err := tx.q.PurgeableNodes(ctx, gen.PurgeableNodesParams{SeenFrom: source, UnseenSeconds: unseen.Seconds(), MaxRows: purgeBatch})
		if err != nil {
			return MapError("list nodes to purge", err)
		}
		for _, id := range ids {
			if err := tx.purge(ctx, id, a); err != nil {
				return err
			}
		}
		purged = len(ids)
		return nil
	})
	return purged, err
}
