package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// DriveSource says who named the drives of a node.
type DriveSource string

// The sources of a node's drives.
const (
	// DrivesCommissioned are those that MAAS found when it commissioned the machine.
	DrivesCommissioned DriveSource = "maas_commissioning"
	// DrivesBooted are those that the installer of a PXE node reported with its boot token.
	DrivesBooted DriveSource = "boot_report"
	// DrivesReported are those of the last report of the node's agent.
	DrivesReported DriveSource = "agent_report"
	// DrivesAccepted are those of a report that an operator has accepted.
	DrivesAccepted DriveSource = "accepted"
)

// NodeDrives are the drives of a node. Source is "" when nothing names any.
type NodeDrives struct {
	Drives []spec.ExpectedDrive
	Source DriveSource
	// At is when they were recorded or reported.
	At time.Time
}

// Digest identifies the list, wherever it comes from.
func (d NodeDrives) Digest() string {
	raw, err := json.Marshal(d.Drives)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ExpectedDrives returns the drives that a node's record names. Without a record it returns those
// of the last report of its agent, which the start of a job makes the record. A job that has
// started reads RecordedDrives: a report that came later proves nothing.
func (s statements) ExpectedDrives(ctx context.Context, nodeID string) (NodeDrives, error) {
	out, err := s.RecordedDrives(ctx, nodeID)
	if err == nil && out.Source == "" {
		return s.ReportedDrives(ctx, nodeID)
	}
	return out, err
}

// RecordedDrives returns the drives that a node's record names, none without a record.
func (s statements) RecordedDrives(ctx context.Context, nodeID string) (NodeDrives, error) {
	row, err := s.q.NodeDrives(ctx, nodeID)
	if err = MapError("drives of node "+nodeID, err); errors.Is(err, ErrNotFound) {
		return NodeDrives{}, nil
	}
	if err != nil {
		return NodeDrives{}, err
	}
	out := NodeDrives{Source: DriveSource(row.Source), At: row.RecordedAt}
	if err := json.Unmarshal(row.Drives, &out.Drives); err != nil {
		return NodeDrives{}, fmt.Errorf("drives of node %s: %w", nodeID, err)
	}
	return out, nil
}

// ReportedDrives returns the drives of the last report of a node's agent. It returns none for a
// report whose list cannot be a node's.
func (s statements) ReportedDrives(ctx context.Context, nodeID string) (NodeDrives, error) {
	heartbeat, err := s.LatestHeartbeat(ctx, nodeID)
	if errors.Is(err, ErrNotFound) || err == nil && heartbeat.Report == nil {
		return NodeDrives{}, nil
	}
	if err != nil {
		return NodeDrives{}, err
	}
	drives, bad := spec.NormalDrives(heartbeat.Report.Drives())
	if bad != nil || len(drives) == 0 {
		return NodeDrives{}, nil
	}
	out := NodeDrives{Drives: drives, Source: DrivesReported, At: heartbeat.ReceivedAt}
	if heartbeat.ReportedAt != nil {
		out.At = *heartbeat.ReportedAt
	}
	return out, nil
}

// RecordDrives replaces the record of a node's drives. It changes nothing when the record lists the
// same drives. A list without a drive is no record and changes nothing either.
func (tx *Tx) RecordDrives(ctx context.Context, nodeID string, drives []spec.ExpectedDrive, source DriveSource, a Actor) error {
	list, err := spec.NormalDrives(drives)
	if err != nil {
		return fmt.Errorf("drives of node %s: %w: %w", nodeID, ErrInvalid, err)
	}
	if _, err := tx.LockNode(ctx, nodeID); err != nil || len(list) == 0 {
		return err
	}
	now := NodeDrives{Drives: list, Source: source}
	was, err := tx.ExpectedDrives(ctx, nodeID)
	if err != nil || was.Source == source && was.Digest() == now.Digest() {
		return err
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("drives of node %s: %w", nodeID, err)
	}
	err = tx.q.RecordDrives(ctx, gen.RecordDrivesParams{NodeID: nodeID, Drives: raw, Source: string(source)})
	if err = MapError("drives of node "+nodeID, err); err != nil {
		return err
	}
	a.Metadata = map[string]any{"source": string(source), "drives": list, "before": was.Drives, "before_source": string(was.Source)}
	return tx.AppendAudit(ctx, Entry{ResourceKind: "node", ResourceID: nodeID, NodeID: &nodeID, Kind: EntryAction, Name: "record_drives", Actor: a})
}

// FreezeDrives records the drives of the last report of a node that has no record, so that a drive
// which is plugged in later is not expected.
func (tx *Tx) FreezeDrives(ctx context.Context, nodeID string) error {
	reported, err := tx.ReportedDrives(ctx, nodeID)
	if err != nil || reported.Source == "" {
		return err
	}
	raw, err := json.Marshal(reported.Drives)
	if err != nil {
		return fmt.Errorf("drives of node %s: %w", nodeID, err)
	}
	err = tx.q.FreezeDrives(ctx, gen.FreezeDrivesParams{NodeID: nodeID, Drives: raw, Source: string(reported.Source)})
	return MapError("drives of node "+nodeID, err)
}

// ProtectedSerials returns the serial numbers and WWNs of the drives that no job erases: those of
// the node's label, its profile and its SKU. It returns *spec.InvalidError for a label that cannot
// be read.
func (s statements) ProtectedSerials(ctx context.Context, nodeID string) ([]string, error) {
	n, err := s.Node(ctx, nodeID)
	if err != nil {
		return nil, err
	}
	var label, profile, sku []string
	if value, ok := n.Labels[lifecycle.LabelProtectSerials]; ok {
		if label, err = spec.ParseProtectLabel(value); err != nil {
			return nil, &spec.InvalidError{Fields: []spec.Invalid{{Field: "labels." + lifecycle.LabelProtectSerials, Problem: err.Error()}}}
		}
	}
	if n.ProfileID != nil {
		p, err := s.Profile(ctx, *n.ProfileID)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		profile = p.Spec.ProtectSerials
	}
	if n.SKUID != nil {
		k, err := s.SKU(ctx, *n.SKUID)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		sku = k.Spec.ProtectSerials
	}
	return slices.Clip(spec.JoinSerials(label, profile, sku)), nil
}
