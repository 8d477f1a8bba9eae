package maas

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// openMachine opens a site's region and reads a machine. It fails with maas_machine_deleted when
// the region has no such machine.
func (a *Activities) openMachine(ctx context.Context, job contract.JobRef, systemID string) (providers.MAAS, providers.MAASMachine, error) {
	m, _, err := a.region(ctx, job)
	if err != nil {
		return nil, providers.MAASMachine{}, err
	}
	got, err := machine(ctx, m, systemID)
	return m, got, err
}

// findMachine opens a site's region and reads a machine. It returns nil when the region has no such
// machine.
func (a *Activities) findMachine(ctx context.Context, job contract.JobRef, systemID string) (providers.MAAS, *providers.MAASMachine, error) {
	m, _, err := a.region(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	got, err := machineOrNil(ctx, m, systemID)
	return m, got, err
}

// machine reads a machine. It fails with maas_machine_deleted when there is none.
func machine(ctx context.Context, m providers.MAAS, systemID string) (providers.MAASMachine, error) {
	got, err := m.Machine(ctx, systemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return got, fault.New(lifecycle.FailMAASMachineDeleted, "machine %s is no longer in MAAS", systemID)
	}
	return got, fault.MAAS(ctx, err)
}

// machineOrNil reads a machine. It returns nil when there is none.
func machineOrNil(ctx context.Context, m providers.MAAS, systemID string) (*providers.MAASMachine, error) {
	got, err := m.Machine(ctx, systemID)
	switch {
	case providers.IsKind(err, providers.KindNotFound):
		return nil, nil
	case err != nil:
		return nil, fault.MAAS(ctx, err)
	}
	return &got, nil
}

// absentFacts returns the facts of a machine that is not in MAAS, which is what was wanted.
func absentFacts(systemID, note string) contract.MachineFacts {
	return contract.MachineFacts{SystemID: systemID, Status: providers.MAASAbsent, Done: true, Note: note}
}

const notInMAAS = "the machine is not in MAAS"

func facts(m providers.MAASMachine) contract.MachineFacts {
	f := contract.MachineFacts{
		SystemID: m.SystemID, Status: m.Status.String(), Power: m.PowerState, IPs: m.IPAddresses, Commissioning: m.CommissioningID,
		Allocation: m.Annotations[lifecycle.MAASAllocationMark],
	}
	if !m.LastSync.IsZero() {
		at := m.LastSync.UTC()
		f.LastSync = &at
	}
	return f
}

// transient reports whether err may pass while a machine is polled. The stage's deadline bounds
// that.
func transient(err error) bool {
	switch providers.KindOf(err) {
	case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindProtocol, providers.KindUncertain:
		return true
	default:
		return false
	}
}

// errKeepWaiting makes pollMachine read again.
var errKeepWaiting = errors.New("keep waiting")

// pollMachine reads a machine until look returns nil, look fails or ctx ends. It puts the last
// status into the heartbeat details.
func pollMachine(ctx context.Context, m providers.MAAS, systemID string, every time.Duration, look func(providers.MAASMachine) error) (providers.MAASMachine, error) {
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
		if err := poll.Sleep(ctx, every); err != nil {
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
	return pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		if left(got.Status) {
			return nil
		}
		if err := abort.send(ctx, func() error { return m.Abort(ctx, in.SystemID, "slipway "+in.JobID+why) }); err != nil {
			return err
		}
		return errKeepWaiting
	})
}

// checkBelongs fails when a machine does not belong to the node any more: it is locked, annotated
// with a job of another node, or owned by another user of MAAS.
func (a *Activities) checkBelongs(ctx context.Context, m providers.MAAS, in MachineIn, got providers.MAASMachine) error {
	if got.Locked {
		return fault.New(lifecycle.FailMAASRejected, "machine %s is locked in MAAS; unlock it there, then retry the stage", in.SystemID)
	}
	if got.Annotations[annotationJob] != "" {
		return a.checkMark(ctx, m, in, got)
	}
	if got.Owner == "" {
		return nil
	}
	info, err := m.Probe(ctx)
	switch {
	case err != nil:
		return fault.MAAS(ctx, err)
	case info.User != got.Owner:
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s and belongs to the MAAS user %q; it is left alone", in.SystemID, got.Status, got.Owner)
	}
	return nil
}

// recordAddresses stores the addresses that a deployed machine has in MAAS as those of the job's
// node. A plan stores nothing.
func (a *Activities) recordAddresses(ctx context.Context, job contract.JobRef, got providers.MAASMachine) error {
	if a.plan || len(got.IPAddresses) == 0 {
		return nil
	}
	now := db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: got.IPAddresses}
	return fault.Internal(ctx, a.Store.SetNodeAddresses(ctx, job.NodeID, now))
}

// forgetAddresses stores that the job's node has no address any more: its machine is released, or
// is not in MAAS. A plan stores nothing.
func (a *Activities) forgetAddresses(ctx context.Context, job contract.JobRef) error {
	if a.plan {
		return nil
	}
	return fault.Internal(ctx, a.Store.SetNodeAddresses(ctx, job.NodeID, db.NodeAddresses{}))
}
