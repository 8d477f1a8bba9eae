package allocationdb

import (
	"context"
	"math"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/allocation/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Caps are the charges that findings have ended.
type Caps struct {
	// IDs are the allocations whose charge ended now.
	IDs []string
	// Waiting is how many charges are to end and do not, since with the Done of the last hour they
	// are more than Limit.
	Waiting, Done, Limit int64
}

// CapFinding names the charges of a site that end by findings of a detector that as many passes
// have seen.
type CapFinding struct {
	SiteID, Detector string
	Confirm          int
}

// CapCharges ends the charge of a site's active allocations that came before the last restore of
// the database, and of which findings say that they do not have their node. It ends with what was
// charged already. Each is a row of the audit log. It ends none while more are to end than this
// share of the charges of the site within an hour, and one at least: what makes so many findings
// may be wrong, and a charge that has ended does not begin again. It can be repeated: a charge is
// capped once.
func CapCharges(ctx context.Context, store *db.Store, f CapFinding, share float64, by db.Actor) (Caps, error) {
	var c Caps
	err := store.Tx(ctx, func(tx *db.Tx) error {
		c = Caps{}
		if err := tx.Lock(ctx, "cap_charges:"+f.SiteID); err != nil {
			return err
		}
		rows, err := queries(tx).ChargesToCap(ctx, gen.ChargesToCapParams{SiteID: f.SiteID, Detector: f.Detector, Confirm: f.Confirm})
		if err != nil || len(rows) == 0 {
			return db.MapError("charges to cap of site "+f.SiteID, err)
		}
		n, err := queries(tx).CountCaps(ctx, f.SiteID)
		if err != nil {
			return db.MapError("count capped charges of site "+f.SiteID, err)
		}
		c.Done, c.Limit = n.Done, max(1, int64(math.Floor(share*float64(n.Charged))))
		if c.Done+int64(len(rows)) > c.Limit {
			c.Waiting = int64(len(rows))
			return nil
		}
		for _, r := range rows {
			isCapped, err := capCharge(ctx, tx, r, by)
			if err != nil {
				return err
			}
			if isCapped {
				c.IDs, c.Done = append(c.IDs, r.ID), c.Done+1
			}
		}
		return nil
	})
	return c, err
}

// capCharge reports whether it has ended the charge: one that has ended since is left as it is.
func capCharge(ctx context.Context, tx *db.Tx, r gen.ChargesToCapRow, by db.Actor) (bool, error) {
	n, err := queries(tx).CapCharge(ctx, gen.CapChargeParams{ID: r.ID, CappedAt: r.CappedAt})
	if err != nil || n == 0 {
		return false, db.MapError("cap the charge of "+what(r.ID), err)
	}
	by.Comment = r.Message
	return true, tx.AppendAudit(ctx, db.Entry{
		ResourceKind: lifecycle.Allocation.Resource, ResourceID: r.ID, NodeID: r.NodeID, Kind: db.EntryAction, Name: "cap_charge", Actor: by,
	})
}
