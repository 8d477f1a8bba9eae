package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ActOnDrift does what a person decided about a finding, with its audit row:
// adopt records what was observed and closes it, quarantine moves its node,
// ignore keeps it quiet until its key changes. version 0 takes whichever is
// there, another one gives ErrStale when the finding has changed since.
// Repeating what was done changes nothing. *ConflictError when the finding is
// closed, does not allow the action, or when a live job owns the node;
// *lifecycle.IllegalTransitionError when the node cannot be quarantined.
func (tx *Tx) ActOnDrift(ctx context.Context, id string, version int64, action lifecycle.DriftAction, a Actor) (DriftFinding, error) {
	f, err := tx.lockDrift(ctx, id)
	if err != nil {
		return f, err
	}
	if DriftDone(f, action) {
		return f, nil
	}
	switch d, known := lifecycle.DriftDetectorOf(f.Detector); {
	case version != 0 && version != f.Version:
		return f, fmt.Errorf("drift finding %s: %w", id, ErrStale)
	case f.Status == DriftClosed:
		return f, &ConflictError{What: "drift", Existing: f.ID, Message: "the finding is closed: " + f.Outcome}
	case !known:
		return f, &ConflictError{What: "drift", Existing: f.ID, Message: "this release has no detector " + f.Detector}
	case !d.Allows(action):
		return f, &ConflictError{What: "drift", Existing: f.ID, Message: fmt.Sprintf("%s cannot be done about %s; allowed are: %s", action, f.Detector, join(d.Actions()))}
	}
	status, outcome := f.Status, f.Outcome
	switch action {
	case lifecycle.DriftAdopt:
		if err := tx.adoptDrift(ctx, f); err != nil {
			return f, err
		}
		status, outcome = DriftClosed, "adopted by "+a.ID
	case lifecycle.DriftQuarantine:
		if err := tx.quarantineDrift(ctx, f, a); err != nil {
			return f, err
		}
	case lifecycle.DriftIgnore:
		status = DriftIgnored
	}
	return tx.noteDriftAction(ctx, f, action, status, outcome, a)
}

// DriftDone says whether an action on a finding was taken already, so that
// taking it again changes nothing.
func DriftDone(f DriftFinding, action lifecycle.DriftAction) bool {
	return f.Action == string(action) && f.ActedKey == f.Key && (f.Status != DriftOpen || action == lifecycle.DriftQuarantine)
}

func join(actions []lifecycle.DriftAction) string {
	words := make([]string, 0, len(actions))
	for _, a := range actions {
		words = append(words, string(a))
	}
	return strings.Join(words, ", ")
}

func (tx *Tx) lockDrift(ctx context.Context, id string) (DriftFinding, error) {
	f, err := tx.q.LockDriftFinding(ctx, id)
	return f, MapError("drift finding "+id, err)
}

func (tx *Tx) noteDriftAction(ctx context.Context, f DriftFinding, action lifecycle.DriftAction, status, outcome string, a Actor) (DriftFinding, error) {
	done, err := tx.q.ActOnDrift(ctx, gen.ActOnDriftParams{
		ID: f.ID, Action: string(action), ActedBy: a.ID, Reason: ClipText(a.Comment, MaxComment), Status: status, Outcome: ClipText(outcome, MaxComment),
	})
	if err != nil {
		return f, MapError("drift finding "+f.ID, err)
	}
	meta := map[string]any{"detector": f.Detector, "subject": f.Subject, "key": f.Key, "evidence": f.Evidence}
	err = tx.AppendAudit(ctx, Entry{
		ResourceKind: "drift", ResourceID: f.ID, NodeID: f.NodeID, Kind: EntryAction, Name: string(action), From: f.Status, To: status,
		Actor: Actor{Owner: a.Owner, ID: a.ID, Comment: a.Comment, WorkflowID: a.WorkflowID, Metadata: meta},
	})
	if err != nil || status != DriftClosed {
		return done, err
	}
	payload, err := json.Marshal(map[string]any{
		"id": f.ID, "detector": f.Detector, "severity": f.Severity, "subject": f.Subject, "node_id": f.NodeID, "site_id": f.SiteID, "outcome": outcome,
	})
	if err != nil {
		return done, err
	}
	return done, tx.AppendEvent(ctx, Event{ResourceKind: "drift", ResourceID: f.ID, NodeID: f.NodeID, Type: "drift.closed", Payload: payload})
}

// noLiveJob refuses what only the node's live job may change.
func (tx *Tx) noLiveJob(ctx context.Context, nodeID string) error {
	job, err := tx.q.LiveJobOfNode(ctx, nodeID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return MapError("live job of node "+nodeID, err)
	}
	return conflictWith("jobs_one_live_per_node", job.ID)
}

// quarantineDrift moves the finding's node, unless it is there already.
func (tx *Tx) quarantineDrift(ctx context.Context, f DriftFinding, a Actor) error {
	if f.NodeID == nil {
		return &ConflictError{What: "drift", Existing: f.ID, Message: "the finding is about no node"}
	}
	n, err := tx.LockNode(ctx, *f.NodeID)
	if err != nil || n.Status == lifecycle.NodeQuarantined {
		return err
	}
	if err := tx.noLiveJob(ctx, n.ID); err != nil {
		return err
	}
	a.Metadata = map[string]any{"finding": f.ID, "detector": f.Detector}
	a.Comment = strings.TrimSpace(f.Detector + ": " + f.Message + "\n" + a.Comment)
	_, err = tx.moveNode(ctx, n, lifecycle.NodeQuarantine, nil, a)
	return err
}

// observed is the part of a finding's evidence that can be adopted.
type observed struct {
	BootID    string   `json:"boot_id"`
	Hostname  string   `json:"hostname"`
	Address   string   `json:"address"`
	Serial    string   `json:"serial"`
	UUID      string   `json:"uuid"`
	MACs      []string `json:"macs"`
	Addresses []string `json:"addresses"`
}

// adoptDrift records what was observed when the finding was last seen.
func (tx *Tx) adoptDrift(ctx context.Context, f DriftFinding) error {
	var e observed
	if err := json.Unmarshal(f.Evidence, &e); err != nil {
		return fmt.Errorf("evidence of drift finding %s: %w", f.ID, err)
	}
	if f.NodeID == nil {
		return &ConflictError{What: "drift", Existing: f.ID, Message: "the finding is about no node"}
	}
	n, err := tx.LockNode(ctx, *f.NodeID)
	if err != nil {
		return err
	}
	if err := tx.noLiveJob(ctx, n.ID); err != nil {
		return err
	}
	machine := NodeMachine{}
	if n.MAASSystemID != nil {
		machine.SystemID = *n.MAASSystemID
	}
	switch f.Detector {
	case lifecycle.DriftBootUnannounced:
		return tx.changeMark(ctx, n.ID, map[string]any{"boot_id": e.BootID})
	case lifecycle.DriftHostnameChanged:
		return tx.changeMark(ctx, n.ID, map[string]any{"hostname": e.Hostname})
	case lifecycle.DriftMACsChanged:
		machine.MACs = e.MACs
		return errors.Join(tx.SetNodeMachine(ctx, n.ID, machine), tx.changeMark(ctx, n.ID, map[string]any{"macs": EmptyIfNil(e.MACs)}))
	case lifecycle.DriftHardwareChanged:
		machine.Serial, machine.HardwareUUID = e.Serial, e.UUID
		return errors.Join(tx.SetNodeMachine(ctx, n.ID, machine), tx.changeMark(ctx, n.ID, map[string]any{"serial": e.Serial, "uuid": e.UUID}))
	case lifecycle.DriftAddressesChanged:
		return errors.Join(tx.SetNodeAddresses(ctx, n.ID, e.Addresses, n.SSHAddress), tx.changeMark(ctx, n.ID, map[string]any{"addresses": EmptyIfNil(e.Addresses)}))
	case lifecycle.DriftBMCAddressChanged:
		return tx.adoptBMCAddress(ctx, f, e.Address)
	}
	return fmt.Errorf("nothing is known of how to adopt %s: %w", f.Detector, ErrInvalid)
}

func (tx *Tx) changeMark(ctx context.Context, nodeID string, facts map[string]any) error {
	doc, err := json.Marshal(facts)
	if err != nil {
		return fmt.Errorf("mark of node %s: %w", nodeID, err)
	}
	return MapError("mark of node "+nodeID, tx.q.ChangeDriftMark(ctx, gen.ChangeDriftMarkParams{NodeID: nodeID, Facts: CleanJSON(doc)}))
}

// adoptBMCAddress records another address of a BMC. The approved pin stays, so
// that a password is given only to whom it was given before.
func (tx *Tx) adoptBMCAddress(ctx context.Context, f DriftFinding, address string) error {
	if address == "" {
		return &ConflictError{What: "drift", Existing: f.ID, Message: "the finding names no address"}
	}
	others, err := tx.BMCsAt(ctx, address)
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.ID != f.BMCID {
			return &ConflictError{What: "bmc", Existing: o.ID, Message: "another BMC is recorded at this address; correct that one first"}
		}
	}
	n, err := tx.q.SetBMCAddress(ctx, gen.SetBMCAddressParams{ID: f.BMCID, Address: address})
	return CheckRepeatable("BMC "+f.BMCID, n, err, tx.bmcExists(ctx, f.BMCID))
}

// DriftCandidate is a finding that the reconciler may quarantine a node for.
type DriftCandidate = gen.DriftToQuarantineRow

// DriftToQuarantine lists open findings of detectors that the pass which began
// then has seen, and the one before with the same key, about nodes in service
// that no job works on; not those about which something was done already.
func (s statements) DriftToQuarantine(ctx context.Context, siteID string, detectors []string, begun time.Time, limit int) ([]DriftCandidate, error) {
	rows, err := s.q.DriftToQuarantine(ctx, gen.DriftToQuarantineParams{
		SiteID: siteID, Detectors: EmptyIfNil(detectors), Confirm: lifecycle.DriftConfirm, Begun: begun, MaxRows: PageLimit(limit),
	})
	return rows, MapError("drift findings of site "+siteID, err)
}

// Breaker is how many nodes of a site may be quarantined automatically within
// an hour, and how many were.
type Breaker struct{ Limit, Done int64 }

// Open says that no more may be.
func (b Breaker) Open() bool { return b.Done >= b.Limit }

// QuarantineByReconciler moves the node of a finding to quarantined, within the
// breaker: share (0.05 is 5 %) of the site's nodes in service, at least one, an
// hour. done is false when the breaker is open or when node or finding are no
// longer as they were seen. Site by site one at a time, so that two passes
// never exceed it together.
func (s *Store) QuarantineByReconciler(ctx context.Context, siteID string, c DriftCandidate, share float64, a Actor) (done bool, b Breaker, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		done = false
		if _, err := tx.q.LockDriftPass(ctx, siteID); err != nil {
			return MapError("drift pass of site "+siteID, err)
		}
		row, err := tx.q.DriftQuarantines(ctx, siteID)
		if err != nil {
			return MapError("count quarantines of site "+siteID, err)
		}
		b = Breaker{Done: row.Done, Limit: max(1, int64(math.Floor(share*float64(row.Serving+row.Done))))}
		if b.Open() {
			return nil
		}
		f, err := tx.lockDrift(ctx, c.ID)
		if err != nil || f.Status != DriftOpen || f.Key != c.Key || f.ActedKey == f.Key || f.NodeID == nil {
			return err
		}
		n, err := tx.LockNode(ctx, *f.NodeID)
		if err != nil || (n.Status != lifecycle.NodeActive && n.Status != lifecycle.NodeOffline) {
			return err
		}
		var busy *ConflictError
		if err := tx.quarantineDrift(ctx, f, a); errors.As(err, &busy) {
			return nil // a job took the node meanwhile
		} else if err != nil {
			return err
		}
		_, err = tx.noteDriftAction(ctx, f, lifecycle.DriftQuarantine, f.Status, f.Outcome, a)
		done, b.Done = err == nil, b.Done+1
		return err
	})
	return done, b, err
}
