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
	// Begun says that this job began to deploy the machine when it was Ready:
	// then an allocation by our own MAAS user without any mark is this job's,
	// and so is a release of it that did not end well.
	Begun bool `json:"begun,omitempty"`
}

// ours reports whether the machine's present state is this job's doing.
func (in ReleaseIn) ours(ctx context.Context, m providers.MAAS, got providers.MAASMachine) (bool, error) {
	mark := got.Annotations[annotationJob]
	if !in.OnlyOurs || mark == in.JobID {
		return true, nil
	}
	// MAAS wipes the mark when a release begins and keeps the owner to its end.
	bare := got.Status == providers.MAASAllocated || got.Status == providers.MAASReleasingFailed || got.Status == providers.MAASFailedDiskErasing
	if mark != "" || !in.Begun || !bare || got.Owner == "" {
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
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	found, out, err := machineOrAbsent(ctx, m, in.SystemID)
	if found == nil {
		return out, err
	}
	if ours, err := in.ours(ctx, m, *found); err != nil {
		return out, err
	} else if !ours && found.Status != providers.MAASReleasing && found.Status != providers.MAASDiskErasing {
		out.Done, out.Note = true, "not deployed by this job; left alone"
		return out, nil
	}
	var release once
	got, err := poll(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		return in.look(ctx, m, got, &release)
	})
	out = facts(got)
	out.Done = err == nil
	return out, err
}

// machineOrAbsent reads a machine and its facts. One that is not there is nil,
// and its facts say so and that nothing is to be done; one that could not be
// read is nil too.
func machineOrAbsent(ctx context.Context, m providers.MAAS, systemID string) (*providers.MAASMachine, contract.MachineFacts, error) {
	got, err := m.Machine(ctx, systemID)
	switch {
	case providers.IsKind(err, providers.KindNotFound):
		return nil, contract.MachineFacts{SystemID: systemID, Status: providers.MAASAbsent, Done: true}, nil
	case err != nil:
		return nil, contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	return &got, facts(got), nil
}

// look releases what is still this job's and says when the machine is free.
func (in ReleaseIn) look(ctx context.Context, m providers.MAAS, got providers.MAASMachine, release *once) error {
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
	err := release.send(ctx, func() error {
		return m.Release(ctx, in.SystemID, providers.MAASRelease{Comment: "slipway " + in.JobID})
	})
	if err != nil {
		return err
	}
	return errKeepWaiting
}

// RemoveIn is the input of RemoveCreatedMachine.
type RemoveIn struct {
	MachineIn
	Created bool `json:"created"`
	// Hostname and BMC find the record of a create whose answer never came.
	Hostname string            `json:"hostname,omitempty"`
	BMC      contract.BMCFacts `json:"bmc"`
}

// RemoveCreatedMachine is the compensation of create_or_find_in_maas: a record
// that this job made is deleted, power confirmed off first so that it cannot
// enlist again; a machine that was found, or that someone else has put to use
// meanwhile, is left as it is. Absent is success.
func (a *Activities) RemoveCreatedMachine(ctx context.Context, in RemoveIn) (contract.MachineFacts, error) {
	out := contract.MachineFacts{SystemID: in.SystemID, Status: providers.MAASAbsent, Done: true}
	if in.SystemID != "" && !in.Created {
		out.Status, out.Note = "", "the machine was not created by this job"
		return out, nil
	}
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return out, err
	}
	got, err := a.createdMachine(ctx, m, in)
	if got == nil || err != nil {
		return out, err
	}
	in.SystemID, out.SystemID = got.SystemID, got.SystemID
	if inUse(got.Status) && got.Annotations[annotationJob] != in.JobID {
		return facts(*got), fault.New(lifecycle.FailStateDisagreement,
			"machine %s was created by this job but is %s by someone else; it is not deleted", got.SystemID, got.Status)
	}
	if got.PowerState == "on" {
		if err := switchOff(ctx, m, in.MachineIn); err != nil {
			return facts(*got), err
		}
	}
	return out, fault.MAAS(ctx, m.DeleteMachine(ctx, in.SystemID))
}

func inUse(s providers.MAASStatus) bool {
	return s == providers.MAASDeployed || s == providers.MAASDeploying || s == providers.MAASAllocated
}

// createdMachine reads the record that this job created, nil for none. Without
// a known id it looks for what a create with a lost answer may have left.
func (a *Activities) createdMachine(ctx context.Context, m providers.MAAS, in RemoveIn) (*providers.MAASMachine, error) {
	if in.SystemID != "" {
		got, _, err := machineOrAbsent(ctx, m, in.SystemID)
		return got, err
	}
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	if node.MAASCreateIntent != in.JobID || in.Hostname == "" {
		return nil, nil
	}
	found, err := a.find(ctx, m, CreateIn{JobRef: in.JobRef, Hostname: in.Hostname, BMC: in.BMC})
	if found == nil || err != nil || found.Hostname != in.Hostname {
		return nil, err
	}
	return found, nil
}

// switchOff asks for power off until MAAS has taken it, and confirms it.
func switchOff(ctx context.Context, m providers.MAAS, in MachineIn) error {
	var off once
	_, err := poll(ctx, m, in.SystemID, in.Poll.D(), func(providers.MAASMachine) error {
		if err := off.send(ctx, func() error { return m.PowerOff(ctx, in.SystemID, true) }); err != nil {
			return err
		}
		if state, err := m.QueryPower(ctx, in.SystemID); err == nil && state == "off" {
			return nil
		}
		return errKeepWaiting
	})
	return err
}
