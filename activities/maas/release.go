package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// releasable lists the states from which MAAS releases.
func releasable(s providers.MAASStatus) bool {
	switch s {
	case providers.MAASReserved, providers.MAASDeployed, providers.MAASBroken, providers.MAASDeploying, providers.MAASAllocated,
		providers.MAASFailedDeployment, providers.MAASReleasingFailed, providers.MAASFailedDiskErasing:
		return true
	default:
		return false
	}
}

// ReleaseIn is the input of ReturnToReady.
type ReleaseIn struct {
	MachineIn
	// OnlyOurs leaves a machine alone that does not carry this job's mark.
	OnlyOurs bool `json:"only_ours,omitempty"`
}

// ReturnToReady releases a machine and waits until it is Ready (or New, when it
// was never commissioned). It serves recovery from a failed deployment and the
// compensation of a deployment. Absent, Ready and New are success.
func (a *Activities) ReturnToReady(ctx context.Context, in ReleaseIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return contract.MachineFacts{SystemID: in.SystemID, Status: providers.MAASAbsent, Done: true}, nil
	}
	if err != nil {
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	if in.OnlyOurs && got.Annotations[annotationJob] != in.JobID && got.Status != providers.MAASReleasing {
		out := facts(got)
		out.Done, out.Note = true, "not deployed by this job; left alone"
		return out, nil
	}
	if releasable(got.Status) {
		err := m.Release(ctx, in.SystemID, providers.MAASRelease{Comment: "slipway " + in.JobID})
		if err != nil && !transient(err) && !providers.IsKind(err, providers.KindStateConflict) {
			return facts(got), fault.MAAS(ctx, err)
		}
	}
	got, err = poll(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		switch got.Status {
		case providers.MAASReady, providers.MAASNew:
			return nil
		case providers.MAASReleasingFailed:
			return fault.New(lifecycle.FailPowerNotConfirmed, "machine %s could not be powered off for release", in.SystemID)
		case providers.MAASFailedDiskErasing:
			return fault.New(lifecycle.FailScrubUnverified, "machine %s failed to erase its disks", in.SystemID)
		default:
			return errKeepWaiting
		}
	})
	out := facts(got)
	out.Done = err == nil
	return out, err
}

// RemoveIn is the input of RemoveCreatedMachine.
type RemoveIn struct {
	MachineIn
	Created bool `json:"created"`
}

// RemoveCreatedMachine is the compensation of create_or_find_in_maas: a record
// that this job made is deleted, power confirmed off first so that it cannot
// enlist again; a machine that was found is left as it is. Absent is success.
func (a *Activities) RemoveCreatedMachine(ctx context.Context, in RemoveIn) (contract.MachineFacts, error) {
	out := contract.MachineFacts{SystemID: in.SystemID, Status: providers.MAASAbsent, Done: true}
	if !in.Created || in.SystemID == "" {
		out.Note = "the machine was not created by this job"
		return out, nil
	}
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return out, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return out, nil
	}
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	if got.PowerState == "on" {
		if err := m.PowerOff(ctx, in.SystemID, true); err != nil && !transient(err) {
			return facts(got), fault.MAAS(ctx, err)
		}
		if _, err := poll(ctx, m, in.SystemID, in.Poll.D(), func(providers.MAASMachine) error {
			if state, err := m.QueryPower(ctx, in.SystemID); err == nil && state == "off" {
				return nil
			}
			return errKeepWaiting
		}); err != nil {
			return facts(got), err
		}
	}
	return out, fault.MAAS(ctx, m.DeleteMachine(ctx, in.SystemID))
}
