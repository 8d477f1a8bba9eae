// Package allocation holds the activities that read and change what the control plane stores of an
// allocation: its node, its keys, the tenant's access and the node's history.
package allocation

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Activities is what these activities need.
type Activities struct {
	Store *db.Store
	// RevokeDeadline is how long a release waits for a proof before it cuts the power; zero is two
	// minutes. MaxDeliver is how often it tries where the failure may go away by itself; zero is
	// five.
	RevokeDeadline time.Duration
	MaxDeliver     int
	// ProvisionDeadline is how long a node may be provisioned after its claim; zero is half an
	// hour.
	ProvisionDeadline time.Duration
	// Poll is how often a release looks whether its node is free of other jobs; zero is two
	// seconds. Wait is after how long a request looks for a node again, at first; zero is five
	// seconds.
	Poll, Wait time.Duration
}

// ReadAllocation reads an allocation, its keys, and the policy of its release. Read-only.
func (a *Activities) ReadAllocation(ctx context.Context, in contract.AllocationRef) (contract.AllocationFacts, error) {
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	if err != nil {
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	}
	return a.facts(ctx, row)
}

// PlanIn is the input of PlanAllocation. The reference is a field and not embedded, so that a plan
// is no entry on the node's timeline.
type PlanIn struct {
	In contract.AllocationRef `json:"in"`
}

// PlanAllocation is ReadAllocation for a plan. Read-only.
func (a *Activities) PlanAllocation(ctx context.Context, in PlanIn) (contract.AllocationFacts, error) {
	return a.ReadAllocation(ctx, in.In)
}

func (a *Activities) facts(ctx context.Context, row allocationdb.Allocation) (contract.AllocationFacts, error) {
	out := contract.AllocationFacts{
		Status: row.Status, NodeID: deref(row.NodeID), SiteID: deref(row.SiteID), ReleaseRequested: row.ReleaseRequestedAt != nil, Access: row.Access,
		AccessGiven: row.AccessGivenAt != nil, RevokeSeconds: int(a.revokeDeadline() / time.Second), MaxDeliver: a.MaxDeliver,
	}
	if out.MaxDeliver <= 0 {
		out.MaxDeliver = defaultMaxDeliver
	}
	if row.ProvisioningAt != nil {
		out.ReadyBy = row.ProvisioningAt.UTC().Add(cmp.Or(a.ProvisionDeadline, defaultProvision))
	}
	sku, err := a.Store.SKU(ctx, row.SKUID)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.TenantRoot = sku.TenantRoot
	keys, err := allocationdb.ListKeys(ctx, a.Store, row.ID)
	inForce, former := allocationdb.SplitKeys(keys)
	out.Keys, out.Former = keyFacts(inForce), keyFacts(former)
	return out, fault.Internal(ctx, err)
}

func keyFacts(keys []allocationdb.Key) []contract.AllocationKey {
	var out []contract.AllocationKey
	for _, k := range keys {
		out = append(out, contract.AllocationKey{Fingerprint: k.Fingerprint, PublicKey: k.PublicKey})
	}
	return out
}

const (
	defaultRevoke     = 2 * time.Minute
	defaultMaxDeliver = 5
	defaultProvision  = 30 * time.Minute
	defaultPoll       = 2 * time.Second
)

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func actor(ctx context.Context, jobID string) db.Actor {
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: jobID}
	if activity.IsActivity(ctx) {
		by.ID = activity.GetInfo(ctx).WorkflowExecution.ID
		by.WorkflowID = by.ID
	}
	return by
}

// TakeNode reads an allocation that is being released, and gives the job its node: from then on the
// job is the node's one live job. It waits while another job has the node, for as long as a release
// may take to end the tenant's access; then the access is unconfirmed, and it fails with
// access_unconfirmed. An allocation that has ended, or let go of its node, is returned without one.
func (a *Activities) TakeNode(ctx context.Context, in contract.AllocationRef) (contract.AllocationFacts, error) {
	until := time.Now().Add(a.revokeDeadline())
	var row allocationdb.Allocation
	ended, late, unread, heldFor := false, false, false, ""
	err := fault.PollStore(ctx, a.poll(), func() (done bool, err error) {
		err = a.Store.Tx(ctx, func(tx *db.Tx) error {
			done, late = false, false
			if row, err = allocationdb.Lock(ctx, tx, in.AllocationID); err != nil {
				return err
			}
			ended = row.NodeReleasedAt != nil || lifecycle.Allocation.Terminal(row.Status)
			if done = ended || row.NodeID == nil; done {
				return nil
			}
			if heldFor, unread, err = allocationdb.HeldForAnother(ctx, tx, row); err != nil || heldFor != "" {
				done = err == nil
				return err
			}
			if unread {
				late = !time.Now().Before(until)
				return nil
			}
			if done, err = allocationdb.TakeNode(ctx, tx, in.JobID, *row.NodeID, deref(row.SiteID)); err != nil || done {
				return err
			}
			if late = !time.Now().Before(until); late {
				return allocationdb.EndAccess(ctx, tx, in.AllocationID, lifecycle.AccessUnconfirmed)
			}
			return nil
		})
		return done || late, err
	})
	switch {
	case err != nil:
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	case ended:
		row.NodeID = nil
	case row.NodeID == nil:
		return contract.AllocationFacts{}, fault.New(lifecycle.FailStateDisagreement, "the allocation is %s and has no node that could be released", row.Status)
	case heldFor != "":
		return contract.AllocationFacts{}, fault.New(lifecycle.FailStateDisagreement,
			"MAAS has the machine marked for allocation %s: the database was restored, and the node is that tenant's now; end this allocation with remove-assignment", heldFor)
	case unread:
		return contract.AllocationFacts{}, fault.New(lifecycle.FailStateDisagreement,
			"the database was restored, and the reconciler has not read since whose node this is; wait for its next pass, then retry the stage")
	case late:
		return contract.AllocationFacts{}, fault.New(lifecycle.FailAccessUnconfirmed,
			"another job has the node, so that nothing proves that the tenant's access has ended; end that job, then retry the stage")
	}
	return a.facts(ctx, row)
}

func (a *Activities) revokeDeadline() time.Duration {
	if a.RevokeDeadline > 0 {
		return a.RevokeDeadline
	}
	return defaultRevoke
}

func (a *Activities) poll() time.Duration {
	if a.Poll > 0 {
		return a.Poll
	}
	return defaultPoll
}

// GiveAccess stores that the tenant may have access to the node from now on. Call it before his
// keys are sent there. It can be repeated. It fails with state_disagreement when the allocation is
// not being provisioned.
func (a *Activities) GiveAccess(ctx context.Context, in contract.AllocationRef) (contract.AllocationFacts, error) {
	err := allocationdb.GiveAccess(ctx, a.Store, in.AllocationID)
	if errors.Is(err, db.ErrStale) {
		return contract.AllocationFacts{}, fault.New(lifecycle.FailStateDisagreement, "the allocation is not being provisioned any more")
	}
	return contract.AllocationFacts{Done: true, Note: "the tenant may have access from now on"}, fault.Internal(ctx, err)
}

// RecordKeysIn is the input of RecordKeys.
type RecordKeysIn struct {
	contract.AllocationRef
	Fingerprints []string `json:"fingerprints"`
	// Accepted is what the node did with each: accept it, or refuse it.
	Accepted bool `json:"accepted"`
}

// RecordKeys stores what the node was seen to do with keys. It can be repeated.
func (a *Activities) RecordKeys(ctx context.Context, in RecordKeysIn) (contract.AllocationFacts, error) {
	for _, f := range in.Fingerprints {
		if err := allocationdb.RecordKey(ctx, a.Store, in.AllocationID, f, in.Accepted); err != nil {
			return contract.AllocationFacts{}, fault.Internal(ctx, err)
		}
	}
	return contract.AllocationFacts{Done: true}, nil
}

// EndAccessIn is the input of EndAccess.
type EndAccessIn struct {
	contract.AllocationRef
	Access string `json:"access"` // lifecycle.AccessRevoked or lifecycle.AccessUnconfirmed
	Proof  string `json:"proof,omitempty"`
}

// EndAccess stores what is known of the tenant's access after a try to end it. Access that is
// revoked stays revoked. It can be repeated.
func (a *Activities) EndAccess(ctx context.Context, in EndAccessIn) (contract.AllocationFacts, error) {
	if in.Access != lifecycle.AccessRevoked && in.Access != lifecycle.AccessUnconfirmed {
		return contract.AllocationFacts{}, fault.New(lifecycle.FailInternal, "%q says nothing of an access", in.Access)
	}
	if err := allocationdb.EndAccess(ctx, a.Store, in.AllocationID, in.Access); err != nil {
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	}
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	note := "access " + row.Access
	if in.Proof != "" {
		note += ": " + in.Proof
	}
	return contract.AllocationFacts{Access: row.Access, Done: row.Access == in.Access, Note: note}, fault.Internal(ctx, err)
}

// StopUsage confirms that what the tenant is charged has an end: the end of his access. It fails
// with access_unconfirmed while that is not proven.
func (a *Activities) StopUsage(ctx context.Context, in contract.AllocationRef) (contract.AllocationFacts, error) {
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	if err != nil {
		return contract.AllocationFacts{}, fault.Internal(ctx, err)
	}
	if row.AccessEndedAt == nil {
		return contract.AllocationFacts{}, fault.New(lifecycle.FailAccessUnconfirmed, "nothing proves that the tenant's access has ended")
	}
	out, err := a.facts(ctx, row)
	out.Note = "nothing is charged after " + row.AccessEndedAt.UTC().Format(time.RFC3339)
	return out, err
}

// OccupyIn is the input of RecordOccupancy.
type OccupyIn struct {
	contract.AllocationRef
	State lifecycle.Occupancy `json:"state"`
}

// RecordOccupancy begins a row of the node's history. The same row again changes nothing.
func (a *Activities) RecordOccupancy(ctx context.Context, in OccupyIn) (contract.AllocationFacts, error) {
	err := allocationdb.EnterOccupancy(ctx, a.Store, in.NodeID, in.State, in.AllocationID, "")
	return contract.AllocationFacts{Done: err == nil}, fault.Internal(ctx, err)
}

// DescribeInstance gathers what programs of the tenant may read on the node. It holds no secret.
// Read-only.
func (a *Activities) DescribeInstance(ctx context.Context, in contract.AllocationRef) (spec.InstanceMetadata, error) {
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	if err != nil {
		return spec.InstanceMetadata{}, fault.Internal(ctx, err)
	}
	n, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return spec.InstanceMetadata{}, fault.Internal(ctx, err)
	}
	sku, err := a.Store.SKU(ctx, row.SKUID)
	if err != nil {
		return spec.InstanceMetadata{}, fault.Internal(ctx, err)
	}
	keys, err := allocationdb.ListKeys(ctx, a.Store, row.ID)
	if err != nil {
		return spec.InstanceMetadata{}, fault.Internal(ctx, err)
	}
	doc := spec.InstanceMetadata{
		InstanceID: row.ID, InstanceType: sku.Name, ProjectID: row.ProjectID, Hostname: n.Hostname, Tags: row.Tags, Region: n.SiteID,
		Zone: n.Labels["rack"], Group: n.Labels["group"],
	}
	inForce, _ := allocationdb.SplitKeys(keys)
	for _, k := range inForce {
		doc.PublicKeys = append(doc.PublicKeys, k.PublicKey)
	}
	addAddresses(&doc, n.IPAddresses, n.MACs)
	return doc, nil
}
