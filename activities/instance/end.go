package instance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// drainPause is how soon a drain that still waits is looked at again.
const drainPause = 10 * time.Second

// DrainInstance looks whether the worker says that it has no work, or the time that the request
// allows is over, and then moves the instance to terminating. Before that it returns the error that
// has Temporal call it again: a drain of a day holds no worker.
func (a *Activities) DrainInstance(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t := &target{a: a}
	i, err := instancedb.Get(ctx, a.Store, ref.ResourceID)
	if err != nil {
		return contract.InstanceFacts{}, fault.Internal(ctx, err)
	}
	now, err := a.Store.Clock(ctx)
	if err != nil {
		return contract.InstanceFacts{}, fault.Internal(ctx, err)
	}
	idle := hasHeartbeat(i, now) && i.Heartbeat.Active == 0 && i.HeartbeatAt.After(i.UpdatedAt)
	late := i.DrainSeconds == 0 || !now.Before(i.UpdatedAt.Add(time.Duration(i.DrainSeconds)*time.Second))
	if i.Status == lifecycle.InstanceDraining && !late && !idle {
		return contract.InstanceFacts{}, temporal.NewApplicationErrorWithOptions("the worker has not ended its work yet", string(lifecycle.FailStageDeadline),
			temporal.ApplicationErrorOptions{NextRetryDelay: drainPause, Category: temporal.ApplicationErrorCategoryBenign})
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error {
		i, err := instancedb.Lock(ctx, tx, ref.ResourceID)
		if err == nil && i.Status == lifecycle.InstanceDraining {
			i, err = instancedb.MoveTo(ctx, tx, i, instancedb.Move{To: lifecycle.InstanceTerminate, Actor: db.Actor{
				Owner: lifecycle.OwnerJob, Comment: "its work has ended", WorkflowID: contract.JobWorkflowID(contract.KindInstanceTerminate, ref.JobID),
			}})
		}
		t.i = i
		return err
	})
	return t.facts("the instance is %s", t.i.Status), fault.Internal(ctx, err)
}

// servers returns the ids of every server of an instance: the stored one, and every one that has
// its tag. Where a server was ordered without a known outcome it looks until the lists had the time
// to show it.
func (t *target) servers(ctx context.Context) ([]string, error) {
	found, err := t.findServer(ctx)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	if t.i.ServerID != "" {
		ids = append(ids, t.i.ServerID)
	}
	if found == nil {
		return ids, nil
	}
	all, err := t.p.Cloud.Find(ctx, t.i.Zone, t.i.ID)
	if err != nil {
		return nil, fault.Cloud(ctx, err)
	}
	for _, s := range all {
		if s.ID != t.i.ServerID {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}

// eachServer does something with every server of an instance until it is done.
func (t *target) eachServer(ctx context.Context, what string, look func(providers.CloudTarget) (bool, error)) error {
	ids, err := t.servers(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		ref := t.ref()
		ref.ServerID = id
		err := t.until(ctx, time.Time{}, lifecycle.FailCloudUnavailable, what, func() (bool, error) {
			done, err := look(ref)
			return done, cloud(ctx, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// StopServer stops every server of an instance. A server that is gone, or was never made, counts as
// stopped.
func (a *Activities) StopServer(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.eachServer(ctx, "the end of the server", func(at providers.CloudTarget) (bool, error) {
		s, err := t.p.Cloud.Server(ctx, at.Zone, at.ServerID)
		if providers.IsKind(err, providers.KindNotFound) || err == nil && s.State == providers.CloudStopped {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		return false, t.p.Cloud.Stop(ctx, at)
	})
	return t.facts("the server is stopped"), err
}

// DeleteServer deletes every server of an instance. Its volumes are tagged first: without the
// server they could not be told from anybody's.
func (a *Activities) DeleteServer(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.eachServer(ctx, "the deletion of the server", func(at providers.CloudTarget) (bool, error) {
		if _, err := t.p.Cloud.ClaimVolumes(ctx, at); err != nil && !providers.IsKind(err, providers.KindNotFound) {
			return false, err
		}
		return t.p.Cloud.DeleteServer(ctx, at)
	})
	return t.facts("the server is deleted"), err
}

// left returns what is at the provider of an instance: what has its tag, and what was stored of it.
func (t *target) left(ctx context.Context) ([]providers.CloudResource, error) {
	all, err := t.p.Cloud.List(ctx, t.i.Zone, t.i.ID)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range all {
		seen[r.ID] = true
	}
	for _, r := range t.i.Resources {
		if !seen[r.ID] && r.Kind != string(providers.CloudKindServer) {
			all = append(all, providers.CloudResource{Kind: providers.CloudKind(r.Kind), ID: r.ID, Zone: t.i.Zone, Name: r.Name, InstanceID: t.i.ID})
		}
	}
	return all, nil
}

// DeleteResources deletes what a provider keeps of a deleted server, and the credentials of the
// worker.
func (a *Activities) DeleteResources(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	err = t.until(ctx, time.Time{}, lifecycle.FailCloudUnavailable, "the deletion of what is left", func() (bool, error) {
		all, err := t.left(ctx)
		if err != nil {
			return false, cloud(ctx, err)
		}
		done := true
		for _, r := range all {
			if r.Kind == providers.CloudKindServer {
				return false, nil // it is being deleted
			}
			gone, err := t.p.Cloud.Delete(ctx, r)
			if err != nil {
				return false, cloud(ctx, err)
			}
			done = done && gone
		}
		return done, nil
	})
	if err == nil {
		err = fault.Secret(ctx, a.Secrets.Delete(ctx, secretName(t.i.ID)))
	}
	return t.facts("nothing is left at the provider"), err
}

// ReadLeft names what is left of an instance at the provider. Note is "" when that is nothing. A
// list may still show what was deleted just now: it is read again until it had the time to show the
// deletion.
func (a *Activities) ReadLeft(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	f := t.facts("")
	began, err := a.Store.Clock(ctx)
	if err != nil {
		return f, fault.Internal(ctx, err)
	}
	for {
		names, err := t.leftNames(ctx)
		if err != nil {
			return f, err
		}
		now, err := a.Store.Clock(ctx)
		if err != nil {
			return f, fault.Internal(ctx, err)
		}
		if len(names) == 0 || now.After(began.Add(t.lag())) {
			f.Note, f.Done = strings.Join(names, ", "), len(names) == 0
			return f, nil
		}
		if err := a.pause(ctx); err != nil {
			return f, err
		}
	}
}

// leftNames returns the names of what the provider says that it has of an instance.
func (t *target) leftNames(ctx context.Context) ([]string, error) {
	ids, err := t.servers(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, id := range ids {
		_, err := t.p.Cloud.Server(ctx, t.i.Zone, id)
		if providers.IsKind(err, providers.KindNotFound) {
			continue
		}
		if err != nil {
			return nil, fault.Cloud(ctx, err)
		}
		names = append(names, "server "+id)
	}
	all, err := t.p.Cloud.List(ctx, t.i.Zone, t.i.ID)
	if err != nil {
		return nil, fault.Cloud(ctx, err)
	}
	for _, r := range all {
		if r.Kind != providers.CloudKindServer {
			names = append(names, fmt.Sprintf("%s %s", r.Kind, r.ID))
		}
	}
	return names, nil
}

// ProveDeleted fails while the provider has anything of an instance.
func (a *Activities) ProveDeleted(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	f, err := a.ReadLeft(ctx, ref)
	if err == nil && !f.Done {
		return f, fault.New(lifecycle.FailStateDisagreement, "the provider still has %s", f.Note)
	}
	f.Note = "the provider has nothing of the instance"
	return f, err
}
