package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	"github.com/slipway-cloud/slipway/providers/instance/scaleway"
	"github.com/slipway-cloud/slipway/providers/instance/worker"
	"github.com/slipway-cloud/slipway/providers/ssh"
)

// The names of the providers of instances, and the only zone of the simulated one.
const (
	providerScaleway = "scaleway"
	providerMock     = "mock"
	mockZone         = "mock-1"
)

// InstanceOffers returns the providers that are configured.
func (a *App) InstanceOffers() []instanceintent.Offer {
	c := a.Config.Instance
	var out []instanceintent.Offer
	if c.ScalewayEnabled() {
		out = append(out, instanceintent.Offer{Provider: providerScaleway, Account: c.ScalewayProjectID + "/" + c.Installation, Zones: c.Zones(), Image: c.ScalewayImage})
	}
	if c.MockDuration > 0 {
		out = append(out, instanceintent.Offer{Provider: providerMock, Zones: []string{mockZone}, Image: "simulated"})
	}
	return out
}

// simulated is the provider whose servers exist in the memory of this process: the worker of the
// jobs and that of the passes share it.
type simulated struct {
	once sync.Once
	mock *mock.Provider
}

// instanceActivities make and delete instances.
func (a *App) instanceActivities() *instanceact.Activities {
	jobs := temporalx.Jobs{Client: a.Temporal, TaskQueue: a.Config.Temporal.TaskQueue}
	var places [][2]string
	for _, o := range a.InstanceOffers() {
		for _, zone := range o.Zones {
			places = append(places, [2]string{o.Provider, zone})
		}
	}
	acts := &instanceact.Activities{
		Places: places,
		Store:  a.Store, Secrets: a.Secrets, Log: a.Log, Open: a.openCloud, HeartbeatURL: a.Config.Agent.PublicURL, CAPEM: string(a.CA.CertPEM()),
		ArchiveAfter: a.Config.Instance.ArchiveAfter,
		Resume: func(ctx context.Context, i instancedb.Instance) error {
			return jobs.Ask(ctx, contract.KindInstanceCreate, i.JobID, lifecycle.ActionResume, "a heartbeat came after the timeout", fmt.Sprintf("recover-%s-%d", i.ID, i.Recoveries))
		},
		Cancel: func(ctx context.Context, job db.Job) error {
			return jobs.Ask(ctx, contract.KindInstanceCreate, job.ID, lifecycle.ActionCancel, "the instance is to be terminated", "terminate-"+job.ID)
		},
	}
	if a.TuneInstances != nil {
		a.TuneInstances(acts)
	}
	return acts
}

// openCloud opens a provider by its name.
func (a *App) openCloud(ctx context.Context, name string) (instanceact.Provider, error) {
	i := slices.IndexFunc(a.InstanceOffers(), func(o instanceintent.Offer) bool { return o.Provider == name })
	if i < 0 {
		return instanceact.Provider{}, &providers.Error{Kind: providers.KindInvalid, Op: "cloud.open", Message: "provider " + name + " is not configured; see the settings instance.*"}
	}
	p := instanceact.Provider{Name: name, Account: a.InstanceOffers()[i].Account, Zones: a.InstanceOffers()[i].Zones}
	if name == providerMock {
		a.simulated.once.Do(func() { a.simulated.mock = mock.New(a.Config.Instance.MockDuration, nil) })
		p.Cloud, p.Worker, p.Simulated = a.simulated.mock, a.simulated.mock, true
		return p, nil
	}
	c := a.Config.Instance
	account := providers.CloudAccount{URL: c.ScalewayURL, ProjectID: c.ScalewayProjectID, AccessKey: c.ScalewayAccessKey}
	if account.URL == "" {
		account.URL = scaleway.DefaultURL
	}
	use := providers.Use{Kind: spec.SecretCloudKey, Address: account.URL}
	var err error
	if account.Rule, err = a.Secrets.AddressRule(ctx, providers.SecretRef(c.ScalewayKeyRef), use); err != nil {
		return p, err
	}
	if account.SecretKey, err = a.Secrets.Resolve(ctx, providers.SecretRef(c.ScalewayKeyRef), use); err != nil {
		return p, err
	}
	if p.Cloud, err = scaleway.Open(account, c.Installation); err != nil {
		return p, err
	}
	// A server gets its address from the provider, whose answers come over TLS, and proves itself
	// by the pinned host key.
	p.Worker, p.Rule = worker.Worker{SSH: ssh.New()}, spec.AddressRule{Anywhere: true, Public: true}
	p.Sources.SSH, p.Sources.Worker = c.Sources()
	return p, nil
}
