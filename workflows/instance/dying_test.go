package instance_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// errDied is what the engine sees of a worker that died: an activity that gave no answer.
var errDied = errors.New("the worker died")

// dying is a cloud whose worker dies once in each kind of order: after it took effect, and before
// its answer was read.
type dying struct {
	providers.Cloud

	mu   sync.Mutex
	died map[string]bool
}

// dies stops the activity as the death of its worker does: nothing after the order is done.
func (d *dying) dies(order string, err error) {
	if err != nil {
		return
	}
	d.mu.Lock()
	first := !d.died[order]
	d.died[order] = true
	d.mu.Unlock()
	if first {
		panic(errDied)
	}
}

func (d *dying) Create(ctx context.Context, in providers.CloudCreate) (providers.CloudServer, error) {
	s, err := d.Cloud.Create(ctx, in)
	d.dies("create", err)
	return s, err
}

func (d *dying) ClaimVolumes(ctx context.Context, t providers.CloudTarget) ([]providers.CloudResource, error) {
	all, err := d.Cloud.ClaimVolumes(ctx, t)
	d.dies("claim", err)
	return all, err
}

func (d *dying) GrowVolume(ctx context.Context, t providers.CloudTarget, bytes int64) (bool, error) {
	done, err := d.Cloud.GrowVolume(ctx, t, bytes)
	d.dies("grow", err)
	return done, err
}

func (d *dying) SetUserData(ctx context.Context, t providers.CloudTarget, data providers.Secret) error {
	err := d.Cloud.SetUserData(ctx, t, data)
	d.dies("user data", err)
	return err
}

func (d *dying) Start(ctx context.Context, t providers.CloudTarget) error {
	err := d.Cloud.Start(ctx, t)
	d.dies("start", err)
	return err
}

func (d *dying) Stop(ctx context.Context, t providers.CloudTarget) error {
	err := d.Cloud.Stop(ctx, t)
	d.dies("stop", err)
	return err
}

func (d *dying) DeleteServer(ctx context.Context, t providers.CloudTarget) (bool, error) {
	gone, err := d.Cloud.DeleteServer(ctx, t)
	d.dies("delete server", err)
	return gone, err
}

func (d *dying) Delete(ctx context.Context, r providers.CloudResource) (bool, error) {
	gone, err := d.Cloud.Delete(ctx, r)
	d.dies("delete "+string(r.Kind), err)
	return gone, err
}

// TestInstance_WorkerDiesInEachOrder: with a list that lags a minute and an answer to the order of
// the server that nobody read, there is one server, the instance becomes ready, and its end leaves
// nothing.
func TestInstance_WorkerDiesInEachOrder(t *testing.T) {
	t.Parallel()
	d := &dying{died: map[string]bool{}}
	r := newSimRigWith(t, cloudsim.Options{}, func(p *instanceact.Provider) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.Cloud, p.Cloud = p.Cloud, d
	})
	r.fault(cloudsim.Fault{Name: cloudsim.FaultListLag, Params: map[string]string{"delay": "60s"}})
	require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
	require.Equal(t, 1, r.sim.Counts().ServersMade)
	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
	require.Empty(t, r.sim.Billed())
	require.Equal(t, 1, r.sim.Counts().MostServers)
	require.Len(t, d.died, 9, "each order was met: %v", d.died)
}
