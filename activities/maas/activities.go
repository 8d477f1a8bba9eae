// Package maas holds the activities that work through a MAAS region. Each is
// idempotent: it reads the machine first, changes what differs, and reads again
// where MAAS is known to answer before the effect (research, maas section 2).
package maas

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	Opener  providers.MAASOpener
}

// The workload annotations that mark a machine as deployed by one job's one
// attempt: the idempotency marker of deploy_via_maas. MAAS wipes them on
// release.
const (
	annotationJob     = "slipway-job"
	annotationAttempt = "slipway-attempt"
)

// region opens the MAAS of a site.
func (a *Activities) region(ctx context.Context, siteID string) (providers.MAAS, spec.SiteSpec, error) {
	site, err := a.Store.Site(ctx, siteID)
	if err != nil {
		return nil, spec.SiteSpec{}, deleted(ctx, err, "site", siteID)
	}
	key, err := a.Secrets.Resolve(ctx, providers.SecretRef(site.Spec.MAASAPIKeyRef))
	if err != nil {
		return nil, site.Spec, fault.Secret(ctx, err)
	}
	m, err := a.Opener.OpenMAAS(providers.MAASSite{URL: site.Spec.MAASURL, APIKey: key, CAPEM: site.Spec.MAASCAPEM})
	if err != nil {
		return nil, site.Spec, fault.New(lifecycle.FailConfiguration, "the site's MAAS cannot be opened: %v", err)
	}
	return m, site.Spec, nil
}

// machine reads a machine; absent is a typed failure.
func machine(ctx context.Context, m providers.MAAS, systemID string) (providers.MAASMachine, error) {
	got, err := m.Machine(ctx, systemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return got, fault.New(lifecycle.FailMAASMachineDeleted, "machine %s is no longer in MAAS", systemID)
	}
	return got, fault.MAAS(ctx, err)
}

func facts(m providers.MAASMachine) contract.MachineFacts {
	f := contract.MachineFacts{
		SystemID: m.SystemID, Status: m.Status.String(), Power: m.PowerState, IPs: m.IPAddresses, Commissioning: m.CommissioningID,
	}
	if !m.LastSync.IsZero() {
		at := m.LastSync.UTC()
		f.LastSync = &at
	}
	return f
}

// transient failures are borne while polling: the stage's deadline bounds them.
func transient(err error) bool {
	switch providers.KindOf(err) {
	case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindProtocol, providers.KindUncertain:
		return true
	default:
		return false
	}
}

// errKeepWaiting makes poll look again.
var errKeepWaiting = errors.New("keep waiting")

// poll reads a machine until look is satisfied, ctx ends or look fails. The
// status last seen travels in the heartbeat details.
func poll(ctx context.Context, m providers.MAAS, systemID string, every time.Duration, look func(providers.MAASMachine) error) (providers.MAASMachine, error) {
	if every <= 0 {
		every = 10 * time.Second
	}
	for {
		got, err := m.Machine(ctx, systemID)
		switch {
		case providers.IsKind(err, providers.KindNotFound):
			return got, fault.New(lifecycle.FailMAASMachineDeleted, "machine %s was deleted from MAAS while we waited", systemID)
		case err != nil && !transient(err):
			return got, fault.MAAS(ctx, err)
		case err == nil:
			if lerr := look(got); !errors.Is(lerr, errKeepWaiting) {
				return got, lerr
			}
			activity.RecordHeartbeat(ctx, got.Status.String())
		}
		if err := sleep(ctx, every); err != nil {
			return got, err
		}
	}
}

// once sends a mutation until MAAS has taken it: a call that was lost on the
// way is sent again at the next look, one that was taken is not.
type once struct{ taken bool }

func (o *once) send(ctx context.Context, call func() error) error {
	if o.taken {
		return nil
	}
	err := call()
	switch {
	case err == nil:
		o.taken = true
	case !transient(err) && !providers.IsKind(err, providers.KindStateConflict):
		return fault.MAAS(ctx, err)
	}
	return nil
}

// abortUntil aborts what a machine is doing and reads until it has left it: the
// answer to an abort shows the old state.
func abortUntil(ctx context.Context, m providers.MAAS, in MachineIn, why string, left func(providers.MAASStatus) bool) (providers.MAASMachine, error) {
	var abort once
	return poll(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		if left(got.Status) {
			return nil
		}
		if err := abort.send(ctx, func() error { return m.Abort(ctx, in.SystemID, "slipway "+in.JobID+why) }); err != nil {
			return err
		}
		return errKeepWaiting
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// MachineIn names the machine of a job.
type MachineIn struct {
	contract.JobRef
	SystemID string        `json:"system_id"`
	Poll     spec.Duration `json:"poll,omitempty"`
	// Commissioning is the last one known, which CommissionAgain supersedes.
	Commissioning int `json:"commissioning,omitempty"`
}

// ObserveMachine reads the machine and changes nothing.
func (a *Activities) ObserveMachine(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return contract.MachineFacts{SystemID: in.SystemID, Status: providers.MAASAbsent}, nil
	}
	out := facts(got)
	out.Foreign = got.Annotations[annotationJob] != in.JobID
	return out, fault.MAAS(ctx, err)
}
