package drift

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
)

// NetworkReport counts the nodes whose agents were asked to probe their network.
type NetworkReport struct {
	Asked int `json:"asked,omitempty"`
}

// ProbeNetworks asks agents of nodes in service to probe their network, within the pass's budget,
// those that were asked longest ago first. It does not wait: a later pass compares what they
// answer. Repeating it asks nobody twice in a pass.
func (a *Activities) ProbeNetworks(ctx context.Context, p Pass) (NetworkReport, error) {
	var r NetworkReport
	// No claim gives a PXE node to a tenant, and it is on the boot network by design.
	if _, err := a.row(ctx, p); err != nil || a.Policy.Networks <= 0 || p.isOfNoSite() {
		return r, err
	}
	now, err := a.clock(ctx)
	if err != nil {
		return r, err
	}
	site, err := a.Store.Site(ctx, p.SiteID)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	ids, err := driftdb.NodesToProbe(ctx, a.Store, p.SiteID, now.Add(-a.Policy.Fresh), now.Add(-a.Policy.NetworkEvery), a.Policy.Networks)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	for _, id := range ids {
		args, err := a.Network.Targets(ctx, a.Store, site, id, strconv.FormatInt(p.Number, 10))
		if err != nil {
			return r, fault.Internal(ctx, err)
		}
		if len(args.Targets) == 0 {
			continue
		}
		if err := driftdb.AskProbe(ctx, a.Store, id, p.Number, args, actor()); err != nil {
			return r, fault.Internal(ctx, err)
		}
		r.Asked++
	}
	return r, nil
}

// networkOpen finds a node whose last probe reached what no tenant may reach. A node that was not
// asked yet, or whose answer leaves targets out, is unknown.
func networkOpen(f Facts) Verdict {
	if f.Network == nil {
		return unknown()
	}
	open, err := f.Network.Open()
	switch {
	case err != nil:
		return unknown()
	case len(open) == 0:
		return clean()
	}
	names := strings.Join(open, ", ")
	return found(names, "the node's network reaches what no tenant may reach: "+names,
		"open", open, "tried", len(f.Network.Asked.Targets), "probed_at", f.Network.At.UTC().Format(time.RFC3339))
}
