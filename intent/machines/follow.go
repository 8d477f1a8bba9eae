package machines

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// bmcFresh is how old the last question to a BMC may be for its answer to count.
const bmcFresh = 2 * time.Hour

// followed returns the conditions of a machine after its node was read, and the phase that follows
// from the node.
func followed(l machinesdb.Linked, now time.Time) (lifecycle.Conditions, lifecycle.MachinePhase) {
	c := l.Machine.Conditions.ObserveNode(lifecycle.NodeFacts{
		Status:   l.NodeStatus,
		BMCKnown: l.BMCProbedAt != nil && now.Sub(*l.BMCProbedAt) <= bmcFresh, BMCAnswers: l.BMCAnswers, CriticalDrift: l.CriticalDrift, JobParked: l.JobParked,
	}, now)
	inCluster := c.Holds(lifecycle.InCustomerClusterCondition) && c.Known(lifecycle.InCustomerClusterCondition)
	return c, lifecycle.MachinePhaseOfNode(l.NodeStatus, inCluster)
}

// IsBehindNode reports whether FollowNode would change the machine.
func IsBehindNode(l machinesdb.Linked, now time.Time) bool {
	conditions, phase := followed(l, now)
	return !slices.Equal(conditions, l.Machine.Conditions) || phase != l.Machine.NodePhase && l.Machine.ActiveRunID == nil
}

// FollowNode brings the conditions of a machine up to its node, and its phase when the node gives
// another one than before: what an operator or a run has set since then stays. The first look after
// the link only notes the phase, unless the node was deleted. While a run is active the phase waits
// for its end. RMA is left for RETIRED alone, since an operator set it.
func FollowNode(ctx context.Context, tx *db.Tx, id string, now time.Time, actor db.Actor) error {
	if _, err := machinesdb.Lock(ctx, tx, id); err != nil {
		return err
	}
	l, err := machinesdb.GetLinked(ctx, tx, id)
	if err != nil || !IsBehindNode(l, now) {
		return ignoreNotFound(err)
	}
	m := l.Machine
	conditions, phase := followed(l, now)
	given := m.NodePhase
	if m.ActiveRunID == nil && phase != given {
		// The first look at a node notes what it gives: the phase of the machine was set by an
		// operator or a run until then.
		follows := given != "" || phase == lifecycle.MachineRetired
		given = phase
		if follows && m.Status != phase && (m.Status != lifecycle.MachineRMA || phase == lifecycle.MachineRetired) {
			t, err := lifecycle.MachinePhases.Between(m.Status, phase)
			if err != nil {
				return err
			}
			var proof lifecycle.Proof
			if phase == lifecycle.MachineInService {
				proof = lifecycle.Proof{lifecycle.NeedInCluster}
			}
			actor.Comment = "node " + *m.NodeID + " is " + string(l.NodeStatus)
			if m, err = machinesdb.MoveTo(ctx, tx, m, t, proof, "", actor); err != nil {
				return err
			}
		}
	}
	return machinesdb.SetFollowed(ctx, tx, m.ID, conditions, given)
}
