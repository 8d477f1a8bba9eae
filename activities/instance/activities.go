// Package instance acts on instances: on their servers at a cloud provider, on the workers that run
// on these, and on what is stored of them. Every activity reads before it changes anything, and can
// be repeated.
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	Log     *slog.Logger
	// Open returns a provider by its name. The error for a provider that is not configured is
	// *providers.Error of KindInvalid.
	Open func(ctx context.Context, name string) (Provider, error)
	// Places are the zones of the configured providers, each as provider and zone.
	Places [][2]string
	// HeartbeatURL is where workers send heartbeats, CAPEM the authority of its certificate.
	HeartbeatURL string
	CAPEM        string
	// Resume resumes the parked job of an instance, for the pass.
	Resume func(ctx context.Context, i instancedb.Instance) error
	// Cancel asks the job that makes an instance to end, for the pass.
	Cancel func(ctx context.Context, job db.Job) error
	// ArchiveAfter is how long after its end an instance is archived.
	ArchiveAfter time.Duration
	// Poll is the pause between two looks; 0 is 5 s.
	Poll time.Duration
	// Now is the clock that ends a startup; nil is that of this machine.
	Now func() time.Time
}

// Provider is a cloud provider with what is configured of it.
type Provider struct {
	Name    string
	Account string
	Zones   []string
	Cloud   providers.Cloud
	Worker  providers.Worker
	Sources providers.CloudSources
	// Rule bounds the addresses at which workers are reached, SSHPort and the ports of the worker
	// where they are not the usual ones.
	Rule                         spec.AddressRule
	SSHPort, VLLMPort, AgentPort int
	SSHUser                      string
	// Simulated workers send no heartbeats.
	Simulated bool
	// Lag is how long the provider's lists may not show what was made; 0 is 90 s.
	Lag time.Duration
}

const (
	defaultPoll = 5 * time.Second
	defaultLag  = 90 * time.Second
	// rootBytes is the size to which root volumes grow.
	rootBytes = 200_000_000_000
	// trusted is how long a heartbeat stands for the checks from our side.
	trusted = 30 * time.Second
)

func (a *Activities) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

func (a *Activities) pause(ctx context.Context) error {
	return poll.Sleep(ctx, cmp.Or(a.Poll, defaultPoll))
}

// target is an instance with its provider.
type target struct {
	a *Activities
	i instancedb.Instance
	p Provider
}

// open reads an instance and opens its provider.
func (a *Activities) open(ctx context.Context, ref contract.JobRef) (*target, error) {
	i, err := instancedb.Get(ctx, a.Store, ref.ResourceID)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	p, err := a.Open(ctx, i.Provider)
	if err != nil {
		return nil, openFailure(ctx, err)
	}
	if err := sameAccount(i, p); err != nil {
		return nil, fault.New(lifecycle.FailConfiguration, "%s", err.Error())
	}
	return &target{a, i, p}, nil
}

// sameAccount refuses the settings of another account than that in which an instance was made:
// nothing of it would be found there, and what is billed would be taken for gone.
func sameAccount(i instancedb.Instance, p Provider) error {
	if i.Account == p.Account {
		return nil
	}
	return fmt.Errorf("instance %s was made at %s in account %q, and the settings name %q: set them back until it has ended", i.ID, i.Provider, i.Account, p.Account)
}

// openFailure types an error of opening a provider: of its settings, or of the secret store.
func openFailure(ctx context.Context, err error) error {
	var pe *providers.Error
	if errors.As(err, &pe) && pe.Side() == providers.SideSecrets {
		return fault.Secret(ctx, err)
	}
	if errors.As(err, &pe) && pe.Kind == providers.KindInvalid {
		return fault.New(lifecycle.FailConfiguration, "%s", pe.Message)
	}
	return fault.Cloud(ctx, err)
}

func (t *target) ref() providers.CloudTarget {
	return providers.CloudTarget{Zone: t.i.Zone, InstanceID: t.i.ID, ServerID: t.i.ServerID}
}

func (t *target) facts(format string, args ...any) contract.InstanceFacts {
	return contract.InstanceFacts{
		Status: t.i.Status, Provider: t.i.Provider, Zone: t.i.Zone, ServerID: t.i.ServerID, IPAddress: t.i.IPAddress, StartupSeconds: int(spec.InstanceStartup(t.i.Type).Seconds()),
		Done: true, Note: fmt.Sprintf(format, args...),
	}
}

// worker returns how the worker of the instance is reached. Its credentials are opened for it.
func (t *target) worker(ctx context.Context) (providers.WorkerTarget, credentials, error) {
	w := providers.WorkerTarget{InstanceID: t.i.ID, Address: t.i.IPAddress, VLLMPort: t.p.VLLMPort, AgentPort: t.p.AgentPort}
	if t.i.ServerCreatedAt != nil {
		w.CreatedAt = *t.i.ServerCreatedAt
	}
	c, err := openCredentials(ctx, t.a.Secrets, t.i.ID)
	if err != nil {
		return w, c, fault.Secret(ctx, err)
	}
	w.APIKey = providers.NewSecret(c.APIKey)
	w.SSH = providers.SSHTarget{
		Address: net.JoinHostPort(t.i.IPAddress, strconv.Itoa(cmp.Or(t.p.SSHPort, 22))), Rule: t.p.Rule, User: cmp.Or(t.p.SSHUser, "root"),
		HostKey: t.i.HostKey, PrivateKeyPEM: providers.NewSecret(c.LoginKey),
	}
	return w, c, nil
}

// until polls a look until it is done. A look that says that it is too early, or that the other
// side does not answer now, is repeated; at the time given it ends with a failure of the class.
func (t *target) until(ctx context.Context, at time.Time, class lifecycle.FailureClass, waits string, look func() (bool, error)) error {
	for {
		done, err := look()
		if done && err == nil {
			return nil
		}
		if err != nil && !passes(err) {
			return err
		}
		if !at.IsZero() && !t.a.now().Before(at) {
			cause := ""
			if err != nil {
				cause = ": " + err.Error()
			}
			return fault.New(class, "%s did not come in time%s", waits, cause)
		}
		if sleepErr := t.a.pause(ctx); sleepErr != nil {
			if err != nil && passes(err) && errors.Is(sleepErr, context.DeadlineExceeded) {
				return fault.New(class, "%s did not come in time: %s", waits, err.Error())
			}
			return sleepErr
		}
	}
}

// passes reports whether an error may be gone at the next look.
func passes(err error) bool {
	switch providers.KindOf(err) { //nolint:exhaustive // the others do not pass
	case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindUncertain:
		return true
	}
	return false
}

// cloud types an error of a look at the provider; an error that may go away by itself is returned
// as it is, for the next look.
func cloud(ctx context.Context, err error) error {
	if err == nil || passes(err) {
		return err
	}
	return fault.Cloud(ctx, err)
}

// LoadInstance reads an instance.
func (a *Activities) LoadInstance(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	i, err := instancedb.Get(ctx, a.Store, ref.ResourceID)
	if err != nil {
		return contract.InstanceFacts{}, fault.Internal(ctx, err)
	}
	t := &target{a: a, i: i}
	return t.facts("the instance is %s", i.Status), nil
}

// CheckCloud proves that key and project are right, and that the zone has the type.
func (a *Activities) CheckCloud(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	if err := t.p.Cloud.Check(ctx, t.i.Zone); err != nil {
		return contract.InstanceFacts{}, fault.Cloud(ctx, err)
	}
	offer, err := t.p.Cloud.Offer(ctx, t.i.Zone, t.i.Type)
	if err != nil {
		return contract.InstanceFacts{}, fault.Cloud(ctx, err)
	}
	f := t.facts("%s has %s in %s", t.i.Provider, t.i.Type, t.i.Zone)
	f.GrowsVolume = offer.GrowsVolume
	return f, nil
}

// stored returns what is stored of things at a provider.
func stored(all []providers.CloudResource) []record.CloudResource {
	out := make([]record.CloudResource, 0, len(all))
	for _, r := range all {
		out = append(out, record.CloudResource{Kind: string(r.Kind), ID: r.ID, Name: r.Name})
	}
	return out
}
