package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// addNode returns the capabilities that a run on a machine has: those of its provider, and those of
// the node that it is linked to. Power, next boot and return need the BMC of the node, an
// installation its machine in MAAS too, and what MAAS installs it by. A machine without a node has
// power and next boot by a BMC of its own.
func addNode(ctx context.Context, tx *db.Tx, own []runplan.Capability, m machinesdb.Machine) ([]runplan.Capability, error) {
	offered := slices.Clone(own)
	if m.BMCID != nil && len(own) > 0 {
		return addCapabilities(offered, runplan.CapPowerControl, runplan.CapNetboot), nil
	}
	if m.NodeID == nil || len(own) == 0 {
		return offered, nil
	}
	if _, err := tx.BMCOfNode(ctx, *m.NodeID); err != nil {
		return offered, ignoreNotFound(err)
	}
	node, err := tx.Node(ctx, *m.NodeID)
	if err != nil {
		return offered, err
	}
	of := []runplan.Capability{runplan.CapPowerControl, runplan.CapNetboot, runplan.CapReturn}
	if node.Lifecycle == lifecycle.NodeMAAS.Lifecycle && node.MAASSystemID != nil && node.ProfileID != nil && node.SKUID != nil {
		of = append(of, runplan.CapImaging)
	}
	return addCapabilities(offered, of...), nil
}

// addCapabilities returns the capabilities of both lists, each once.
func addCapabilities(offered []runplan.Capability, more ...runplan.Capability) []runplan.Capability {
	for _, c := range more {
		if !slices.Contains(offered, c) {
			offered = append(offered, c)
		}
	}
	return offered
}

// takesNode reports whether a plan takes the node of its machine out of service: it is installed
// again, or leaves, and the provider does not do that by itself.
func takesNode(p runplan.Plan, own []runplan.Capability) bool {
	return slices.ContainsFunc(p.Steps, func(s runplan.Step) bool {
		return (s.Repave != nil || s.RMA != nil) && !slices.Contains(own, s.Needs())
	})
}

// takenFrom returns the state that a plan takes a node from. A node that is retired already stays
// so: it may leave, and is not installed again. "" is that.
func takenFrom(ctx context.Context, tx *db.Tx, nodeID string, p runplan.Plan) (lifecycle.NodeStatus, error) {
	n, err := tx.LockNode(ctx, nodeID)
	if err != nil {
		return "", err
	}
	repaves := slices.ContainsFunc(p.Steps, func(s runplan.Step) bool { return s.Repave != nil })
	switch {
	case slices.Contains(lifecycle.NodeDrain.From, n.Status):
		return n.Status, nil
	case n.Status == lifecycle.NodeRetired && !repaves:
		return "", nil
	}
	return "", &intent.Refusal{Kind: intent.ActionRefused, Existing: n.ID, Detail: fmt.Sprintf("node %s of the machine is %s; the plan is for a node that is %s", n.Hostname, n.Status, lifecycle.OneOf(lifecycle.NodeDrain.From))}
}

// takeNode has the node of a run that is accepted take no new work. The node's history names the
// run, and the operator or customer who has started it.
func takeNode(ctx context.Context, tx *db.Tx, nodeID, runID string, actor db.Actor) error {
	if err := tx.FreezeDrives(ctx, nodeID); err != nil {
		return err
	}
	by := db.Actor{Owner: actor.Owner, ID: actor.ID, Comment: "run " + runID}
	_, err := tx.TransitionNode(ctx, nodeID, lifecycle.NodeDrain, lifecycle.Proof{lifecycle.NeedOwningJob}, by)
	return err
}

// giveNodeBack takes the node back from a run that ends before it began.
func giveNodeBack(ctx context.Context, tx *db.Tx, job db.Job, by db.Actor) error {
	var in contract.MachineRunInput
	if err := json.Unmarshal(job.Input, &in); err != nil {
		return fmt.Errorf("request of job %s: %w", job.ID, err)
	}
	if job.NodeID == nil || in.NodeFrom == "" {
		return nil
	}
	by.Owner = lifecycle.OwnerDecommission
	return tx.LeaveUnstarted(ctx, *job.NodeID, in.NodeFrom, by)
}
