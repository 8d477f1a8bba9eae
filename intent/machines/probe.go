package machines

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// StoreProbes brings the conditions of a machine up to what its probes have found. probed is the
// machine as it was claimed for them. The facts are dropped when the machine has been claimed again
// since, when the way to reach it has changed, and when it is linked to a node by now or RETIRED.
func StoreProbes(ctx context.Context, tx *db.Tx, probed machinesdb.Machine, facts lifecycle.ProbeFacts, now time.Time) error {
	m, err := machinesdb.Lock(ctx, tx, probed.ID)
	if err != nil || m.NodeID != nil || m.Status == lifecycle.MachineRetired || !m.NextProbeAt.Equal(probed.NextProbeAt) {
		return err
	}
	conditions := m.Conditions.ObserveProbes(facts, now)
	if slices.Equal(conditions, m.Conditions) {
		return nil
	}
	return machinesdb.SetFollowed(ctx, tx, m.ID, conditions, m.NodePhase)
}
