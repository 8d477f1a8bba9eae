package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// pageSize is how many nodes or machines are compared at a time.
const pageSize = 500

// PageIn asks for one page of nodes.
type PageIn struct {
	Pass  Pass   `json:"pass"`
	After string `json:"after,omitempty"` // the last node of the page before
}

// PageOut is what was found; After is where the next page begins, "" when there
// is none.
type PageOut struct {
	PassCounts
	After string `json:"after,omitempty"`
}

// ComparePage compares a page of nodes by every detector of nodes and BMCs. It
// opens and updates findings, closes those whose fault is gone, and accounts
// for boots and machines that are new after a job. Nodes that a live job owns
// are skipped: nothing about them opens or closes. Without the region's list
// nothing closes.
func (a *Activities) ComparePage(ctx context.Context, in PageIn) (PageOut, error) {
	var out PageOut
	row, err := a.row(ctx, in.Pass)
	if err != nil {
		return out, err
	}
	now, err := a.clock(ctx)
	if err != nil {
		return out, err
	}
	nodes, err := driftdb.ListNodeFacts(ctx, a.Store, in.Pass.SiteID, in.After, pageSize)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	all := make([]Facts, 0, len(nodes))
	for _, n := range nodes {
		f, err := factsOf(n, row, now, a.Policy)
		if err != nil {
			return out, fault.Internal(ctx, err)
		}
		if !in.Pass.Listed {
			f.Listed = time.Time{}
		}
		all = append(all, f)
	}
	c, err := a.compare(ctx, in.Pass, all)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	if out.PassCounts, err = a.store(ctx, in.Pass, c); err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.Nodes, out.Owned = len(all), c.owned
	if len(nodes) == pageSize {
		out.After = nodes[len(nodes)-1].ID
	}
	return out, nil
}

func factsOf(n driftdb.NodeFacts, row driftdb.Pass, now time.Time, policy Policy) (Facts, error) {
	f := Facts{Now: now, Policy: policy, User: row.MAASUser}
	if err := json.Unmarshal(n.Facts, &f); err != nil {
		return f, fmt.Errorf("facts of node %s: %w", n.ID, err)
	}
	if row.ListedAt != nil {
		f.Listed = *row.ListedAt
	}
	return f, nil
}

// comparison is what a page came to.
type comparison struct {
	seen      []driftdb.Observation
	gone      []driftdb.Ref
	baselines []driftdb.Mark
	agreed    []string // nodes whose occupant nobody disputes since the restore
	addresses map[string]db.NodeAddresses
	owned     int
}

func (a *Activities) compare(ctx context.Context, p Pass, all []Facts) (comparison, error) {
	c := comparison{addresses: map[string]db.NodeAddresses{}}
	subjects := make([]string, 0, 2*len(all))
	for _, f := range all {
		subjects = append(subjects, f.Node.ID)
		if f.BMC != nil {
			subjects = append(subjects, f.BMC.ID)
		}
	}
	rows, err := driftdb.LiveFindings(ctx, a.Store, p.SiteID, subjects)
	if err != nil {
		return c, err
	}
	live := map[driftdb.Ref]bool{}
	for _, r := range rows {
		live[driftdb.Ref{Detector: r.Detector, Subject: r.Subject}] = true
	}
	byName, catalogue := detectors(), lifecycle.DriftDetectors()
	for _, f := range all {
		if f.LiveJob != "" {
			c.owned++
			continue
		}
		for _, d := range catalogue {
			if detect := byName[d.Name]; detect != nil {
				c.apply(d, f, detect, live)
			}
		}
		if f.agrees() {
			c.agreed = append(c.agreed, f.Node.ID)
		}
		if next, changed := f.nextAddresses(); changed {
			c.addresses[f.Node.ID] = next
		}
		if next, changed := f.nextBaseline(); changed {
			c.baselines = append(c.baselines, driftdb.Mark{NodeID: f.Node.ID, Facts: encode(next)})
		}
	}
	return c, nil
}

// apply runs one detector on one node and adds the finding that it opens or closes.
func (c *comparison) apply(d lifecycle.DriftDetector, f Facts, detect nodeDetector, live map[driftdb.Ref]bool) {
	subject, bmcID := f.Node.ID, ""
	if d.Scope == lifecycle.DriftOfBMC {
		if f.BMC == nil {
			return
		}
		subject, bmcID = f.BMC.ID, f.BMC.ID
	}
	ref := driftdb.Ref{Detector: d.Name, Subject: subject}
	open := live[ref]
	switch v := evaluate(d, detect, f, open); {
	case v.State == Found:
		c.seen = append(c.seen, driftdb.Observation{
			Detector: d, Subject: subject, NodeID: f.Node.ID, BMCID: bmcID, SystemID: f.Node.SystemID, Key: v.Key, Message: v.Message, Evidence: v.Evidence,
		})
	case v.State == Clear && open:
		ref.Outcome = "the fault is gone"
		c.gone = append(c.gone, ref)
	}
}

// store writes the findings and baselines of a comparison.
func (a *Activities) store(ctx context.Context, p Pass, c comparison) (PassCounts, error) {
	t := PassCounts{Findings: len(c.seen)}
	var err error
	if t.Opened, err = driftdb.ObserveFindings(ctx, a.Store, p.SiteID, c.seen); err != nil {
		return t, err
	}
	if p.Listed {
		if t.Closed, err = driftdb.CloseFindings(ctx, a.Store, p.SiteID, c.gone); err != nil {
			return t, err
		}
	}
	for id, addresses := range c.addresses {
		if err = a.Store.SetNodeAddresses(ctx, id, addresses); err != nil {
			return t, err
		}
	}
	if len(c.agreed) > 0 {
		if err = driftdb.RecordAgreements(ctx, a.Store, c.agreed); err != nil {
			return t, err
		}
	}
	if len(c.baselines) > 0 {
		err = driftdb.PutMarks(ctx, a.Store, c.baselines)
	}
	return t, err
}
