// Package allocationdb stores allocations: which project has which node, with the history of every
// node. It is a package below db. It is the only one that writes nodes.allocation_id, in the same
// transaction as the allocation that the pointer names. Functions that lock an allocation lock it
// before its node.
package allocationdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/allocation/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The rows.
type (
	Allocation = gen.Allocation
	Key        = gen.AllocationKey
	Image      = record.AllocationImage
	Network    = record.AllocationNetwork
	Connection = record.AllocationConnection
)

// Conn runs queries: a *db.Store, a *db.Tx, or a *db.ProjectTx, which sees one project.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

var what = db.Named("allocation")

// Resource is the kind of allocations in the audit log, in events and of jobs.
var Resource = lifecycle.Allocation.Resource

// PublicKey is a key of a tenant as it is installed: one line without options and without a
// comment.
type PublicKey struct{ Fingerprint, PublicKey string }

// New is an accepted allocation.
type New struct {
	ID               string // "" makes one
	ProjectID, SKUID string
	SiteID           string // "" for any site
	Name             string
	Tags             map[string]string
	Keys             []PublicKey
	Network          *Network
	QueueDeadline    *time.Time // until when it waits for a node; nil does not wait
	ExpiresAt        *time.Time
	RequestedBy      string // who asked, as the audit log names them
	Actor            db.Actor
}

// Create writes an allocation in its first state with its keys, its audit row and its event. It
// claims no node.
func Create(ctx context.Context, tx *db.Tx, in New) (Allocation, error) {
	if in.ID == "" {
		in.ID = db.NewID("alc")
	}
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Allocation{}, err
	}
	first := lifecycle.Allocation.Initial[0]
	payload, err := eventPayload(Allocation{ID: in.ID, ProjectID: in.ProjectID, SKUID: in.SKUID, Name: in.Name}, "", first)
	if err != nil {
		return Allocation{}, err
	}
	_, err = queries(tx).InsertAllocation(ctx, gen.InsertAllocationParams{
		ID: in.ID, ProjectID: in.ProjectID, SKUID: in.SKUID, SiteID: db.OrNil(in.SiteID), Name: in.Name, Tags: labels(in.Tags), Status: first,
		RequestedBy: db.ClipText(in.RequestedBy, maxRequestedBy), Network: in.Network, QueueDeadlineAt: in.QueueDeadline, ExpiresAt: in.ExpiresAt,
		EventID: db.NewID("evt"), EventType: first.EventType(), Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner,
		ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if err != nil {
		return Allocation{}, db.MapError("allocation of a node of SKU "+in.SKUID, err)
	}
	keys := gen.InsertKeysParams{ProjectID: in.ProjectID, AllocationID: in.ID, Fingerprints: []string{}, PublicKeys: []string{}}
	for _, k := range in.Keys {
		keys.Fingerprints, keys.PublicKeys = append(keys.Fingerprints, k.Fingerprint), append(keys.PublicKeys, k.PublicKey)
	}
	if err := queries(tx).InsertKeys(ctx, keys); err != nil {
		return Allocation{}, db.MapError("keys of "+what(in.ID), err)
	}
	return Get(ctx, tx, in.ID)
}

const maxRequestedBy = 300

func labels(tags map[string]string) record.Labels {
	if tags == nil {
		return record.Labels{}
	}
	return tags
}

// Get returns one allocation, or db.ErrNotFound.
func Get(ctx context.Context, c Conn, id string) (Allocation, error) {
	row, err := queries(c).Allocation(ctx, id)
	return row, db.MapError(what(id), err)
}

// Prune deletes what customers wrote in a batch of allocations that ended before a time, with their
// keys, and returns how many there were. The rows stay: usage and certificates refer to them.
func Prune(ctx context.Context, c Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneAllocations(ctx, gen.PruneAllocationsParams{Before: before, MaxRows: db.PruneBatch})
	return n, db.MapError("prune allocations", err)
}

// Lock returns one allocation and keeps others from changing it until the transaction ends.
func Lock(ctx context.Context, tx *db.Tx, id string) (Allocation, error) {
	row, err := queries(tx).LockAllocation(ctx, id)
	return row, db.MapError(what(id), err)
}

// FindForNode returns the allocation that occupies a node, or db.ErrNotFound.
func FindForNode(ctx context.Context, c Conn, nodeID string) (Allocation, error) {
	row, err := queries(c).AllocationOfNode(ctx, nodeID)
	return row, db.MapError("allocation of node "+nodeID, err)
}

// OccupantsOf returns the id of the allocation that occupies each of some nodes. A node that nobody
// occupies has no entry.
func OccupantsOf(ctx context.Context, c Conn, nodeIDs []string) (map[string]string, error) {
	rows, err := queries(c).OccupantsOf(ctx, db.EmptyIfNil(nodeIDs))
	if err != nil {
		return nil, db.MapError("occupants of nodes", err)
	}
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r.NodeID] = r.AllocationID
	}
	return out, nil
}

// Filter narrows a list; empty fields match all.
type Filter struct {
	ProjectID, SKUID, SiteID, NodeID string
	Statuses                         []lifecycle.AllocationStatus
	Conditions                       []lifecycle.AllocationCondition
	Tags                             map[string]string // all of them
	ReleasedAfter                    time.Time         // of those that have ended
}

// List lists allocations, newest first, from the one after the id given.
func List(ctx context.Context, c Conn, f Filter, after string, limit int) ([]Allocation, error) {
	tags, err := json.Marshal(labels(f.Tags))
	if err != nil {
		return nil, err
	}
	p := gen.ListAllocationsParams{
		After: after, ProjectID: f.ProjectID, SKUID: f.SKUID, SiteID: f.SiteID, NodeID: f.NodeID, Statuses: []string{}, Conditions: []string{},
		Tags: tags, ReleasedAfter: f.ReleasedAfter, MaxRows: db.PageLimit(limit),
	}
	for _, s := range f.Statuses {
		p.Statuses = append(p.Statuses, string(s))
	}
	for _, s := range f.Conditions {
		p.Conditions = append(p.Conditions, string(s))
	}
	rows, err := queries(c).ListAllocations(ctx, p)
	return rows, db.MapError("list allocations", err)
}

// ListDue lists allocations whose expiry is past, by the clocks of the database and of this
// process, and that nobody has released yet.
func ListDue(ctx context.Context, c Conn, now time.Time, limit int) ([]string, error) {
	ids, err := queries(c).AllocationsDue(ctx, gen.AllocationsDueParams{WorkerNow: now, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("list allocations that have expired", err)
}

// ListWithoutJob lists allocations that only a job moves on and that have had none for a while: a
// release whose job is to be created, or a job that was cancelled.
func ListWithoutJob(ctx context.Context, c Conn, quiet time.Duration, limit int) ([]string, error) {
	ids, err := queries(c).AllocationsWithoutJob(ctx, gen.AllocationsWithoutJobParams{QuietSeconds: quiet.Seconds(), MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("list allocations without a job", err)
}

// ListKeys lists the keys of an allocation by fingerprint.
func ListKeys(ctx context.Context, c Conn, id string) ([]Key, error) {
	rows, err := queries(c).Keys(ctx, id)
	return rows, db.MapError("keys of "+what(id), err)
}

// RecordKey stores that the node was seen to accept a key, or to refuse it. The time of the first
// look that saw so stays. It returns db.ErrNotFound when the allocation has no such key.
func RecordKey(ctx context.Context, c Conn, id, fingerprint string, accepted bool) error {
	n, err := queries(c).RecordKey(ctx, gen.RecordKeyParams{AllocationID: id, Fingerprint: fingerprint, Accepted: accepted})
	return db.CheckRepeatable("key of "+what(id), n, err, func() error { return db.NotFound("key of " + what(id)) })
}

// SetCondition stores the condition of an allocation. An allocation that has ended keeps its
// condition. It can be repeated.
func SetCondition(ctx context.Context, c Conn, id string, condition lifecycle.AllocationCondition, reason string) error {
	n, err := queries(c).SetCondition(ctx, gen.SetConditionParams{ID: id, Condition: condition, Reason: db.ClipText(reason, maxReason)})
	return db.CheckRepeatable(what(id), n, err, exists(ctx, c, id))
}

const maxReason = 500

// SetConditionsByFindings gives the active allocations of a site the condition maintenance_required
// while their node has an open finding of these detectors that as many passes have seen, and ok
// after it. It returns how many have changed.
func SetConditionsByFindings(ctx context.Context, c Conn, siteID string, detectors []string, confirm int) (int64, error) {
	n, err := queries(c).ConditionByFindings(ctx, gen.ConditionByFindingsParams{SiteID: siteID, Detectors: db.EmptyIfNil(detectors), Confirm: confirm})
	return n, db.MapError("conditions of the allocations of site "+siteID, err)
}

func exists(ctx context.Context, c Conn, id string) func() error {
	return func() error { _, err := Get(ctx, c, id); return err }
}

// SetTags replaces name and tags of the version given, or returns db.ErrStale.
func SetTags(ctx context.Context, tx *db.Tx, id string, version int64, name string, tags map[string]string) (Allocation, error) {
	row, err := queries(tx).SetTags(ctx, gen.SetTagsParams{ID: id, Version: version, Name: name, Tags: labels(tags)})
	return db.CheckUpdate(what(id), row, err, exists(ctx, tx, id))
}

// SetNetwork stores the network of an allocation that has not ended. It can be repeated.
func SetNetwork(ctx context.Context, c Conn, id string, n Network) error {
	rows, err := queries(c).SetNetwork(ctx, gen.SetNetworkParams{ID: id, Network: &n})
	return db.CheckRepeatable(what(id), rows, err, exists(ctx, c, id))
}

// Churn is what a billing account has in releasing, how many allocations it has requested since a
// moment, and how many failed after its keys were in them and before that was proven.
type Churn = gen.AccountChurnRow

// CountChurn counts the allocations of all projects of a billing account.
func CountChurn(ctx context.Context, tx *db.Tx, accountID string, since, unpaidSince time.Time) (Churn, error) {
	row, err := queries(tx).AccountChurn(ctx, gen.AccountChurnParams{BillingAccountID: accountID, Since: since, UnpaidSince: unpaidSince})
	return row, db.MapError("churn of billing account "+accountID, err)
}

// CountLive counts the allocations of a project that its quota limits, by the id of their SKU.
func CountLive(ctx context.Context, c Conn, projectID string) (map[string]int, error) {
	rows, err := queries(c).LiveCounts(ctx, projectID)
	if err != nil {
		return nil, db.MapError("count the allocations of project "+projectID, err)
	}
	out := map[string]int{}
	for _, r := range rows {
		out[r.SKUID] = r.Nodes
	}
	return out, nil
}
