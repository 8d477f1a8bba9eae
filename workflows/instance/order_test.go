package instance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// TestOrder_OfTwoExecutions: of two that want to order at once, one does.
func TestOrder_OfTwoExecutions(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.read()
	require.NoError(t, instancedb.StoreServerAsk(t.Context(), r.store, i, 1, time.Minute))
	require.ErrorIs(t, instancedb.StoreServerAsk(t.Context(), r.store, i, 1, time.Minute), db.ErrNotFound)
	now, err := r.store.Clock(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, now.Add(time.Minute), *r.read().ServerAskedAt, 10*time.Second, "the order may be sent until then")
}

// deadlines is a provider that notes until when each order may be sent.
type deadlines struct {
	providers.Cloud
	of []time.Time
}

func (d *deadlines) Create(ctx context.Context, in providers.CloudCreate) (providers.CloudServer, error) {
	at, _ := ctx.Deadline()
	d.of = append(d.of, at)
	return d.Cloud.Create(ctx, in)
}

// TestOrder_EndsInItsTime: an order is sent no later than the time that is stored of it, however
// slow the worker is between the two: the lists are read for a set time from then on.
func TestOrder_EndsInItsTime(t *testing.T) {
	t.Parallel()
	d := &deadlines{}
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { d.Cloud, p.Cloud, p.Lag = p.Cloud, d, time.Minute })
	_, err := r.acts.CreateServer(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: r.row.ID})
	require.NoError(t, err)
	require.Len(t, d.of, 1)
	require.False(t, d.of[0].After(*r.read().ServerAskedAt), "%s is after %s", d.of[0], r.read().ServerAskedAt)
}

// together has two executions look for the server before one of them orders it.
type together struct {
	providers.Cloud
	looks  atomic.Int32
	looked sync.WaitGroup
}

// Find implements providers.Cloud.
func (c *together) Find(ctx context.Context, zone, id string) ([]providers.CloudServer, error) {
	if c.looks.Add(1) <= 2 {
		c.looked.Done()
		c.looked.Wait()
	}
	return c.Cloud.Find(ctx, zone, id)
}

// TestOrder_OnlyOneOfTwoOrders: of two executions at once that have both found no server, one
// orders it.
func TestOrder_OnlyOneOfTwoOrders(t *testing.T) {
	t.Parallel()
	c := &together{}
	c.looked.Add(2)
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) { c.Cloud, p.Cloud, p.Lag = p.Cloud, c, time.Minute })
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			_, err := r.acts.CreateServer(t.Context(), contract.JobRef{JobID: r.job.ID, ResourceID: r.row.ID})
			return err
		})
	}
	require.NoError(t, both.Wait())
	require.Equal(t, 1, r.sim.Counts().ServersMade)
}
