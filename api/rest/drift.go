package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Drift is something that is not as it stands here, as a pass of the reconciler
// found it.
type Drift struct {
	ID             string                  `json:"id"`
	Detector       string                  `json:"detector" doc:"The comparison that found it; docs/states/drift.md lists them"`
	Severity       lifecycle.DriftSeverity `json:"severity" enum:"critical,warning,info"`
	Status         string                  `json:"status" enum:"open,ignored,closed"`
	Scope          lifecycle.DriftScope    `json:"scope" enum:"node,bmc,machine,hardware,site" doc:"What it is about"`
	Subject        string                  `json:"subject" doc:"Its id; of hardware the value that several records share"`
	SiteID         string                  `json:"site_id" doc:"Empty for a node that boots from the network"`
	NodeID         string                  `json:"node_id,omitempty"`
	Hostname       string                  `json:"hostname,omitempty"`
	BMCID          string                  `json:"bmc_id,omitempty"`
	SystemID       string                  `json:"system_id,omitempty" doc:"The machine in MAAS"`
	Message        string                  `json:"message"`
	NextAction     string                  `json:"next_action,omitempty" doc:"What to do, in a sentence"`
	AllowedActions []lifecycle.DriftAction `json:"allowed_actions" nullable:"false" doc:"What can be done about it now"`
	Adopts         string                  `json:"adopts,omitempty" doc:"What adopt does, where it is allowed"`
	Evidence       json.RawMessage         `json:"evidence" doc:"What was compared, as the last pass saw it"`
	FirstSeenAt    time.Time               `json:"first_seen_at"`
	LastSeenAt     time.Time               `json:"last_seen_at"`
	SeenCount      int64                   `json:"seen_count" doc:"Passes that saw it"`
	ChangedAt      time.Time               `json:"changed_at" doc:"When the fault was last another one of its kind"`
	Action         string                  `json:"action,omitempty" enum:"adopt,quarantine,ignore" doc:"What was done about it last"`
	ActedAt        *time.Time              `json:"acted_at,omitempty"`
	ActedBy        string                  `json:"acted_by,omitempty" doc:"reconciler, when it was done by itself"`
	ActedReason    string                  `json:"acted_reason,omitempty"`
	ClosedAt       *time.Time              `json:"closed_at,omitempty"`
	Outcome        string                  `json:"outcome,omitempty" doc:"Why it is closed"`
}

// DriftPath names a finding.
type DriftPath struct {
	ID string `path:"id" maxLength:"200" doc:"drift_..."`
}

// DriftQuery narrows the list.
type DriftQuery struct {
	op.Page
	Status   string                  `query:"status" enum:"open,ignored,closed" doc:"Left out: all"`
	Detector string                  `query:"detector" maxLength:"100"`
	Severity lifecycle.DriftSeverity `query:"severity" enum:"critical,warning,info"`
	SiteID   string                  `query:"site_id" maxLength:"200"`
	NodeID   string                  `query:"node_id" maxLength:"200"`
}

// DriftPass is how the last pass of a site went.
type DriftPass struct {
	SiteID     string          `json:"site_id" doc:"Empty for the pass over the nodes that boot from the network"`
	Site       string          `json:"site" doc:"Its name; empty for the pass over the nodes that boot from the network"`
	Pass       int64           `json:"pass" doc:"Counts up"`
	BegunAt    time.Time       `json:"begun_at"`
	ListedAt   *time.Time      `json:"listed_at,omitempty" doc:"When this pass read the region's list; absent while it has not"`
	FinishedAt *time.Time      `json:"finished_at,omitempty" doc:"Of the last pass that looked at everything"`
	TriedAt    *time.Time      `json:"tried_at,omitempty" doc:"Of the last pass of any kind that came to its end"`
	Late       bool            `json:"late,omitempty" doc:"No pass has looked at everything for too long"`
	Problem    string          `json:"problem,omitempty" doc:"What kept the last pass from looking at everything"`
	Report     json.RawMessage `json:"report" doc:"What the last pass did, counted"`
}

func (s *server) registerDrift() {
	tags := []string{"drift"}
	op.Add(s.api, huma.Operation{
		OperationID: "list-drift", Method: http.MethodGet, Path: "/admin/drift", Tags: tags, Summary: "List what is not as it stands here, newest first",
		Description: "Every few minutes each site is compared with its region, BMCs and agents by named detectors. A finding is opened once, kept up to date while " +
			"it lasts, and closed when its fault is gone.",
	}, s.listDrift)
	op.Add(s.api, huma.Operation{
		OperationID: "get-drift", Method: http.MethodGet, Path: "/admin/drift/{id}", Tags: tags, Summary: "Read a finding with its evidence",
	}, s.getDrift)
	op.Add(s.api, huma.Operation{
		OperationID: "list-drift-passes", Method: http.MethodGet, Path: "/admin/drift-passes", Tags: tags, Summary: "How the last pass over each site went",
	}, s.listDriftPasses)
	op.Add(s.api, huma.Operation{
		OperationID: "act-on-drift", Method: http.MethodPost, Path: "/admin/drift/{id}/actions/{action}", Tags: tags, Summary: "Decide about a finding",
		Description: "adopt records what was observed, where the detector says what that is, and closes the finding. quarantine takes the node out of scheduling; " +
			"the finding stays until its fault is gone. ignore keeps it quiet until its evidence changes. A node that a live job owns is left alone (409). " +
			"With If-Match the action is for the version that was read (412 when it has changed). Repeating an action changes nothing.",
	}, s.actOnDrift)
}

func (s *server) listDrift(ctx context.Context, in *DriftQuery) (*op.Listed[Drift], error) {
	before, err := in.After()
	if err != nil {
		return nil, err
	}
	if _, known := lifecycle.DriftDetectorOf(in.Detector); in.Detector != "" && !known {
		return nil, problem.NewInvalid(problem.Field{Location: "query.detector", Message: "is no detector; docs/states/drift.md lists them"})
	}
	f := driftdb.Filter{Status: lifecycle.FindingStatus(in.Status), Detector: in.Detector, Severity: string(in.Severity), SiteID: in.SiteID, NodeID: in.NodeID}
	rows, err := driftdb.ListFindings(ctx, s.store, f, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r driftdb.FindingLine) string { return r.Finding.ID }, driftView), nil
}

func (s *server) getDrift(ctx context.Context, in *DriftPath) (*op.Versioned[Drift], error) {
	row, err := driftdb.FindingByID(ctx, s.store, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Finding.Version, driftView(row)), nil
}

func (s *server) actOnDrift(ctx context.Context, in *struct {
	DriftPath
	Action  lifecycle.DriftAction `path:"action" enum:"adopt,quarantine,ignore"`
	IfMatch string                `header:"If-Match" maxLength:"200" doc:"ETag of the version that you read; left out: whichever is there"`
	Body    struct {
		Reason string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"Why; it stands in the audit log"`
	}
}) (*op.Versioned[Drift], error) {
	match := op.Match{IfMatch: in.IfMatch}
	if match.IfMatch == "" {
		match.IfMatch = "*"
	}
	version, err := match.Version(op.AnyVersion)
	if err != nil {
		return nil, err
	}
	err = s.store.Tx(ctx, func(tx *db.Tx) error {
		a := op.Actor(ctx)
		a.Comment = in.Body.Reason
		_, err := driftdb.ActOnFinding(ctx, tx, in.ID, version, in.Action, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.getDrift(ctx, &in.DriftPath)
}

func (s *server) listDriftPasses(ctx context.Context, in *op.Page) (*op.Listed[DriftPass], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := driftdb.ListPasses(ctx, s.store, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	now, err := s.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r driftdb.SitePass) string { return r.SiteID }, func(r driftdb.SitePass) DriftPass {
		since := r.BegunAt
		if r.FinishedAt != nil {
			since = *r.FinishedAt
		}
		return DriftPass{
			SiteID: r.SiteID, Site: r.SiteName, Pass: r.Pass, BegunAt: r.BegunAt.UTC(), ListedAt: utc(r.ListedAt), FinishedAt: utc(r.FinishedAt),
			TriedAt: utc(r.TriedAt), Problem: r.Problem, Report: r.Report, Late: now.Sub(since) > time.Duration(r.DueSeconds)*time.Second,
		}
	}), nil
}

func driftView(r driftdb.FindingLine) Drift {
	f := r.Finding
	out := Drift{
		ID: f.ID, Detector: f.Detector, Severity: lifecycle.DriftSeverity(f.Severity), Status: string(f.Status), Scope: lifecycle.DriftScope(f.Scope), Subject: f.Subject,
		SiteID: f.SiteID, NodeID: text(f.NodeID), Hostname: r.Hostname, BMCID: f.BMCID, SystemID: f.SystemID, Message: f.Message, Evidence: f.Evidence,
		AllowedActions: []lifecycle.DriftAction{}, FirstSeenAt: f.FirstSeenAt.UTC(), LastSeenAt: f.LastSeenAt.UTC(), SeenCount: f.SeenCount,
		ChangedAt: f.ChangedAt.UTC(), Action: f.Action, ActedAt: utc(f.ActedAt), ActedBy: f.ActedBy, ActedReason: f.ActedReason, ClosedAt: utc(f.ClosedAt),
		Outcome: f.Outcome,
	}
	d, known := lifecycle.DriftDetectorOf(f.Detector)
	if known && f.Status != lifecycle.FindingClosed {
		out.NextAction, out.Adopts = d.Next, d.Adopts
		out.AllowedActions = slices.DeleteFunc(d.Actions(), func(a lifecycle.DriftAction) bool {
			return driftdb.IsActionDone(f, a) || a == lifecycle.DriftQuarantine && r.Lifecycle == lifecycle.NodePXE.Lifecycle // it has no such state
		})
	}
	return out
}
