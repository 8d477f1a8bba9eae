package allocationdb

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/allocation/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Claim takes a free node for a requested allocation and moves it to provisioning. Its live job
// gets the node as its own. It returns false when no matching node is free, and the allocation as
// it is when a node was claimed before.
func Claim(ctx context.Context, tx *db.Tx, id string, actor db.Actor) (Allocation, bool, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil || a.Status == lifecycle.AllocationProvisioning {
		return a, err == nil, err
	}
	if err := lifecycle.Allocation.Check(lifecycle.AllocationClaim, a.Status, actor.Owner, nil); err != nil {
		return a, false, err
	}
	siteID := ""
	if a.SiteID != nil {
		siteID = *a.SiteID
	}
	n, found, err := TakeFreeNode(ctx, tx, a.ID, a.SKUID, siteID)
	if err != nil || !found {
		return a, false, err
	}
	a, err = ClaimTaken(ctx, tx, a, n, actor)
	return a, err == nil, err
}

// TakenNode is a node whose pointer names an allocation that does not occupy it yet.
type TakenNode = gen.ClaimFreeNodeRow

// TakeFreeNode points a free node to an allocation, which may be created after it in the same
// transaction; ClaimTaken completes it. It returns false when no matching node is free. A node that
// others have locked may be given back, so it waits for these before it says so.
func TakeFreeNode(ctx context.Context, tx *db.Tx, allocationID, skuID, siteID string) (TakenNode, bool, error) {
	full, err := reservedSites(ctx, tx, skuID, siteID)
	if err != nil {
		return TakenNode{}, false, err
	}
	p := gen.ClaimFreeNodeParams{AllocationID: allocationID, SKUID: skuID, SiteID: siteID, FullSites: full}
	if _, err := tx.DBTX().Exec(ctx, "SAVEPOINT claim"); err != nil {
		return TakenNode{}, false, db.MapError("claim a node of SKU "+skuID, err)
	}
	row, err := queries(tx).ClaimFreeNode(ctx, p)
	if errors.Is(err, pgx.ErrNoRows) {
		// It keeps the locks of nodes that others took at this moment. With these, two claims that
		// wait would wait for each other.
		if _, err := tx.DBTX().Exec(ctx, "ROLLBACK TO SAVEPOINT claim"); err != nil {
			return TakenNode{}, false, db.MapError("claim a node of SKU "+skuID, err)
		}
		var waited gen.ClaimLockedNodeRow
		waited, err = queries(tx).ClaimLockedNode(ctx, gen.ClaimLockedNodeParams(p))
		row = TakenNode(waited)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return TakenNode{}, false, nil
	}
	return row, err == nil, db.MapError("claim a node of SKU "+skuID, err)
}

// ClaimTaken moves a requested allocation to provisioning on the node that was taken for it.
func ClaimTaken(ctx context.Context, tx *db.Tx, a Allocation, n TakenNode, actor db.Actor) (Allocation, error) {
	a, err := commit(ctx, tx, a, Move{To: lifecycle.AllocationClaim, Actor: actor, nodeID: &n.ID, siteID: &n.SiteID})
	if err != nil {
		return a, err
	}
	job, err := tx.LiveJobOfResource(ctx, Resource, a.ID)
	if err == nil {
		err = requireTaken(TakeNode(ctx, tx, job.ID, n.ID, n.SiteID))
	} else if errors.Is(err, db.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return a, err
	}
	return a, EnterOccupancy(ctx, tx, n.ID, lifecycle.OccupancyAllocated, a.ID, "")
}

// requireTaken has the transaction run again when a job took the node while it was claimed.
func requireTaken(taken bool, err error) error {
	if err == nil && !taken {
		err = db.ErrRepeat
	}
	return err
}

// reservedSites lists the sites at which every free node of a SKU is kept back. Claims of a SKU
// with reserves run one after the other, so that two do not both take the last one that is not.
func reservedSites(ctx context.Context, tx *db.Tx, skuID, siteID string) ([]string, error) {
	full := []string{}
	reserves, err := queries(tx).LockReserves(ctx, skuID)
	if err != nil || len(reserves) == 0 {
		return full, db.MapError("reserves of SKU "+skuID, err)
	}
	free, err := CountClaimable(ctx, tx, skuID, siteID)
	for _, r := range reserves {
		if free[r.SiteID] <= r.Nodes {
			full = append(full, r.SiteID)
		}
	}
	return full, err
}

// CountClaimable counts the free nodes of a SKU by site; reserves are among them.
func CountClaimable(ctx context.Context, c Conn, skuID, siteID string) (map[string]int, error) {
	rows, err := queries(c).CountClaimable(ctx, gen.CountClaimableParams{SKUID: skuID, SiteID: siteID})
	out := map[string]int{}
	for _, r := range rows {
		out[r.SiteID] = r.Nodes
	}
	return out, db.MapError("count free nodes of SKU "+skuID, err)
}

// HasFree reports whether a claim would find a free node of a SKU now, at one site or at any. It
// locks nothing.
func HasFree(ctx context.Context, c Conn, skuID, siteID string) (bool, error) {
	reserves, err := queries(c).ListReserves(ctx, []string{skuID})
	if err != nil {
		return false, db.MapError("reserves of SKU "+skuID, err)
	}
	free, err := CountClaimable(ctx, c, skuID, siteID)
	for _, r := range reserves {
		if free[r.SiteID] <= r.Nodes {
			delete(free, r.SiteID)
		}
	}
	return len(free) > 0, err
}

// TakeNode gives a job the node as its own, so that it is the node's one live job. It returns false
// while another live job has the node. It can be repeated.
func TakeNode(ctx context.Context, tx *db.Tx, jobID, nodeID, siteID string) (bool, error) {
	_, err := queries(tx).TakeNode(ctx, gen.TakeNodeParams{ID: jobID, NodeID: nodeID, SiteID: siteID})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	err = db.MapError("node of job "+jobID, err)
	var conflict *db.ConflictError
	if errors.As(err, &conflict) { // a job of the node was committed since
		return false, db.ErrRepeat
	}
	return err == nil, err
}

// HeldForAnother returns the allocation for which MAAS has the machine of the allocation's node
// marked, where it is another one, as the reconciler found; "" where none is known. unread says
// that the database was restored after the allocation got its node, and that the reconciler has not
// looked since.
func HeldForAnother(ctx context.Context, c Conn, a Allocation) (heldFor string, unread bool, err error) {
	since := a.CreatedAt
	if a.ProvisioningAt != nil {
		since = *a.ProvisioningAt
	}
	row, err := queries(c).HeldForAnother(ctx, gen.HeldForAnotherParams{NodeID: *a.NodeID, Detector: lifecycle.DriftMAASOccupant, Since: since})
	if err != nil || row.HeldFor == a.ID {
		return "", false, db.MapError("node "+*a.NodeID, err)
	}
	return row.HeldFor, row.Unread && row.HeldFor == "", nil
}

// freeNode ends the occupancy of a node by a locked allocation. dirty marks the node as one that a
// tenant left; a pointer that named nobody or another allocation does too.
func freeNode(ctx context.Context, tx *db.Tx, a Allocation, certificateID string, dirty bool) error {
	freed, err := queries(tx).FreeNode(ctx, gen.FreeNodeParams{ID: *a.NodeID, AllocationID: a.ID, Dirty: dirty})
	if errors.Is(err, pgx.ErrNoRows) {
		return db.NotFound("node " + *a.NodeID)
	}
	if err != nil {
		return db.MapError("node "+*a.NodeID, err)
	}
	state := lifecycle.OccupancyFree
	if freed.TenantLeftAt != nil || freed.Status != lifecycle.NodeActive && freed.Status != lifecycle.NodeOffline {
		state = lifecycle.OccupancyMaintenance
	}
	return EnterOccupancy(ctx, tx, *a.NodeID, state, "", certificateID)
}

// ClearPointer clears the pointer of a node that no allocation occupies, and marks the node as one
// that a tenant left. A node with an occupant keeps its pointer. It can be repeated.
func ClearPointer(ctx context.Context, tx *db.Tx, nodeID string) error {
	_, err := queries(tx).ClearPointer(ctx, nodeID)
	return db.MapError("node "+nodeID, err)
}

// Occupancy is one row of the history of a node.
type Occupancy = gen.NodeOccupancy

// EnterOccupancy begins a row of a node's history and ends the one before. The same row again
// changes nothing.
func EnterOccupancy(ctx context.Context, c Conn, nodeID string, state lifecycle.Occupancy, allocationID, certificateID string) error {
	return db.MapError("history of node "+nodeID, queries(c).EnterOccupancy(ctx, gen.EnterOccupancyParams{
		NodeID: nodeID, State: string(state), AllocationID: db.OrNil(allocationID), CertificateID: db.OrNil(certificateID),
	}))
}

// ListOccupancies lists the history of a node, newest first, from the row before the id given; 0 is
// the newest.
func ListOccupancies(ctx context.Context, c Conn, nodeID string, before int64, limit int) ([]Occupancy, error) {
	rows, err := queries(c).Occupancies(ctx, gen.OccupanciesParams{NodeID: nodeID, Before: before, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("history of node "+nodeID, err)
}

// SetFirmwareSnapshot stores the firmware settings of the node as they were before the tenant had
// access. The first one stays.
func SetFirmwareSnapshot(ctx context.Context, c Conn, id string, snapshot json.RawMessage) error {
	n, err := queries(c).SetFirmwareSnapshot(ctx, gen.SetFirmwareSnapshotParams{AllocationID: id, Snapshot: snapshot})
	return db.CheckRepeatable("firmware snapshot of "+what(id), n, err, func() error { _, err := FirmwareSnapshot(ctx, c, id); return err })
}

// FirmwareSnapshot returns what SetFirmwareSnapshot has stored, or db.ErrNotFound.
func FirmwareSnapshot(ctx context.Context, c Conn, id string) (json.RawMessage, error) {
	b, err := queries(c).FirmwareSnapshot(ctx, id)
	return b, db.MapError("firmware snapshot of "+what(id), err)
}

// Mismatch is a node whose pointer and whose occupant differ; "" is none.
type Mismatch = gen.OccupancyMismatchesRow

// ListMismatches lists nodes of a site, or of all, whose pointer and whose occupant differ.
func ListMismatches(ctx context.Context, c Conn, siteID string, limit int) ([]Mismatch, error) {
	rows, err := queries(c).OccupancyMismatches(ctx, gen.OccupancyMismatchesParams{SiteID: siteID, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("compare occupancies", err)
}

// Reserve is how many free nodes of a SKU are kept back at a site.
type Reserve = gen.SKUReserve

// ListReserves lists the reserves of SKUs by SKU and site.
func ListReserves(ctx context.Context, c Conn, skuIDs []string) ([]Reserve, error) {
	rows, err := queries(c).ListReserves(ctx, skuIDs)
	return rows, db.MapError("reserves of SKUs", err)
}

// SetReserves keeps as many free nodes of a SKU back at each site as given, and none elsewhere.
func SetReserves(ctx context.Context, tx *db.Tx, skuID string, nodes map[string]int) error {
	sites := slices.AppendSeq([]string{}, maps.Keys(nodes)) // nil would be an array of which nothing is known
	slices.Sort(sites)
	if err := queries(tx).KeepReserves(ctx, gen.KeepReservesParams{SKUID: skuID, SiteIds: sites}); err != nil {
		return db.MapError("reserves of SKU "+skuID, err)
	}
	for _, site := range sites {
		if err := PutReserve(ctx, tx, skuID, site, nodes[site]); err != nil {
			return err
		}
	}
	return nil
}

// PutReserve keeps free nodes of a SKU at a site back from claims; 0 keeps none.
func PutReserve(ctx context.Context, tx *db.Tx, skuID, siteID string, nodes int) error {
	if nodes == 0 {
		_, err := queries(tx).DeleteReserve(ctx, gen.DeleteReserveParams{SKUID: skuID, SiteID: siteID})
		return db.MapError("reserve of SKU "+skuID, err)
	}
	return db.MapError("reserve of SKU "+skuID, queries(tx).PutReserve(ctx, gen.PutReserveParams{SKUID: skuID, SiteID: siteID, Nodes: nodes}))
}

// wakeQuiet is how long a request that was told of a free node is not told of another one: it takes
// the first one meanwhile.
const wakeQuiet = 10 * time.Second

// TakeWakes returns the jobs of the requests that have waited longest for the nodes that became
// free, at most one for each node. A node is taken once: what is lost after it is made up for by
// the requests, which look again by themselves. more reports that other nodes wait.
func TakeWakes(ctx context.Context, store *db.Store, limit int) (jobs []string, more bool, err error) {
	err = store.Tx(ctx, func(tx *db.Tx) error {
		q := queries(tx)
		jobs = nil
		freed, err := q.LockFreedNodes(ctx, int32(limit)) //nolint:gosec // a constant
		if err != nil {
			return db.MapError("free nodes that requests wait for", err)
		}
		more = len(freed) == limit
		for _, n := range freed {
			var told *string
			r, err := q.WaitingRequest(ctx, gen.WaitingRequestParams{SKUID: n.SKUID, SiteID: n.SiteID, QuietSeconds: wakeQuiet.Seconds()})
			switch {
			case err == nil:
				told, jobs = &r.AllocationID, append(jobs, r.JobID)
			case !errors.Is(err, pgx.ErrNoRows):
				return db.MapError("requests that wait for a node", err)
			}
			if err := q.EndWake(ctx, gen.EndWakeParams{NodeID: n.NodeID, AllocationID: told}); err != nil {
				return db.MapError("wake for node "+n.NodeID, err)
			}
		}
		return nil
	})
	return jobs, more, err
}
