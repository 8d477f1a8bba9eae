package instance

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// maxAsks is how often a server is ordered whose order got no answer, each time after the lists had
// the time to show it.
const maxAsks = 2

// orderLimit is how long the requests of one order may take.
const orderLimit = time.Minute

// CreateServer makes the server of an instance, and never a second one. That it is ordered is
// stored before it is. After an order without a known outcome the provider's lists are read until
// they had the time to show the server.
func (a *Activities) CreateServer(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	for t.i.ServerID == "" {
		found, err := t.findServer(ctx)
		if err != nil {
			return contract.InstanceFacts{}, err
		}
		if found == nil {
			if found, err = t.orderServer(ctx); err != nil {
				return contract.InstanceFacts{}, err
			}
		}
		if found == nil {
			continue // the outcome is not known: look again
		}
		if err := a.storeServer(ctx, t, *found); err != nil {
			return contract.InstanceFacts{}, err
		}
	}
	return t.facts("server %s", t.i.ServerID), nil
}

// findServer returns the server with the tag of the instance, the oldest of several. Where one was
// ordered it looks until the lists had the time to show it. It returns nil when there is none.
func (t *target) findServer(ctx context.Context) (*providers.CloudServer, error) {
	for {
		found, err := t.p.Cloud.Find(ctx, t.i.Zone, t.i.ID)
		if err != nil && !passes(err) || err != nil && t.i.ServerAsks == 0 {
			return nil, fault.Cloud(ctx, err)
		}
		if len(found) > 0 {
			return &found[0], nil
		}
		if err == nil && t.i.ServerID != "" && t.i.ServerAsks <= 1 {
			return nil, nil // one was ordered, and its id is known: the lists can hide no other
		}
		now, clockErr := t.a.Store.Clock(ctx)
		if clockErr != nil {
			return nil, fault.Internal(ctx, clockErr)
		}
		if t.i.ServerAskedAt == nil || err == nil && now.After(t.i.ServerAskedAt.Add(t.lag())) {
			return nil, nil
		}
		if err := t.a.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// orderServer orders a server. It returns nil when the outcome is not known.
func (t *target) orderServer(ctx context.Context) (*providers.CloudServer, error) {
	if t.i.ServerAsks >= maxAsks {
		if _, err := t.storeAsk(ctx, 0, 0); err != nil {
			return nil, err
		}
		return nil, fault.New(lifecycle.FailCloudUncertain, "the server was ordered %d times without an answer, and %s lists none", maxAsks, t.i.Provider)
	}
	asks, limit := t.i.ServerAsks+1, min(orderLimit, t.lag())
	// The time begins before it is stored: a slow worker sends nothing after the stored time.
	octx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if stored, err := t.storeAsk(ctx, asks, limit); err != nil || !stored {
		return nil, err
	}
	i := t.i
	if i.Status != lifecycle.InstanceProvisioning {
		return nil, fault.New(lifecycle.FailConfiguration, "the instance is %s and gets no server", i.Status)
	}
	s, err := t.p.Cloud.Create(octx, providers.CloudCreate{Zone: i.Zone, InstanceID: i.ID, Type: i.Type, Image: i.Image, Sources: t.p.Sources})
	switch providers.KindOf(err) { //nolint:exhaustive // of every other error nothing was made
	case "":
		if err == nil {
			return &s, nil
		}
		fallthrough // an error that has no type says nothing of what was made
	case providers.KindUncertain:
		_, err = t.storeAsk(context.WithoutCancel(ctx), asks, 0) // the lists may lag from now
		return nil, err
	}
	if _, err := t.storeAsk(context.WithoutCancel(ctx), asks-1, 0); err != nil {
		return nil, err
	}
	return nil, fault.Cloud(ctx, err)
}

// storeAsk stores how often a server was ordered, and that the last order is sent within the given
// time, and reads the instance again. Where another execution of the activity has stored something
// since, nothing is stored: the other one may have stored the same number, and orders.
func (t *target) storeAsk(ctx context.Context, asks int, within time.Duration) (stored bool, err error) {
	err = instancedb.StoreServerAsk(ctx, t.a.Store, t.i, asks, within)
	stored = err == nil
	if stored || errors.Is(err, db.ErrNotFound) {
		t.i, err = instancedb.Get(ctx, t.a.Store, t.i.ID)
	}
	return stored, fault.Internal(ctx, err)
}

// lag is how long the provider's lists may not show what was made.
func (t *target) lag() time.Duration {
	return cmp.Or(t.p.Lag, defaultLag)
}

// storeServer stores a server and its root volume, which gets our tag later. The security group has
// it from the beginning, and is found by it: the one that a server has now may be another one.
func (a *Activities) storeServer(ctx context.Context, t *target, s providers.CloudServer) error {
	all := []providers.CloudResource{{Kind: providers.CloudKindServer, ID: s.ID, Name: s.Name}}
	for _, v := range s.Volumes {
		all = append(all, providers.CloudResource{Kind: providers.CloudKindVolume, ID: v})
	}
	created := s.CreatedAt
	if created.IsZero() {
		created = time.Now()
	}
	err := instancedb.StoreServer(ctx, a.Store, t.i.ID, s.ID, created, stored(all))
	if err == nil {
		t.i, err = instancedb.Get(ctx, a.Store, t.i.ID)
	}
	return fault.Internal(ctx, err)
}

// PersistServer stores what the provider has made, as it says it now.
func (a *Activities) PersistServer(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	s, err := t.p.Cloud.Server(ctx, t.i.Zone, t.i.ServerID)
	if err != nil {
		return contract.InstanceFacts{}, fault.Cloud(ctx, err)
	}
	if err := a.storeServer(ctx, t, s); err != nil {
		return contract.InstanceFacts{}, err
	}
	return t.facts("server %s with %d volumes", s.ID, len(s.Volumes)), nil
}

// ClaimVolumes tags the volumes of the server.
func (a *Activities) ClaimVolumes(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	claimed, err := t.p.Cloud.ClaimVolumes(ctx, t.ref())
	if err != nil {
		return contract.InstanceFacts{}, fault.Cloud(ctx, err)
	}
	return t.facts("%d volumes are tagged", len(claimed)), nil
}

// GrowVolume grows the root volume, and waits until the provider says the size.
func (a *Activities) GrowVolume(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.until(ctx, time.Time{}, lifecycle.FailStageDeadline, "the size of the volume", func() (bool, error) {
		done, err := t.p.Cloud.GrowVolume(ctx, t.ref(), rootBytes)
		return done, cloud(ctx, err)
	})
	return t.facts("the root volume has 200 GB"), err
}

// BeginBoot moves an instance from provisioning to booting. An instance that is further, or is to
// end, stays.
func (a *Activities) BeginBoot(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t := &target{a: a}
	err := a.Store.Tx(ctx, func(tx *db.Tx) error {
		i, err := instancedb.Lock(ctx, tx, ref.ResourceID)
		if err == nil && i.Status == lifecycle.InstanceProvisioning {
			i, err = instancedb.MoveTo(ctx, tx, i, instancedb.Move{
				To: lifecycle.InstanceBoot, Actor: db.Actor{Owner: lifecycle.OwnerJob, Comment: "the server exists", WorkflowID: contract.JobWorkflowID(contract.KindInstanceCreate, ref.JobID)},
			})
		}
		t.i = i
		return err
	})
	return t.facts("the instance is %s", t.i.Status), fault.Internal(ctx, err)
}
