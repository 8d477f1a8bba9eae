package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// SetPXEState moves a PXE node to a state that an operator chose (docs/pxe.md). force lets an
// installation that failed for good begin again, with its counters at 0, and a state that a live
// job works towards be set without it: else *ConflictError names the job.
// *lifecycle.IllegalTransitionError says what is allowed or missing, ErrStale that the node has
// another version.
func (tx *Tx) SetPXEState(ctx context.Context, id string, version int64, to lifecycle.NodeStatus, force bool, a Actor) (Node, error) {
	n, err := tx.LockNode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	if n.Version != version {
		return Node{}, fmt.Errorf("node %s: %w", id, ErrStale)
	}
	p, err := tx.PXENode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	may := func(t lifecycle.Transition[lifecycle.NodeStatus]) bool {
		return t.To == to && slices.Contains(t.From, n.Status) && slices.Contains(t.Owners, a.Owner)
	}
	i := slices.IndexFunc(lifecycle.NodePXE.Transitions, may)
	if i < 0 {
		return Node{}, &lifecycle.IllegalTransitionError{
			Resource: lifecycle.NodePXE.Resource, From: string(n.Status), To: string(to), Reason: "that is no state that " + string(a.Owner) + " may set from here",
			Allowed: lifecycle.NodePXE.ReachableBy(n.Status, a.Owner),
		}
	}
	var proof lifecycle.Proof
	if p.InstallWorkflowID != nil {
		proof = append(proof, lifecycle.NeedWorkflow)
	}
	if force {
		proof = append(proof, lifecycle.NeedForced)
	}
	t := lifecycle.NodePXE.Transitions[i]
	if err := lifecycle.NodePXE.Check(t, n.Status, a.Owner, proof); err != nil {
		return Node{}, err
	}
	if err := tx.noOperation(ctx, id, force); err != nil {
		return Node{}, err
	}
	if to == lifecycle.NodePending {
		if n, err = tx.setAttempts(ctx, n, 0, n.LastInstallError); err != nil {
			return Node{}, err
		}
	}
	if to == lifecycle.NodeRetired {
		if err := tx.letGoOfBMC(ctx, id, a); err != nil {
			return Node{}, err
		}
	}
	return tx.moveNode(ctx, n, t, only(proof, t.Needs), a)
}

// noOperation returns a *ConflictError when a job works on the node, unless force is set.
func (tx *Tx) noOperation(ctx context.Context, nodeID string, force bool) error {
	j, err := tx.LiveOperation(ctx, nodeID)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && force:
		return nil
	case err != nil:
		return err
	}
	return &ConflictError{What: "live_job", Existing: j.ID, Message: "job " + j.ID + " works on the node; cancel it first, or set the state by force, which the job then finds out of its hands"}
}

// only keeps what the transition asks for, so that the audit names no more.
func only(proof lifecycle.Proof, needs []lifecycle.Need) lifecycle.Proof {
	return slices.DeleteFunc(slices.Clone(proof), func(n lifecycle.Need) bool { return !slices.Contains(needs, n) })
}

// promote makes an installed node active where its device group says so.
func (tx *Tx) promote(ctx context.Context, n Node) (Node, error) {
	name := n.Labels[lifecycle.LabelDeviceGroup]
	if name == "" {
		return n, nil
	}
	g, err := tx.DeviceGroup(ctx, name)
	if errors.Is(err, ErrNotFound) || err == nil && !g.AutoPromote {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	return tx.moveNode(ctx, n, lifecycle.PXEVerify, nil, Actor{
		Owner: lifecycle.OwnerSystem, Comment: "device group " + name + " promotes installed nodes by itself", Metadata: map[string]any{"device_group": name},
	})
}
