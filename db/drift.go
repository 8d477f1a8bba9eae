package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// DriftFinding is something that is not as it stands here. Key is what makes it
// the same fault: with another key an ignored finding is open again.
type DriftFinding = gen.DriftFinding

// The states of a finding.
const (
	DriftOpen    = "open"
	DriftIgnored = "ignored"
	DriftClosed  = "closed"
)

// DriftSighting is a fault as a pass saw it. Message and Evidence hold no secret.
type DriftSighting struct {
	Detector lifecycle.DriftDetector
	Subject  string
	NodeID   string // "" for none
	BMCID    string
	SystemID string
	Key      string
	Message  string
	Evidence map[string]any
}

type sightingRow struct {
	ID       string         `json:"id"`
	Detector string         `json:"detector"`
	Scope    string         `json:"scope"`
	Subject  string         `json:"subject"`
	NodeID   string         `json:"node_id"`
	BMCID    string         `json:"bmc_id"`
	SystemID string         `json:"system_id"`
	Severity string         `json:"severity"`
	Key      string         `json:"key"`
	Message  string         `json:"message"`
	Evidence map[string]any `json:"evidence"`
}

// SeeDrift opens a finding for each sighting or keeps the live one up to date,
// in one statement with the events, and says how many it opened. A detector and
// subject may stand in it once.
func (s statements) SeeDrift(ctx context.Context, siteID string, seen []DriftSighting) (opened int, err error) {
	if len(seen) == 0 {
		return 0, nil
	}
	rows := make([]sightingRow, 0, len(seen))
	for _, f := range seen {
		r := sightingRow{
			ID: NewID("drift"), Detector: f.Detector.Name, Scope: string(f.Detector.Scope), Subject: f.Subject, NodeID: f.NodeID, BMCID: f.BMCID,
			SystemID: f.SystemID, Severity: string(f.Detector.Severity), Key: ClipText(f.Key, MaxComment), Message: ClipText(f.Message, MaxComment), Evidence: f.Evidence,
		}
		if r.Evidence == nil {
			r.Evidence = map[string]any{}
		}
		rows = append(rows, r)
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("drift findings: %w: %w", ErrInvalid, err)
	}
	kept, err := s.q.SeeDrift(ctx, gen.SeeDriftParams{SiteID: siteID, Findings: CleanJSON(doc)})
	for _, k := range kept {
		if k.Opened {
			opened++
		}
	}
	return opened, MapError("drift findings of site "+siteID, err)
}

// DriftRef names a live finding.
type DriftRef struct {
	Detector string `json:"detector"`
	Subject  string `json:"subject"`
	Outcome  string `json:"outcome"`
}

// CloseDrift closes live findings with their outcomes, in one statement with
// the events. Repeatable.
func (s statements) CloseDrift(ctx context.Context, siteID string, refs []DriftRef) (int, error) {
	if len(refs) == 0 {
		return 0, nil
	}
	doc, err := json.Marshal(refs)
	if err != nil {
		return 0, fmt.Errorf("close drift findings: %w: %w", ErrInvalid, err)
	}
	n, err := s.q.CloseDrift(ctx, gen.CloseDriftParams{SiteID: siteID, Closed: CleanJSON(doc)})
	return int(n), MapError("close drift findings of site "+siteID, err)
}

// LiveDrift lists the findings of subjects that are not closed.
func (s statements) LiveDrift(ctx context.Context, siteID string, subjects []string) ([]gen.LiveDriftRow, error) {
	rows, err := s.q.LiveDrift(ctx, gen.LiveDriftParams{SiteID: siteID, Subjects: EmptyIfNil(subjects)})
	return rows, MapError("live drift findings of site "+siteID, err)
}

// UnseenDrift lists live findings of detectors that were not seen since.
func (s statements) UnseenDrift(ctx context.Context, siteID string, detectors []string, since time.Time, limit int) ([]DriftRef, error) {
	rows, err := s.q.UnseenDrift(ctx, gen.UnseenDriftParams{SiteID: siteID, Detectors: EmptyIfNil(detectors), Begun: since, MaxRows: PageLimit(limit)})
	out := make([]DriftRef, 0, len(rows))
	for _, r := range rows {
		out = append(out, DriftRef{Detector: r.Detector, Subject: r.Subject})
	}
	return out, MapError("drift findings of site "+siteID, err)
}

// DriftOfGoneNodes lists live findings about nodes that are deleted.
func (s statements) DriftOfGoneNodes(ctx context.Context, siteID string, limit int) ([]DriftRef, error) {
	rows, err := s.q.DriftOfGoneNodes(ctx, gen.DriftOfGoneNodesParams{SiteID: siteID, MaxRows: PageLimit(limit)})
	out := make([]DriftRef, 0, len(rows))
	for _, r := range rows {
		out = append(out, DriftRef{Detector: r.Detector, Subject: r.Subject})
	}
	return out, MapError("drift findings of site "+siteID, err)
}

// PruneDrift deletes findings that were closed before, some thousands at a
// time, and says how many.
func (s statements) PruneDrift(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.q.PruneDrift(ctx, gen.PruneDriftParams{Before: before, MaxRows: PruneBatch})
	return n, MapError("prune drift findings", err)
}

// DriftFilter narrows the list; empty fields match all.
type DriftFilter struct{ Status, Detector, Severity, SiteID, NodeID string }

// DriftLine is a finding with the hostname of its node.
type DriftLine = gen.ListDriftRow

// ListDrift lists findings, newest first, from the one before the id given.
func (s statements) ListDrift(ctx context.Context, f DriftFilter, before string, limit int) ([]DriftLine, error) {
	rows, err := s.q.ListDrift(ctx, gen.ListDriftParams{
		Before: before, Status: f.Status, Detector: f.Detector, Severity: f.Severity, SiteID: f.SiteID, NodeID: f.NodeID, MaxRows: PageLimit(limit),
	})
	return rows, MapError("list drift findings", err)
}

// DriftFinding reads one, or ErrNotFound.
func (s statements) DriftFinding(ctx context.Context, id string) (DriftLine, error) {
	row, err := s.q.DriftFinding(ctx, id)
	return DriftLine(row), MapError("drift finding "+id, err)
}

// DriftCount is how many findings of a detector are open.
type DriftCount = gen.CountDriftRow

// CountDrift counts open findings by detector.
func (s statements) CountDrift(ctx context.Context) ([]DriftCount, error) {
	rows, err := s.q.CountDrift(ctx)
	return rows, MapError("count drift findings", err)
}
