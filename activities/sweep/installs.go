package sweep

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The limits of one look at installations; the next pass goes on.
const (
	installsBatch = 200
	installsPart  = 3 * time.Second
)

// InstallsReport counts the installations of PXE nodes that the pass ended.
type InstallsReport struct {
	Failed int  `json:"failed,omitempty"` // attempts that were silent past their deadline
	More   bool `json:"more,omitempty"`
}

// SweepInstalls counts each installation attempt without a report past its deadline as failed. Each
// node is read again under its lock. The activity may be repeated: a failed attempt has a new
// deadline, or none.
func (a *Activities) SweepInstalls(ctx context.Context) (InstallsReport, error) {
	ctx, cancel := context.WithTimeout(ctx, installsPart)
	defer cancel()
	var r InstallsReport
	now, err := a.clock(ctx)
	if err != nil {
		return r, err
	}
	ids, err := a.Store.SilentInstalls(ctx, a.ahead(), installsBatch)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	r.More = len(ids) == installsBatch
	for _, id := range ids {
		failed, err := a.Store.FailSilentInstall(ctx, id, now, db.Actor{Owner: lifecycle.OwnerSystem, ID: actor.ID})
		if err != nil {
			return r, fault.Internal(ctx, err)
		}
		if failed {
			r.Failed++
			a.Log.WarnContext(ctx, "sweeper: an installation was silent past its deadline", "node", id)
		}
	}
	return r, nil
}

func (a *Activities) ahead() time.Duration {
	if a.Ahead == nil {
		return 0
	}
	return a.Ahead()
}
