// Package nodestate holds the activities that read and change what the control plane stores of a
// node: its state, its allocation, its agent's identity, its network boot, its hardware and its
// secrets.
package nodestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	// SilentAfter is the age of the last heartbeat at which an agent counts as silent. Zero is ten
	// minutes.
	SilentAfter time.Duration
}

const silentAfter = 10 * time.Minute

func (a *Activities) silentAfter() time.Duration {
	if a.SilentAfter > 0 {
		return a.SilentAfter
	}
	return silentAfter
}

// ReadNodeFacts reads what the control plane knows of the node and of its agent. Read-only.
func (a *Activities) ReadNodeFacts(ctx context.Context, in contract.JobRef) (contract.DecommissionFacts, error) {
	n, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return contract.DecommissionFacts{}, fault.Internal(ctx, err)
	}
	out := contract.DecommissionFacts{
		Status: n.Status, Hostname: n.Hostname, Serial: n.Serial, MACs: n.MACs, Simulated: n.Simulated,
		TenantLeft: n.TenantLeftAt, SystemID: deref(n.MAASSystemID), Agent: contract.AgentNone,
	}
	if out.AllocationID, err = a.occupant(ctx, a.Store, n); err != nil {
		return out, fault.Internal(ctx, err)
	}
	if out.TenantRoot, err = a.Store.HoldsRootTenant(ctx, in.NodeID); err != nil {
		return out, fault.Internal(ctx, err)
	}
	if out.LastTenancy, err = a.Store.LastTenancy(ctx, in.NodeID); err != nil {
		return out, fault.Internal(ctx, err)
	}
	bmc, err := a.Store.BMCOfNode(ctx, in.NodeID)
	switch {
	case err == nil:
		out.BMCID = bmc.ID
	case !errors.Is(err, db.ErrNotFound):
		return out, fault.Internal(ctx, err)
	}
	if err := a.readDrives(ctx, in, &out); err != nil {
		return out, err
	}
	return out, a.readAgent(ctx, in.NodeID, &out)
}

// occupant returns the allocation that occupies the node. A pointer that no allocation stands
// behind counts too: until it is ended, somebody may be on the node.
func (a *Activities) occupant(ctx context.Context, c allocationdb.Conn, n db.Node) (string, error) {
	found, err := allocationdb.FindForNode(ctx, c, n.ID)
	if errors.Is(err, db.ErrNotFound) {
		return deref(n.AllocationID), nil
	}
	return found.ID, err
}

// readDrives adds the drives that the node is expected to have, and those that are protected. The
// drives that a job may erase were recorded when it started; before there is a job, the last report
// counts too.
func (a *Activities) readDrives(ctx context.Context, in contract.JobRef, out *contract.DecommissionFacts) error {
	read := a.Store.RecordedDrives
	if in.JobID == "" {
		read = a.Store.ExpectedDrives
	}
	expected, err := read(ctx, in.NodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	out.Drives, out.DrivesFrom = expected.Drives, string(expected.Source)
	out.ProtectSerials, err = a.Store.ProtectedSerials(ctx, in.NodeID)
	var invalid *spec.InvalidError
	if errors.As(err, &invalid) {
		return fault.New(lifecycle.FailConfiguration, "what protects drives of the node cannot be read, so that none may be erased: %s", invalid)
	}
	return fault.Internal(ctx, err)
}

// readAgent adds whether the node has an agent, and whether its heartbeats arrive.
func (a *Activities) readAgent(ctx context.Context, nodeID string, out *contract.DecommissionFacts) error {
	id, err := a.Store.AgentIdentity(ctx, nodeID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return nil
	case err != nil:
		return fault.Internal(ctx, err)
	}
	heartbeat, err := a.Store.LatestHeartbeat(ctx, nodeID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return fault.Internal(ctx, err)
	}
	if err == nil {
		at := heartbeat.ReceivedAt.UTC()
		out.LastHeartbeat, out.BootID, out.Disks = &at, heartbeat.BootID, disksOf(heartbeat.Report)
		out.HeldFor = deref(heartbeat.Allocation)
	}
	now, err := a.Store.Clock(ctx) // the clock that dates heartbeats
	if err != nil {
		return fault.Internal(ctx, err)
	}
	switch {
	case id.LockedAt != nil:
		out.Note = "the agent's identity is locked: " + id.LockedReason
	case out.LastHeartbeat == nil:
		out.Agent, out.Note = contract.AgentSilent, "the agent has enrolled and never sent a heartbeat"
	case now.Sub(*out.LastHeartbeat) > a.silentAfter():
		out.Agent, out.Note = contract.AgentSilent, "no heartbeat since "+out.LastHeartbeat.Format(time.RFC3339)
	default:
		out.Agent = contract.AgentAlive
	}
	return nil
}

// disksOf returns the disks of a report, none of them erased or verified.
func disksOf(r *spec.HealthReport) []lifecycle.DeviceResult {
	if r == nil {
		return nil
	}
	var out []lifecycle.DeviceResult
	for _, d := range r.Disks {
		out = append(out, lifecycle.DeviceResult{Kind: "disk", Name: d.Name, Serial: d.Serial, Model: d.Model, Method: lifecycle.SanitizeNone})
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func workflowID(ctx context.Context) string {
	if !activity.IsActivity(ctx) {
		return ""
	}
	return activity.GetInfo(ctx).WorkflowExecution.ID
}

// MoveIn is the input of MoveNode.
type MoveIn struct {
	contract.JobRef
	// From is the state that the node is moved from, "" for any. It stops an execution that was
	// taken for lost and continues when a later stage has moved the node.
	From  lifecycle.NodeStatus `json:"from,omitempty"`
	To    lifecycle.NodeStatus `json:"to"`
	Owner lifecycle.Owner      `json:"owner"`
	Proof lifecycle.Proof      `json:"proof,omitempty"`
	Note  string               `json:"note,omitempty"`
}

// MoveNode moves the node's state along one edge. It changes nothing when the node is in that state
// already. It fails with state_disagreement when the owner has no edge from the node's state.
func (a *Activities) MoveNode(ctx context.Context, in MoveIn) (contract.DecommissionFacts, error) {
	out := contract.DecommissionFacts{Status: in.To, Done: true}
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.NodeID)
		if err != nil || n.Status == in.To {
			return err
		}
		machine, _ := lifecycle.NodeMachine(n.Lifecycle)
		edge, ok := lifecycle.NodeEdge(n.Lifecycle, n.Status, in.To, in.Owner)
		if in.From != "" && n.Status != in.From {
			return &lifecycle.IllegalTransitionError{
				Resource: "node", From: string(n.Status), To: string(in.To),
				Reason: fmt.Sprintf("this step of the job moves it from %s", in.From), Allowed: machine.Reachable(n.Status),
			}
		}
		if !ok {
			return &lifecycle.IllegalTransitionError{
				Resource: "node", From: string(n.Status), To: string(in.To),
				Reason: fmt.Sprintf("%s has no such transition", in.Owner), Allowed: machine.Reachable(n.Status),
			}
		}
		_, err = tx.TransitionNode(ctx, in.NodeID, edge, in.Proof, db.Actor{Owner: in.Owner, Comment: in.Note, WorkflowID: workflowID(ctx)})
		return err
	})
	return out, fault.Internal(ctx, err)
}

// AllocationIn names an allocation.
type AllocationIn struct {
	contract.JobRef
	AllocationID string        `json:"allocation_id"`
	Poll         spec.Duration `json:"poll,omitempty"`
	// ByAgent and PoweredOff say how the tenant's access was ended.
	ByAgent    bool `json:"by_agent,omitempty"`
	PoweredOff bool `json:"powered_off,omitempty"`
}

// EndAllocation ends an allocation and sets that the node must be sanitized. A repetition reads the
// facts again, because an earlier answer may have been lost. It fails with state_disagreement when
// another allocation came meanwhile.
func (a *Activities) EndAllocation(ctx context.Context, in AllocationIn) (contract.DecommissionFacts, error) {
	proof := allocation.AccessProof{ByAgent: in.ByAgent, PoweredOff: in.PoweredOff}
	actor := db.Actor{Owner: lifecycle.OwnerDecommission, WorkflowID: workflowID(ctx)}
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Node(ctx, in.NodeID)
		if err != nil {
			return err
		}
		if now, err := a.occupant(ctx, tx, n); err != nil {
			return err
		} else if now != "" && now != in.AllocationID {
			return &lifecycle.IllegalTransitionError{
				Resource: allocationdb.Resource, From: now, To: string(lifecycle.AllocationReleased), Reason: "another allocation is on the node than " + in.AllocationID,
			}
		}
		return allocation.EndForNode(ctx, tx, in.NodeID, lifecycle.ReleaseDecommission, proof, actor)
	})
	if err != nil {
		return contract.DecommissionFacts{}, fault.Internal(ctx, err)
	}
	out, err := a.ReadNodeFacts(ctx, in.JobRef)
	out.Note = "allocation " + in.AllocationID + " was ended"
	return out, err
}
