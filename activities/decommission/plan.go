package decommission

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// LeavingLook asks what is known of a node that may leave. The reference is a
// field and not embedded, so that a look is no entry on the node's timeline.
type LeavingLook struct {
	In contract.JobRef `json:"in"`
}

// LeavingPlan is what is known of it.
type LeavingPlan struct {
	Facts contract.LeavingFacts `json:"facts"`
	// Disks and GPUs are those of the agent's last report, "name serial"; the
	// system's disk is not among them.
	Disks []string `json:"disks,omitempty"`
	GPUs  int      `json:"gpus,omitempty"`
	// Deletes and Keeps are what cleanup_secrets would delete and leave.
	Deletes []string `json:"deletes,omitempty"`
	Keeps   []string `json:"keeps,omitempty"`
}

// PlanLeaving reads what a plan of a decommission needs of the database.
// Read-only.
func (a *Activities) PlanLeaving(ctx context.Context, l LeavingLook) (LeavingPlan, error) {
	var out LeavingPlan
	var err error
	if out.Facts, err = a.LookAtLeaving(ctx, l.In); err != nil {
		return out, err
	}
	beat, err := a.Store.LatestHeartbeat(ctx, l.In.NodeID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return out, fault.Internal(ctx, err)
	}
	if err == nil && beat.Report != nil {
		out.GPUs = len(beat.Report.GPUs)
		for _, d := range beat.Report.Disks {
			if !d.Boot {
				out.Disks = append(out.Disks, strings.TrimSpace(d.Name+" "+d.Serial))
			}
		}
	}
	bmc, err := a.Store.BMCOfNode(ctx, l.In.NodeID)
	if errors.Is(err, db.ErrNotFound) {
		return out, nil
	}
	if err == nil {
		out.Deletes, out.Keeps, err = a.logins(ctx, bmc)
	}
	return out, fault.Internal(ctx, err)
}
