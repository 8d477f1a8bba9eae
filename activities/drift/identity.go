package drift

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// observeIdentities opens a finding for each node that has a serial number, UUID or MAC address in
// common with another record. A page holds the keys; a filler that is stored from before is none.
func (a *Activities) observeIdentities(ctx context.Context, p Pass, t *PassCounts) error {
	seen := map[string]bool{}
	for after := ""; ; {
		keys, err := driftdb.ListSharedKeys(ctx, a.Store, p.SiteID, after, pageSize)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = keys[len(keys)-1].Key
		for _, k := range keys {
			found, err := a.conflictsOf(ctx, p.SiteID, k, seen)
			if err != nil {
				return err
			}
			opened, err := driftdb.ObserveFindings(ctx, a.Store, p.SiteID, found)
			if err != nil {
				return err
			}
			t.Add(PassCounts{Findings: len(found), Opened: opened})
		}
	}
}

// conflictsOf compares the records that share one key. A node has one finding, of the first
// conflict.
func (a *Activities) conflictsOf(ctx context.Context, siteID string, key driftdb.SharedKey, seen map[string]bool) ([]driftdb.Observation, error) {
	records, err := a.recordsOf(ctx, key.Nodes)
	if err != nil {
		return nil, err
	}
	var out []driftdb.Observation
	for _, n := range records {
		asked := n.SiteID == siteID && n.Status != lifecycle.NodeDeleted && n.Lifecycle == lifecycle.NodeMAAS.Lifecycle && n.MAASSystemID != nil
		if !asked || seen[n.ID] {
			continue
		}
		c, err := a.Store.IdentityConflict(ctx, n, records)
		if err != nil {
			return nil, err
		}
		if c != nil {
			seen[n.ID] = true
			out = append(out, driftdb.IdentityObservation(n, *c))
		}
	}
	return out, nil
}

// recordsOf reads nodes in pages, in the order of their ids.
func (a *Activities) recordsOf(ctx context.Context, ids []string) ([]db.Node, error) {
	out := make([]db.Node, 0, len(ids))
	for len(ids) > 0 {
		chunk := ids[:min(len(ids), pageSize)]
		ids = ids[len(chunk):]
		nodes, err := a.Store.ListNodes(ctx, db.NodeFilter{IDs: chunk}, "", len(chunk))
		if err != nil {
			return nil, err
		}
		out = append(out, nodes...)
	}
	return out, nil
}
