package drift

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/drift/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// SharedKey is a serial number, UUID or MAC address of several records.
type SharedKey = gen.SharedKeysRow

// ListSharedKeys lists what nodes of a site have in common with other records, from the key after
// the one given.
func ListSharedKeys(ctx context.Context, c db.Conn, siteID, after string, limit int) ([]SharedKey, error) {
	rows, err := queries(c).SharedKeys(ctx, gen.SharedKeysParams{SiteID: siteID, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("keys of several nodes of site "+siteID, err)
}

// ObserveIdentity opens the finding of a node that has a key in common with another record, in the
// transaction that stores the keys: nobody claims the node before an operator has looked.
func ObserveIdentity(ctx context.Context, tx *db.Tx, nodeID string) error {
	n, err := tx.Node(ctx, nodeID)
	if err != nil {
		return err
	}
	c, err := tx.IdentityConflict(ctx, n, nil)
	if err != nil || c == nil {
		return err
	}
	_, err = ObserveFindings(ctx, tx, n.SiteID, []Observation{IdentityObservation(n, *c)})
	return err
}

// IdentityObservation returns the finding of a node that has a key in common with another record.
func IdentityObservation(n db.Node, c db.Conflict) Observation {
	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftIdentityConflict)
	other := "node " + c.Other.Hostname
	if c.Other.Status == lifecycle.NodeDeleted {
		other = "the deleted node " + c.Other.Hostname
	}
	if c.Other.TenantLeftAt != nil {
		other += ", which a tenant left and nothing proved clean"
	}
	same, differ := strings.Join(c.Same, " and "), strings.Join(c.Differ, " and another ")
	message := fmt.Sprintf("the %s of %s is that of %s (%s)", same, n.Hostname, other, c.Other.ID)
	if differ != "" {
		message += "; it has another " + differ
	}
	return Observation{
		Detector: d, Subject: n.ID, NodeID: n.ID, Key: c.Other.ID + " " + same + "/" + differ, Message: message,
		Evidence: map[string]any{
			"other_node": c.Other.ID, "same": db.EmptyIfNil(c.Same), "differ": db.EmptyIfNil(c.Differ), "serial": n.Serial, "uuid": n.HardwareUUID,
			"other_serial": c.Other.Serial, "other_uuid": c.Other.HardwareUUID,
		},
	}
}
