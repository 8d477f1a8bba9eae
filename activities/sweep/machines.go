package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
)

// The limits of one look at machines.
const (
	machinesBatch = 500
	machinesPart  = 3 * time.Second
)

// sweepMachines brings machines up to the nodes that they are linked to: conditions and phase. Each
// has a transaction of its own and is read again under its lock. An error about one does not stop
// the others.
func (a *Activities) sweepMachines(ctx context.Context, r *StartsReport) error {
	ctx, cancel := context.WithTimeout(ctx, machinesPart)
	defer cancel()
	now, err := a.clock(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for after := ""; ; {
		page, err := machinesdb.ListLinked(ctx, a.Store, after, machinesBatch)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, l := range page {
			after = l.Machine.ID
			if !machines.IsBehindNode(l, now) {
				continue
			}
			err := a.Store.Tx(ctx, func(tx *db.Tx) error { return machines.FollowNode(ctx, tx, l.Machine.ID, now, actor) })
			if err != nil {
				errs = append(errs, fmt.Errorf("machine %s: %w", l.Machine.ID, err))
				continue
			}
			r.Machines++
		}
		if len(page) < machinesBatch {
			return errors.Join(errs...)
		}
	}
}
