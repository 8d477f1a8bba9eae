// Package drift stores what the reconciler found: its passes, the machines of a region's last list,
// what BMCs showed, what of a node is accounted for, and the findings. It is a package below db, so
// the first argument after the context says how a function commits.
package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/drift/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Finding is something that is not as it stands here. Key is what makes it
// the same fault: with another key an ignored finding is open again.
type Finding = gen.Finding

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

// Observation is a fault as a pass saw it. Message and Evidence hold no secret.
type Observation struct {
	Detector lifecycle.DriftDetector
	Subject  string
	NodeID   string // "" for none
	BMCID    string
	SystemID string
	Key      string
	Message  string
	Evidence map[string]any
}

type observationRow struct {
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

// ObserveFindings opens a finding for each observation or keeps the live one up to date,
// in one statement with the events, and says how many it opened. A detector and
// subject may stand in it once.
func ObserveFindings(ctx context.Context, c db.Conn, siteID string, seen []Observation) (opened int, err error) {
	if len(seen) == 0 {
		return 0, nil
	}
	rows := make([]observationRow, 0, len(seen))
	for _, f := range seen {
		r := observationRow{
			ID: db.NewID("drift"), Detector: f.Detector.Name, Scope: string(f.Detector.Scope), Subject: f.Subject, NodeID: f.NodeID, BMCID: f.BMCID,
			SystemID: f.SystemID, Severity: string(f.Detector.Severity), Key: db.ClipText(f.Key, db.MaxComment), Message: db.ClipText(f.Message, db.MaxComment), Evidence: f.Evidence,
		}
		if r.Evidence == nil {
			r.Evidence = map[string]any{}
		}
		rows = append(rows, r)
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("drift findings: %w: %w", db.ErrInvalid, err)
	}
	kept, err := queries(c).ObserveFindings(ctx, gen.ObserveFindingsParams{SiteID: siteID, Findings: db.CleanJSON(doc)})
	for _, k := range kept {
		if k.Opened {
			opened++
		}
	}
	return opened, db.MapError("drift findings of site "+siteID, err)
}

// Ref names a live finding.
type Ref struct {
	Detector string `json:"detector"`
	Subject  string `json:"subject"`
	Outcome  string `json:"outcome"`
}

// CloseFindings closes live findings with their outcomes, in one statement with
// the events. Repeatable.
func CloseFindings(ctx context.Context, c db.Conn, siteID string, refs []Ref) (int, error) {
	if len(refs) == 0 {
		return 0, nil
	}
	doc, err := json.Marshal(refs)
	if err != nil {
		return 0, fmt.Errorf("close drift findings: %w: %w", db.ErrInvalid, err)
	}
	n, err := queries(c).CloseFindings(ctx, gen.CloseFindingsParams{SiteID: siteID, Closed: db.CleanJSON(doc)})
	return int(n), db.MapError("close drift findings of site "+siteID, err)
}

// LiveFindings lists the findings of subjects that are not closed.
func LiveFindings(ctx context.Context, c db.Conn, siteID string, subjects []string) ([]gen.LiveFindingsRow, error) {
	rows, err := queries(c).LiveFindings(ctx, gen.LiveFindingsParams{SiteID: siteID, Subjects: db.EmptyIfNil(subjects)})
	return rows, db.MapError("live drift findings of site "+siteID, err)
}

// FindingsNotSeen lists live findings of detectors that were not seen since.
func FindingsNotSeen(ctx context.Context, c db.Conn, siteID string, detectors []string, since time.Time, limit int) ([]Ref, error) {
	rows, err := queries(c).FindingsNotSeen(ctx, gen.FindingsNotSeenParams{SiteID: siteID, Detectors: db.EmptyIfNil(detectors), Begun: since, MaxRows: db.PageLimit(limit)})
	out := make([]Ref, 0, len(rows))
	for _, r := range rows {
		out = append(out, Ref{Detector: r.Detector, Subject: r.Subject})
	}
	return out, db.MapError("drift findings of site "+siteID, err)
}

// FindingsOfDeletedNodes lists live findings about nodes that are deleted.
func FindingsOfDeletedNodes(ctx context.Context, c db.Conn, siteID string, limit int) ([]Ref, error) {
	rows, err := queries(c).FindingsOfDeletedNodes(ctx, gen.FindingsOfDeletedNodesParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	out := make([]Ref, 0, len(rows))
	for _, r := range rows {
		out = append(out, Ref{Detector: r.Detector, Subject: r.Subject})
	}
	return out, db.MapError("drift findings of site "+siteID, err)
}

// PruneFindings deletes findings that were closed before, some thousands at a
// time, and says how many.
func PruneFindings(ctx context.Context, c db.Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneFindings(ctx, gen.PruneFindingsParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("prune drift findings", err)
}

// Filter narrows the list; empty fields match all.
type Filter struct {
	Status                             lifecycle.FindingStatus
	Detector, Severity, SiteID, NodeID string
}

// FindingLine is a finding with the hostname of its node.
type FindingLine = gen.ListFindingsRow

// ListFindings lists findings, newest first, from the one before the id given.
func ListFindings(ctx context.Context, c db.Conn, f Filter, before string, limit int) ([]FindingLine, error) {
	rows, err := queries(c).ListFindings(ctx, gen.ListFindingsParams{
		Before: before, Status: string(f.Status), Detector: f.Detector, Severity: f.Severity, SiteID: f.SiteID, NodeID: f.NodeID, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("list drift findings", err)
}

// FindingByID reads one finding, or db.ErrNotFound.
func FindingByID(ctx context.Context, c db.Conn, id string) (FindingLine, error) {
	row, err := queries(c).FindingByID(ctx, id)
	return FindingLine(row), db.MapError("drift finding "+id, err)
}

// FindingCount is how many findings of a detector are open.
type FindingCount = gen.CountFindingsRow

// CountFindings counts open findings by detector.
func CountFindings(ctx context.Context, c db.Conn) ([]FindingCount, error) {
	rows, err := queries(c).CountFindings(ctx)
	return rows, db.MapError("count drift findings", err)
}
