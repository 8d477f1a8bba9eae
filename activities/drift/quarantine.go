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
	// Uncapped is how many charges are to be stopped and are not, since they are more than may be
	// within an hour.
	Uncapped int64 `json:"uncapped,omitempty"`
}

// QuarantineDrifted moves nodes in service to quarantined whose findings say so and
// were seen by two passes in a row, within the breaker; it says so when the
// breaker is open. Not without the region's list. Each node is read again under
// its lock. The condition of allocations follows what agents report, whatever the
// policy of quarantines and the list. Charges end of allocations that a restored
// database has on a node and MAAS does not, within a breaker of their own. Repeatable.
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
	held := []string{lifecycle.DriftMAASOccupant, lifecycle.DriftAgentOccupant}
	if _, err = driftdb.MarkForgottenTenants(ctx, a.Store, p.SiteID, held, p.StartedAt); err != nil {
		return r, fault.Internal(ctx, err)
	}
	if err = a.capCharges(ctx, p, &r); err != nil || a.Policy.Share <= 0 {
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

// capShare of a site's charges may be stopped within an hour, at least one; when more are to be,
// none is. A region that marks its machines wrongly, as one that was restored from an older backup,
// must not end the charges of a fleet, neither at once nor bit by bit.
const capShare = 0.05

// capCharges ends the charge of allocations that a restored database has on a node and MAAS does
// not: their tenants have given the nodes back since the backup. The word of an agent ends no
// charge. It opens a finding while charges wait for an operator.
func (a *Activities) capCharges(ctx context.Context, p Pass, r *QuarantineReport) error {
	caps, err := allocationdb.CapCharges(ctx, a.Store, allocationdb.CapFinding{
		SiteID: p.SiteID, Detector: lifecycle.DriftMAASOccupant, Confirm: lifecycle.DriftConfirm,
	}, capShare, actor())
	if err != nil {
		return err
	}
	for _, id := range caps.IDs {
		a.Log.WarnContext(ctx, "drift: the charge of an allocation was stopped", "allocation", id, "detector", lifecycle.DriftMAASOccupant)
	}
	r.Capped, r.Uncapped = caps.IDs, caps.Waiting
	return a.tellOfSite(ctx, p, lifecycle.DriftChargeBreaker, caps.Waiting, "no charge waits for its end",
		fmt.Sprintf("MAAS says of %d allocations that they do not have their nodes, and %d charges may be stopped by themselves within an hour: none is until an operator has released those that ended, or ignored the findings", caps.Waiting, caps.Limit),
		map[string]any{"limit": caps.Limit, "capped": caps.Done, "waiting": caps.Waiting})
}

// tellBreaker opens the breaker's own finding while something waits for it.
func (a *Activities) tellBreaker(ctx context.Context, p Pass, r QuarantineReport, b driftdb.Breaker) error {
	return a.tellOfSite(ctx, p, lifecycle.DriftBreakerOpen, int64(r.Waiting), "nothing waits for its quarantine",
		fmt.Sprintf("%d nodes were quarantined within the hour, as many as may be; %d more stay in service until an operator decides", b.Done, r.Waiting),
		map[string]any{"limit": b.Limit, "quarantined": b.Done, "waiting": r.Waiting})
}

// tellOfSite opens the finding of a breaker while something waits for it, and closes it afterwards.
func (a *Activities) tellOfSite(ctx context.Context, p Pass, detector string, waiting int64, closed, message string, evidence map[string]any) error {
	if waiting == 0 {
		_, err := driftdb.CloseFindings(ctx, a.Store, p.SiteID, []driftdb.Ref{{Detector: detector, Subject: p.SiteID, Outcome: closed}})
		return err
	}
	d, _ := lifecycle.DriftDetectorOf(detector)
	_, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, []driftdb.Observation{{Detector: d, Subject: p.SiteID, Key: "open", Message: message, Evidence: evidence}})
	return err
}
