package drift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/drift/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ActOnFinding does what an operator decided about a finding, with its audit row:
// adopt records what was observed and closes it, quarantine moves its node,
// ignore keeps it quiet until its key changes. version 0 takes whichever is
// there, another one gives db.ErrStale when the finding has changed since.
// Repeating what was done changes nothing. *db.ConflictError when the finding is
// closed, does not allow the action, or when a live job owns the node;
// *lifecycle.IllegalTransitionError when the node cannot be quarantined.
func ActOnFinding(ctx context.Context, tx *db.Tx, id string, version int64, action lifecycle.DriftAction, a db.Actor) (Finding, error) {
	f, err := lockFinding(ctx, tx, id)
	if err != nil {
		return f, err
	}
	if IsActionDone(f, action) {
		return f, nil
	}
	switch d, known := lifecycle.DriftDetectorOf(f.Detector); {
	case version != 0 && version != f.Version:
		return f, fmt.Errorf("drift finding %s: %w", id, db.ErrStale)
	case f.Status == lifecycle.FindingClosed:
		return f, &db.ConflictError{What: "drift", Existing: f.ID, Message: "the finding is closed: " + f.Outcome}
	case !known:
		return f, &db.ConflictError{What: "drift", Existing: f.ID, Message: "this release has no detector " + f.Detector}
	case !d.Allows(action):
		return f, &db.ConflictError{What: "drift", Existing: f.ID, Message: fmt.Sprintf("%s cannot be done about %s; allowed are: %s", action, f.Detector, join(d.Actions()))}
	}
	var t *lifecycle.Transition[lifecycle.FindingStatus] // nil keeps the status
	outcome := f.Outcome
	switch action {
	case lifecycle.DriftAdopt:
		if err := adopt(ctx, tx, f); err != nil {
			return f, err
		}
		t, outcome = &lifecycle.FindingAdopt, "adopted by "+a.ID
	case lifecycle.DriftQuarantine:
		if err := quarantine(ctx, tx, f, a); err != nil {
			return f, err
		}
	case lifecycle.DriftIgnore:
		if f.Status == lifecycle.FindingOpen {
			t = &lifecycle.FindingIgnore
		}
	}
	return recordAction(ctx, tx, f, action, t, outcome, a)
}

// IsActionDone says whether an action on a finding was taken already, so that
// taking it again changes nothing.
func IsActionDone(f Finding, action lifecycle.DriftAction) bool {
	return f.Action == string(action) && f.ActedKey == f.Key && (f.Status != lifecycle.FindingOpen || action == lifecycle.DriftQuarantine)
}

func join(actions []lifecycle.DriftAction) string {
	words := make([]string, 0, len(actions))
	for _, a := range actions {
		words = append(words, string(a))
	}
	return strings.Join(words, ", ")
}

func lockFinding(ctx context.Context, tx *db.Tx, id string) (Finding, error) {
	f, err := queries(tx).LockFinding(ctx, id)
	return f, db.MapError("drift finding "+id, err)
}

// recordAction writes down an action on a finding that the caller has locked, and moves the finding
// by t unless that is nil.
func recordAction(
	ctx context.Context, tx *db.Tx, f Finding, action lifecycle.DriftAction, t *lifecycle.Transition[lifecycle.FindingStatus], outcome string, a db.Actor,
) (Finding, error) {
	to := f.Status
	if t != nil {
		if err := lifecycle.DriftFinding.Check(*t, f.Status, a.Owner, nil); err != nil {
			return f, err
		}
		to = t.To
	}
	done, err := queries(tx).ActOnFinding(ctx, gen.ActOnFindingParams{
		ID: f.ID, Action: string(action), ActedBy: a.ID, Reason: db.ClipText(a.Comment, db.MaxComment),
		FromStatus: f.Status, ToStatus: to, Closes: lifecycle.DriftFinding.Terminal(to), Outcome: db.ClipText(outcome, db.MaxComment),
	})
	if err != nil {
		return f, db.MapError("drift finding "+f.ID, err)
	}
	meta := map[string]any{"detector": f.Detector, "subject": f.Subject, "key": f.Key, "evidence": f.Evidence}
	err = tx.AppendAudit(ctx, db.Entry{
		ResourceKind: "drift", ResourceID: f.ID, NodeID: f.NodeID, Kind: db.EntryAction, Name: string(action), From: string(f.Status), To: string(to),
		Actor: db.Actor{Owner: a.Owner, ID: a.ID, Comment: a.Comment, WorkflowID: a.WorkflowID, Metadata: meta},
	})
	if err != nil || !lifecycle.DriftFinding.Terminal(to) {
		return done, err
	}
	payload, err := json.Marshal(map[string]any{
		"id": f.ID, "detector": f.Detector, "severity": f.Severity, "subject": f.Subject, "node_id": f.NodeID, "site_id": f.SiteID, "outcome": outcome,
	})
	if err != nil {
		return done, err
	}
	return done, tx.AppendEvent(ctx, db.Event{ResourceKind: "drift", ResourceID: f.ID, NodeID: f.NodeID, Type: "drift.closed", Payload: payload})
}

// quarantine moves the finding's node, unless it is there already.
func quarantine(ctx context.Context, tx *db.Tx, f Finding, a db.Actor) error {
	if f.NodeID == nil {
		return &db.ConflictError{What: "drift", Existing: f.ID, Message: "the finding is about no node"}
	}
	n, err := tx.LockNode(ctx, *f.NodeID)
	if err != nil || n.Status == lifecycle.NodeQuarantined {
		return err
	}
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return &db.ConflictError{What: "drift", Existing: f.ID, Message: "a node that boots from the network has no state quarantined; fix it, or ignore the finding"}
	}
	if err := tx.RequireNoLiveJob(ctx, n.ID); err != nil {
		return err
	}
	a.Metadata = map[string]any{"finding": f.ID, "detector": f.Detector}
	a.Comment = strings.TrimSpace(f.Detector + ": " + f.Message + "\n" + a.Comment)
	_, err = tx.TransitionNode(ctx, n.ID, lifecycle.NodeQuarantine, nil, a)
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
	BMCParts  string   `json:"bmc_parts"`
	Agent     string   `json:"agent_parts"`
	ReadAt    string   `json:"read_at"`
	DPUModes  []string `json:"dpu_modes"`
}

// adopt records what was observed when the finding was last seen.
func adopt(ctx context.Context, tx *db.Tx, f Finding) error {
	var e observed
	if err := json.Unmarshal(f.Evidence, &e); err != nil {
		return fmt.Errorf("evidence of drift finding %s: %w", f.ID, err)
	}
	if f.NodeID == nil {
		return &db.ConflictError{What: "drift", Existing: f.ID, Message: "the finding is about no node"}
	}
	n, err := tx.LockNode(ctx, *f.NodeID)
	if err != nil {
		return err
	}
	if err := tx.RequireNoLiveJob(ctx, n.ID); err != nil {
		return err
	}
	machine := db.NodeMachine{}
	if n.MAASSystemID != nil {
		machine.SystemID = *n.MAASSystemID
	}
	switch f.Detector {
	case lifecycle.DriftBootUnannounced:
		return changeMark(ctx, tx, n.ID, map[string]any{"boot_id": e.BootID})
	case lifecycle.DriftHostnameChanged:
		return changeMark(ctx, tx, n.ID, map[string]any{"hostname": e.Hostname})
	case lifecycle.DriftMACsChanged:
		machine.MACs = e.MACs
		return errors.Join(tx.SetNodeMachine(ctx, n.ID, machine), changeMark(ctx, tx, n.ID, map[string]any{"macs": db.EmptyIfNil(e.MACs)}))
	case lifecycle.DriftHardwareChanged:
		machine.Serial, machine.HardwareUUID = e.Serial, e.UUID
		return errors.Join(tx.SetNodeMachine(ctx, n.ID, machine), changeMark(ctx, tx, n.ID, map[string]any{"serial": e.Serial, "uuid": e.UUID}))
	case lifecycle.DriftAddressesChanged:
		now := db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: e.Addresses}
		return errors.Join(tx.SetNodeAddresses(ctx, n.ID, now), changeMark(ctx, tx, n.ID, map[string]any{"addresses": db.EmptyIfNil(e.Addresses)}))
	case lifecycle.DriftPartsChanged:
		return changeMark(ctx, tx, n.ID, map[string]any{"bmc_parts": e.BMCParts, "agent_parts": e.Agent, "parts_at": e.ReadAt})
	case lifecycle.DriftDPUMode:
		return changeMark(ctx, tx, n.ID, map[string]any{"dpu_modes": db.EmptyIfNil(e.DPUModes)})
	case lifecycle.DriftBMCAddressChanged:
		return adoptBMCAddress(ctx, tx, f, e.Address)
	}
	return fmt.Errorf("nothing is known of how to adopt %s: %w", f.Detector, db.ErrInvalid)
}

func changeMark(ctx context.Context, tx *db.Tx, nodeID string, facts map[string]any) error {
	doc, err := json.Marshal(facts)
	if err != nil {
		return fmt.Errorf("mark of node %s: %w", nodeID, err)
	}
	return db.MapError("mark of node "+nodeID, queries(tx).ChangeMark(ctx, gen.ChangeMarkParams{NodeID: nodeID, Facts: db.CleanJSON(doc)}))
}

// adoptBMCAddress records another address of a db.BMC. The approved pin stays, so
// that a password is given only to whom it was given before.
func adoptBMCAddress(ctx context.Context, tx *db.Tx, f Finding, address string) error {
	if address == "" {
		return &db.ConflictError{What: "drift", Existing: f.ID, Message: "the finding names no address"}
	}
	others, err := tx.BMCsAt(ctx, address)
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.ID != f.BMCID {
			return &db.ConflictError{What: "bmc", Existing: o.ID, Message: "another db.BMC is recorded at this address; correct that one first"}
		}
	}
	return tx.SetBMCAddress(ctx, f.BMCID, address)
}

// Candidate is a finding that the reconciler may quarantine a node for.
type Candidate = gen.FindingsToQuarantineRow

// FindingsToQuarantine lists open findings of detectors that the pass which began
// then has seen, and the one before with the same key, about nodes in service
// that no job works on; not those about which something was done already.
func FindingsToQuarantine(ctx context.Context, c db.Conn, siteID string, detectors, byAgent []string, begun time.Time, limit int) ([]Candidate, error) {
	rows, err := queries(c).FindingsToQuarantine(ctx, gen.FindingsToQuarantineParams{
		SiteID: siteID, Detectors: db.EmptyIfNil(detectors), ByAgent: db.EmptyIfNil(byAgent), Confirm: lifecycle.DriftConfirm, Begun: begun, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("drift findings of site "+siteID, err)
}

// MarkForgottenTenants marks the nodes of a site that findings of the detectors hold for an
// allocation, and the database for nobody, as left by a tenant. It can be repeated.
func MarkForgottenTenants(ctx context.Context, c db.Conn, siteID string, detectors []string, begun time.Time) (int64, error) {
	n, err := queries(c).MarkForgottenTenants(ctx, gen.MarkForgottenTenantsParams{SiteID: siteID, Detectors: db.EmptyIfNil(detectors), Confirm: lifecycle.DriftConfirm, Begun: begun})
	return n, db.MapError("drift findings of site "+siteID, err)
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
func QuarantineByReconciler(ctx context.Context, s *db.Store, siteID string, c Candidate, share float64, a db.Actor) (done bool, b Breaker, err error) {
	err = s.Tx(ctx, func(tx *db.Tx) error {
		done = false
		if _, err := queries(tx).LockPass(ctx, siteID); err != nil {
			return db.MapError("drift pass of site "+siteID, err)
		}
		row, err := queries(tx).CountQuarantines(ctx, siteID)
		if err != nil {
			return db.MapError("count quarantines of site "+siteID, err)
		}
		b = Breaker{Done: row.Done, Limit: max(1, int64(math.Floor(share*float64(row.Serving+row.Done))))}
		if b.Open() {
			return nil
		}
		f, err := lockFinding(ctx, tx, c.ID)
		if err != nil || f.Status != lifecycle.FindingOpen || f.Key != c.Key || f.ActedKey == f.Key || f.NodeID == nil {
			return err
		}
		n, err := tx.LockNode(ctx, *f.NodeID)
		if err != nil || (n.Status != lifecycle.NodeActive && n.Status != lifecycle.NodeOffline) {
			return err
		}
		var busy *db.ConflictError
		if err := quarantine(ctx, tx, f, a); errors.As(err, &busy) {
			return nil // a job took the node meanwhile
		} else if err != nil {
			return err
		}
		_, err = recordAction(ctx, tx, f, lifecycle.DriftQuarantine, nil, f.Outcome, a)
		done, b.Done = err == nil, b.Done+1
		return err
	})
	return done, b, err
}
