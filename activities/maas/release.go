package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
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
	// DeployStarted says that this job began to deploy the machine when it was Ready:
	// then an allocation by our own MAAS user without any mark is this job's,
	// and so is a release of it that did not end well.
	DeployStarted bool `json:"deploy_started,omitempty"`
}

// ours reports whether the machine's present state is this job's doing.
func (in ReleaseIn) ours(ctx context.Context, m providers.MAAS, got providers.MAASMachine) (bool, error) {
	mark := got.Annotations[annotationJob]
	if !in.OnlyOurs || mark == in.JobID {
		return true, nil
	}
	// MAAS wipes the mark when a release begins and keeps the owner to its end.
	bare := got.Status == providers.MAASAllocated || got.Status == providers.MAASReleasingFailed || got.Status == providers.MAASFailedDiskErasing
	if mark != "" || !in.DeployStarted || !bare || got.Owner == "" {
		return false, nil
	}
	info, err := m.Probe(ctx)
	if err != nil {
		return false, fault.MAAS(ctx, err)
	}
	return got.Owner == info.User, nil
}

// ReturnToReady releases a machine and waits until it is Ready (or New, when it
// was never commissioned). It serves recovery from a failed deployment and the
// compensation of a deployment. Absent, Ready and New are success.
func (a *Activities) ReturnToReady(ctx context.Context, in ReleaseIn) (contract.MachineFacts, error) {
	m, found, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if found == nil {
		return absentFacts(in.SystemID, ""), a.forgetAddresses(ctx, in.JobRef)
	}
	out := facts(*found)
	if ours, err := in.ours(ctx, m, *found); err != nil {
		return out, err
	} else if !ours && found.Status != providers.MAASReleasing && found.Status != providers.MAASDiskErasing {
		out.Done, out.Note = true, "not deployed by this job; left alone"
		return out, nil
	}
	var release once
	got, err := pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		return in.look(ctx, a, m, got, &release)
	})
	out = facts(got)
	if err == nil {
		err = a.forgetAddresses(ctx, in.JobRef)
	}
	out.Done = err == nil
	return out, err
}

// look releases what is still this job's and says when the machine is free.
func (in ReleaseIn) look(ctx context.Context, a *Activities, m providers.MAAS, got providers.MAASMachine, release *once) error {
	switch {
	case got.Status == providers.MAASReady, got.Status == providers.MAASNew:
		return nil
	case release.taken && got.Status == providers.MAASReleasingFailed:
		return fault.New(lifecycle.FailPowerNotConfirmed, "machine %s could not be powered off for release", in.SystemID)
	case release.taken && got.Status == providers.MAASFailedDiskErasing:
		return fault.New(lifecycle.FailScrubUnverified, "machine %s failed to erase its disks", in.SystemID)
	case release.taken || !releasable(got.Status):
		return errKeepWaiting
	}
	if ours, err := in.ours(ctx, m, got); err != nil {
		return err
	} else if !ours {
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s by someone else now; it is left alone", in.SystemID, got.Status)
	}
	if err := a.checkRelease(ctx, m, in.NodeID); err != nil {
		return err
	}
	err := release.send(ctx, func() error {
		return m.Release(ctx, in.SystemID, providers.MAASRelease{Comment: "slipway " + in.JobID})
	})
	if err != nil {
		return err
	}
	return errKeepWaiting
}
