// Package hardwaredb stores what BMCs and agents tell of the parts of machines: their health, an
// inventory, and the entries of BMCs' logs. It is a package below db. Everything that it stores is
// bounded for each BMC and node, whatever these tell.
package hardwaredb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/hardware/gen"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// maxPartial bounds the unreadable parts that are named.
const maxPartial = 64

// maxProbes bounds the probes of one BMC.
const maxProbes = 512

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

// Survey is the last reading of a BMC's parts.
type Survey struct {
	BMCID     string
	ReadAt    time.Time
	Health    string
	Probes    []hardware.PartHealth
	LeftOut   int
	Inventory hardware.Inventory
	Modes     []string
	Partial   []string
}

// Reading is what a BMC told of its parts. Whole names the kinds of parts that were read without a
// gap.
type Reading struct {
	BMCID   string
	At      time.Time
	Health  string
	Probes  []hardware.PartHealth
	LeftOut int
	Parts   []hardware.Part
	Whole   []hardware.Kind
	Partial []string
}

// SurveyOf reads the last reading of a BMC, or db.ErrNotFound before the first.
func SurveyOf(ctx context.Context, c db.Conn, bmcID string) (Survey, error) {
	row, err := queries(c).Survey(ctx, bmcID)
	if err != nil {
		return Survey{}, db.MapError("survey of BMC "+bmcID, err)
	}
	out := Survey{BMCID: row.BMCID, ReadAt: row.ReadAt, Health: row.Health, LeftOut: row.LeftOut, Modes: row.Modes, Partial: row.Partial}
	err = errors.Join(json.Unmarshal(row.Probes, &out.Probes), json.Unmarshal(row.Inventory, &out.Inventory))
	if err != nil {
		return out, fmt.Errorf("survey of BMC %s: %w", bmcID, err)
	}
	return out, nil
}

// RecordSurvey keeps a reading and what differs from the one before. An older reading than the one
// that is kept changes nothing, so that it may be repeated. A reading without any part keeps those
// that are known.
func RecordSurvey(ctx context.Context, s *db.Store, r Reading) error {
	err := s.Tx(ctx, func(tx *db.Tx) error {
		var before hardware.Inventory
		raw, err := queries(tx).LockSurvey(ctx, r.BMCID)
		if err = db.MapError("survey of BMC "+r.BMCID, err); err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
		if err == nil {
			if err := json.Unmarshal(raw, &before); err != nil {
				return fmt.Errorf("inventory of BMC %s: %w", r.BMCID, err)
			}
		}
		return putSurvey(ctx, tx, r, hardware.Merge(before, r.Parts, r.Whole, r.At))
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil // its BMC is gone
	}
	return err
}

func putSurvey(ctx context.Context, tx *db.Tx, r Reading, inventory hardware.Inventory) error {
	probes := make([]hardware.PartHealth, 0, min(len(r.Probes), maxProbes))
	for _, p := range r.Probes[:cap(probes)] {
		probes = append(probes, p.Bounded())
	}
	probeDoc, err := json.Marshal(probes)
	if err != nil {
		return fmt.Errorf("probes of BMC %s: %w", r.BMCID, err)
	}
	partDoc, err := json.Marshal(inventory)
	if err != nil {
		return fmt.Errorf("inventory of BMC %s: %w", r.BMCID, err)
	}
	err = queries(tx).PutSurvey(ctx, gen.PutSurveyParams{
		BMCID: r.BMCID, ReadAt: r.At, Health: r.Health, Probes: db.CleanJSON(probeDoc), LeftOut: r.LeftOut + len(r.Probes) - len(probes),
		Inventory: db.CleanJSON(partDoc), Digest: inventory.Digest(), Modes: inventory.Modes(), Partial: clipped(r.Partial),
	})
	return db.MapError("survey of BMC "+r.BMCID, err)
}

func clipped(list []string) []string {
	out := make([]string, 0, min(len(list), maxPartial))
	for _, p := range list[:min(len(list), maxPartial)] {
		out = append(out, db.ClipText(p, db.MaxMessage))
	}
	return out
}

// AgentInventory is what a node's agent told of its parts.
type AgentInventory struct {
	ReadAt    time.Time
	Inventory hardware.Inventory
}

// AgentInventoryOf reads it, or db.ErrNotFound before the first.
func AgentInventoryOf(ctx context.Context, c db.Conn, nodeID string) (AgentInventory, error) {
	row, err := queries(c).AgentInventory(ctx, nodeID)
	if err != nil {
		return AgentInventory{}, db.MapError("inventory of node "+nodeID, err)
	}
	out := AgentInventory{ReadAt: row.ReadAt}
	if err := json.Unmarshal(row.Inventory, &out.Inventory); err != nil {
		return out, fmt.Errorf("inventory of node %s: %w", nodeID, err)
	}
	return out, nil
}

// inventoriesAtOnce bounds how many nodes' reports and inventories are in memory at a time: some 2
// MiB each where an agent reports as much as it may.
const inventoriesAtOnce = 20

// CopyAgentInventories keeps the parts that agents of a site report, of at most limit nodes whose
// parts were copied before, longest ago first, some at a time. It returns how many. Repeatable.
func CopyAgentInventories(ctx context.Context, c db.Conn, siteID string, before time.Time, limit int) (int, error) {
	total := 0
	for total < limit {
		n, err := copySomeInventories(ctx, c, siteID, before, min(limit-total, inventoriesAtOnce))
		if total += n; err != nil || n == 0 {
			return total, err
		}
	}
	return total, nil
}

func copySomeInventories(ctx context.Context, c db.Conn, siteID string, before time.Time, limit int) (int, error) {
	due, err := queries(c).AgentInventoriesDue(ctx, gen.AgentInventoriesDueParams{SiteID: siteID, Before: before, MaxRows: db.PageLimit(limit)})
	if err != nil || len(due) == 0 {
		return 0, db.MapError("inventories of site "+siteID, err)
	}
	type row struct {
		NodeID    string             `json:"node_id"`
		ReadAt    time.Time          `json:"read_at"`
		Inventory hardware.Inventory `json:"inventory"`
		Digest    string             `json:"digest"`
	}
	rows := make([]row, 0, len(due))
	for _, d := range due {
		var known hardware.Inventory
		if err := json.Unmarshal(d.Inventory, &known); err != nil {
			return 0, fmt.Errorf("inventory of node %s: %w", d.ID, err)
		}
		whole := []hardware.Kind{hardware.Drive, hardware.NIC}
		if d.Report.GPUError == "" {
			whole = append(whole, hardware.GPU)
		}
		next := hardware.Merge(known, hardware.AgentParts(*d.Report), whole, d.ReceivedAt)
		rows = append(rows, row{d.ID, d.ReceivedAt, next, next.Digest()})
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("inventories of site %s: %w", siteID, err)
	}
	return len(rows), db.MapError("inventories of site "+siteID, queries(c).PutAgentInventories(ctx, db.CleanJSON(doc)))
}

// NodeState is what the health of a node is made of, besides the survey of its BMC.
type NodeState struct {
	ID, Hostname string
	BMCID        string // "" for a node without one
	Report       *spec.HealthReport
	ReceivedAt   *time.Time
	OfThisBoot   bool
	BMCFailures  int
	SKU          *spec.SKUSpec
}

// Finding is what the reconciler has found of a node and what lasts.
type Finding = gen.NodeFindingsRow

// maxFindings bounds the findings that are part of a node's health.
const maxFindings = 200

// StateOf reads a node's state and its findings, or db.ErrNotFound.
func StateOf(ctx context.Context, c db.Conn, nodeID string) (NodeState, []Finding, error) {
	row, err := queries(c).NodeState(ctx, nodeID)
	if err != nil {
		return NodeState{}, nil, db.MapError("node "+nodeID, err)
	}
	out := NodeState{
		ID: row.ID, Hostname: row.Hostname, BMCID: row.BMCID, Report: row.Report, ReceivedAt: row.ReceivedAt, OfThisBoot: row.OfThisBoot, BMCFailures: row.BMCFailures,
	}
	if err := json.Unmarshal(row.SKU, &out.SKU); err != nil {
		return out, nil, fmt.Errorf("SKU of node %s: %w", nodeID, err)
	}
	found, err := queries(c).NodeFindings(ctx, gen.NodeFindingsParams{NodeID: &nodeID, MaxRows: maxFindings})
	return out, found, db.MapError("findings of node "+nodeID, err)
}

// The sources of a node's serial number besides its BMC.
const (
	SerialOfMAAS = "MAAS"
	SerialOfBoot = "firmware, as the boot reported it"
)

// SerialOfBMC is the source of a serial number that a BMC named, with the resource that has it, such as
// "system System_0".
func SerialOfBMC(resource string) string { return "BMC: " + resource }

// RecordSerialSource keeps who named a node's serial number. Repeatable. Without a serial number it
// changes nothing.
func RecordSerialSource(ctx context.Context, c db.Conn, nodeID, serial, source string) error {
	if serial == "" || source == "" {
		return nil
	}
	err := queries(c).PutSerialSource(ctx, gen.PutSerialSourceParams{NodeID: nodeID, Serial: serial, Source: hardware.LogEntry{Service: source}.Bounded().Service})
	return db.MapError("serial number of node "+nodeID, err)
}

// SerialSource reads who named the serial number that a node has now, "" where that is not known.
func SerialSource(ctx context.Context, c db.Conn, nodeID string) (string, error) {
	source, err := queries(c).SerialSource(ctx, nodeID)
	if err = db.MapError("serial number of node "+nodeID, err); errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return source, err
}
