package relay

import (
	"context"
	"sync"

	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
)

// wakes tells the requests that have waited longest of the nodes that became free, one for each
// node: all that wait would ask for the same node at once. A signal that is lost is not sent again,
// since each request also looks by itself.
func (r *Relay) wakes(ctx context.Context) (int, error) {
	jobs, more, err := allocationdb.TakeWakes(ctx, r.Store, claimSize)
	if err != nil {
		return 0, err
	}
	var all sync.WaitGroup
	for _, id := range jobs {
		all.Go(func() {
			if err := r.Claims.WakeClaim(ctx, id); err != nil {
				r.Log.WarnContext(ctx, "a request that waits was not told of a free node, and looks later by itself", "job", id, "error", err)
			}
		})
	}
	all.Wait()
	if !more {
		return 0, nil
	}
	return claimSize, nil
}
