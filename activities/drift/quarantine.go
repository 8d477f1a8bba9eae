package drift

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/activities/fault"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// QuarantineReport is what was done by itself.
type QuarantineReport struct {
	Nodes []string `json:"nodes,omitempty"` // quarantined
	// Waiting is how many nodes are to be quarantined and are not, since Limit
	// were within the hour.
	Waiting int   `json:"waiting,omitempty"`
	Limit   int64 `json:"limit,omitempty"`
	// Capped are the allocations whose charge was stopped, since MAAS says after a
	// restore that they do not have their node.
	Capped []string `json:"capped,omitempty"`
}

// QuarantineDrifted moves nodes in service to quarantined whose findings say so and
// were seen by two passes in a row, within the breaker; it says so when the
// breaker is open. Not without the region's list. Each node is read again under
// its lock. The condition of allocations follows what agents report, whatever the
// policy of quarantines and the list. Charges end of allocations that a restored
// database has on a node and MAAS does not. Repeatable.
func (a *Activities) QuarantineDrifted(ctx context.Context, p Pass) (QuarantineReport, error) {
	var r QuarantineReport
	_, err := a.row(ctx, p)
	if err != nil {
		return r, err
	}
	var names, byAgent []string
	for _, d := range lifecycle.DriftDetectors() {
		if !d.Quarantines {
			continue
		}
		names = append(names, d.Name)
		if d.IsAgentMade() {
			byAgent = append(byAgent, d.Name)
		}
	}
	if _, err = allocationdb.SetConditionsByFindings(ctx, a.Store, p.SiteID, byAgent, lifecycle.DriftConfirm); err != nil {
		return r, fault.Internal(ctx, err)
	}
	if !p.Listed {
		return r, nil
	}
	if r.Capped, err = a.capCharges(ctx, p); err != nil || a.Policy.Share <= 0 {
		return r, fault.Internal(ctx, err)
	}
	all, err := driftdb.FindingsToQuarantine(ctx, a.Store, p.SiteID, names, byAgent, p.StartedAt, pageSize)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	var breaker driftdb.Breaker
	settled := map[string]bool{} // nodes about which it is decided
	for _, c := range all {
		if settled[c.NodeID] {
			continue
		}
		settled[c.NodeID] = true
		if r.Waiting > 0 { // the breaker opened: it only counts from here
			r.Waiting++
			continue
		}
		var done bool
		if done, breaker, err = driftdb.QuarantineByReconciler(ctx, a.Store, p.SiteID, c, a.Policy.Share, actor()); err != nil {
			return r, fault.Internal(ctx, err)
		}
		switch {
		case done:
			r.Nodes = append(r.Nodes, c.NodeID)
			a.Log.WarnContext(ctx, "drift: a node was quarantined", "node", c.NodeID, "detector", c.Detector, "finding", c.ID)
		case breaker.Open():
			r.Waiting++
		}
	}
	r.Limit = breaker.Limit
	return r, fault.Internal(ctx, a.tellBreaker(ctx, p, r, breaker))
}

// capCharges ends the charge of allocations that a restored database has on a node and MAAS does not:
// their tenants have given the nodes back since the backup. The word of an agent ends no charge.
func (a *Activities) capCharges(ctx context.Context, p Pass) ([]string, error) {
	ids, err := allocationdb.CapChargesByFindings(ctx, a.Store, p.SiteID, lifecycle.DriftMAASOccupant, lifecycle.DriftConfirm, actor())
	for _, id := range ids {
		a.Log.WarnContext(ctx, "drift: the charge of an allocation was stopped", "allocation", id, "detector", lifecycle.DriftMAASOccupant)
	}
	return ids, err
}

// tellBreaker opens the breaker's own finding while something waits for it.
func (a *Activities) tellBreaker(ctx context.Context, p Pass, r QuarantineReport, b driftdb.Breaker) error {
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftBreakerOpen)
	if r.Waiting == 0 {
		_, err := driftdb.CloseFindings(ctx, a.Store, p.SiteID, []driftdb.Ref{{Detector: d.Name, Subject: p.SiteID, Outcome: "nothing waits for its quarantine"}})
		return err
	}
	_, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, []driftdb.Observation{{
		Detector: d, Subject: p.SiteID, Key: "open",
		Message:  fmt.Sprintf("%d nodes were quarantined within the hour, as many as may be; %d more stay in service until an operator decides", b.Done, r.Waiting),
		Evidence: map[string]any{"limit": b.Limit, "quarantined": b.Done, "waiting": r.Waiting},
	}})
	return err
}
