// Package drift holds the activities of the reconciler: they read what a site's region, BMCs and
// agents say, compare it with what PostgreSQL holds by named detectors (lifecycle.DriftDetectors),
// and open, update and close findings. Every activity reads the current state and may be repeated.
// The activities change nothing outside. Inside they write findings and baselines, and they
// quarantine nodes in service within a breaker, never a node that a live job owns.
package drift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/isolation"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	Opener  providers.MAASOpener
	// Openers has one for each protocol of a BMC; they are asked without a login.
	Openers map[string]providers.BMCOpener
	// Logins reads a machine's power through the gate of all BMC logins; nil
	// reads none.
	Logins Logins
	Policy Policy
	// Network says what nodes must not reach.
	Network isolation.Policy
	Log     *slog.Logger
	// Unschedule ends the passes of a site that is gone; nil leaves them.
	Unschedule func(ctx context.Context, siteID string) error
	// Ahead moves the clock, for tests; nil leaves it.
	Ahead func() time.Duration
}

// Logins is the one way to log in to a BMC; bmc.Activities is one.
type Logins interface {
	LookAtPower(ctx context.Context, in bmc.LookIn) (bmc.LookOut, error)
	LookAtParts(ctx context.Context, in bmc.LookIn) (bmc.PartsOut, error)
}

// Policy is what an operator may set.
type Policy struct {
	// Due is how long a site may be without a complete pass before it requires operator action.
	Due time.Duration
	// Share of a site's nodes in service that may be quarantined automatically
	// within an hour (0.05 is 5 %), at least one; 0 quarantines none by itself.
	Share float64
	// Settle is how long a node must have stood still before it is compared
	// with what was read elsewhere.
	Settle time.Duration
	// Fresh is how old a heartbeat may be to prove that the machine runs.
	Fresh time.Duration
	// Silent is how old the last heartbeat of a node in service may be before that is a finding.
	Silent time.Duration
	// Skew is how far a node's clock may be off.
	Skew time.Duration
	// MinAgent is the oldest agent version that is good; "" for any.
	MinAgent string
	// Probes and Logins are how many BMCs a pass may ask without and with a
	// login, ProbeEvery and LoginEvery how often one BMC at most, AtOnce how
	// many at a time.
	Probes, Logins         int
	ProbeEvery, LoginEvery time.Duration
	// Every is how often a pass begins; 0 is not known, and then a pass reads the parts of Logins
	// machines.
	Every time.Duration
	// HealthEvery is how often the parts of a machine with their health, and the BMC's logs, are
	// read from its BMC, with what the pass has left of its logins, and how often the parts that an
	// agent reports are kept; 0 is never.
	HealthEvery time.Duration
	AtOnce      int
	// Networks is how many nodes a pass may have probe their network, NetworkEvery how often one
	// node at most.
	Networks     int
	NetworkEvery time.Duration
}

// DefaultPolicy is right for real gear.
func DefaultPolicy() Policy {
	return Policy{
		Due: 15 * time.Minute, Share: 0.05, Settle: time.Minute, Fresh: 90 * time.Second, Silent: 10 * time.Minute, Skew: 30 * time.Second,
		Probes: 500, Logins: 20, ProbeEvery: 30 * time.Minute, LoginEvery: 30 * time.Minute, HealthEvery: 6 * time.Hour, AtOnce: 10,
		Networks: 100, NetworkEvery: 15 * time.Minute,
	}
}

// actorID is who the audit log names.
const actorID = "reconciler"

func actor() db.Actor { return db.Actor{Owner: lifecycle.OwnerReconciler, ID: actorID} }

// clock is the database's time, which nearly all that is compared was dated by.
func (a *Activities) clock(ctx context.Context) (time.Time, error) {
	now, err := a.Store.Clock(ctx)
	if a.Ahead != nil {
		now = now.Add(a.Ahead())
	}
	return now, fault.Internal(ctx, err)
}

// Pass is one pass of a site, as its activities are told.
type Pass struct {
	SiteID    string    `json:"site_id"` // "" is that over the nodes without a site
	Number    int64     `json:"number"`
	StartedAt time.Time `json:"started_at"`
	// Gone says that there is no such site any more.
	Gone bool `json:"gone,omitempty"`
	// Listed says that the region's list of this pass was read whole. Without
	// it nothing is closed and nothing quarantined.
	Listed bool `json:"listed,omitempty"`
}

// isOfNoSite returns whether the pass is that over the nodes without a site, which have no region.
func (p Pass) isOfNoSite() bool { return p.SiteID == "" }

// BeginIn names the site.
type BeginIn struct {
	SiteID string `json:"site_id"`
}

// BeginPass begins a pass. Of a site that is gone it ends the schedule, and so it does when there
// are no nodes without a site.
func (a *Activities) BeginPass(ctx context.Context, in BeginIn) (Pass, error) {
	row, err := driftdb.BeginPass(ctx, a.Store, in.SiteID, a.Policy.Due)
	if errors.Is(err, db.ErrNotFound) {
		if a.Unschedule != nil {
			err = a.Unschedule(ctx, in.SiteID)
		} else {
			err = nil
		}
		return Pass{SiteID: in.SiteID, Gone: true}, fault.Internal(ctx, err)
	}
	return Pass{SiteID: in.SiteID, Number: row.Pass, StartedAt: row.BegunAt}, fault.Internal(ctx, err)
}

// row reads the pass's row and refuses when another pass has begun since.
func (a *Activities) row(ctx context.Context, p Pass) (driftdb.Pass, error) {
	row, err := driftdb.PassOfSite(ctx, a.Store, p.SiteID)
	if err == nil && row.Pass != p.Number {
		return row, fault.New(lifecycle.FailStateDisagreement, "pass %d of site %s was overtaken by pass %d", p.Number, p.SiteID, row.Pass)
	}
	return row, fault.Internal(ctx, err)
}

// siteOf reads the pass's site. It returns one without settings for the pass of the nodes without a
// site.
func (a *Activities) siteOf(ctx context.Context, p Pass) (db.Site, error) {
	if p.isOfNoSite() {
		return db.Site{}, nil
	}
	return a.Store.Site(ctx, p.SiteID)
}

// PassCounts counts what a part of a pass did.
type PassCounts struct {
	Nodes    int `json:"nodes,omitempty"`
	Owned    int `json:"owned,omitempty"`    // nodes that a live job owns: not looked at
	Findings int `json:"findings,omitempty"` // new or not
	Opened   int `json:"opened,omitempty"`
	Closed   int `json:"closed,omitempty"`
}

// Add adds another part.
func (t *PassCounts) Add(o PassCounts) {
	t.Nodes, t.Owned, t.Findings, t.Opened, t.Closed = t.Nodes+o.Nodes, t.Owned+o.Owned, t.Findings+o.Findings, t.Opened+o.Opened, t.Closed+o.Closed
}

// Report is what one pass did; it stands in the workflow's result and in the
// pass's row.
type Report struct {
	PassCounts
	List       ListReport       `json:"list"`
	BMCs       BMCReport        `json:"bmcs"`
	Networks   NetworkReport    `json:"networks,omitzero"`
	Quarantine QuarantineReport `json:"quarantine"`
	Problems   []string         `json:"problems,omitempty"`
}

// keepClosed is how long closed findings stay.
const keepClosed = 90 * 24 * time.Hour

// FinishIn ends a pass.
type FinishIn struct {
	Pass    Pass   `json:"pass"`
	Report  Report `json:"report"`
	Problem string `json:"problem,omitempty"`
}

// FinishPass opens or closes the finding that the region cannot be read, closes
// findings about nodes that are deleted, and notes the pass.
func (a *Activities) FinishPass(ctx context.Context, in FinishIn) error {
	site, _ := lifecycle.DriftDetectorOf(lifecycle.DriftSiteUnreachable)
	var err error
	switch {
	case in.Pass.Listed:
		_, err = driftdb.CloseFindings(ctx, a.Store, in.Pass.SiteID, []driftdb.Ref{{Detector: site.Name, Subject: in.Pass.SiteID, Outcome: "the region answers"}})
	case in.Report.List.Problem != "":
		_, err = driftdb.ObserveFindings(ctx, a.Store, in.Pass.SiteID, []driftdb.Observation{{
			Detector: site, Subject: in.Pass.SiteID, Key: "unreachable",
			Message: "the region's list of machines could not be read: " + in.Report.List.Problem, Evidence: map[string]any{"problem": in.Report.List.Problem},
		}})
	}
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if in.Pass.Listed {
		if err := a.closeAll(ctx, in.Pass.SiteID, "the node is deleted", func() ([]driftdb.Ref, error) {
			return driftdb.FindingsOfDeletedNodes(ctx, a.Store, in.Pass.SiteID, pageSize)
		}); err != nil {
			return fault.Internal(ctx, err)
		}
	}
	now, err := a.clock(ctx)
	if err != nil {
		return err
	}
	if _, err := driftdb.PruneFindings(ctx, a.Store, now.Add(-keepClosed)); err != nil {
		return fault.Internal(ctx, err)
	}
	row := driftdb.Pass{SiteID: in.Pass.SiteID, Pass: in.Pass.Number}
	return fault.Internal(ctx, driftdb.FinishPass(ctx, a.Store, row, in.Problem, encode(in.Report)))
}

// closeAll closes what list gives, page by page, until it gives nothing.
func (a *Activities) closeAll(ctx context.Context, siteID, outcome string, list func() ([]driftdb.Ref, error)) error {
	for {
		refs, err := list()
		if err != nil || len(refs) == 0 {
			return err
		}
		for i := range refs {
			refs[i].Outcome = outcome
		}
		n, err := driftdb.CloseFindings(ctx, a.Store, siteID, refs)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%d drift findings of site %s could not be closed", len(refs), siteID)
		}
	}
}
