package noop

import (
	"context"
	"slices"

	"github.com/slipway-cloud/slipway/providers"
)

// Commission implements providers.MAAS.
func (r *Region) Commission(ctx context.Context, systemID string, _ providers.MAASCommission) (providers.MAASMachine, error) {
	if err := r.refuse(OpCommission, r.host(systemID)); err != nil {
		return providers.MAASMachine{}, err
	}
	if err := r.reach(ctx, OpCommission, systemID, providers.MAASReady); err != nil {
		return providers.MAASMachine{}, err
	}
	return r.Machine(ctx, systemID)
}

// reach takes a machine to where Land says.
func (r *Region) reach(ctx context.Context, op, systemID string, goal providers.MAASStatus) error {
	if r.Land != nil {
		goal = r.Land(op, r.host(systemID))
	}
	r.mu.Lock()
	m := r.byID[systemID]
	if m == nil {
		r.mu.Unlock()
		return absent(systemID)
	}
	return r.land(ctx, m, goal)
}

// OverrideFailedTesting implements providers.MAAS.
func (r *Region) OverrideFailedTesting(_ context.Context, systemID, _ string) error {
	return r.with(systemID, func(m *machine) { m.MAASMachine.Status = providers.MAASReady })
}

// Allocate implements providers.MAAS.
func (r *Region) Allocate(ctx context.Context, systemID, _, _ string) (providers.MAASMachine, error) {
	err := r.with(systemID, func(m *machine) { m.MAASMachine.Status = providers.MAASAllocated })
	if err != nil {
		return providers.MAASMachine{}, err
	}
	return r.Machine(ctx, systemID)
}

// SetWorkloadAnnotations implements providers.MAAS.
func (r *Region) SetWorkloadAnnotations(_ context.Context, systemID string, kv map[string]string) error {
	return r.with(systemID, func(m *machine) {
		for k, v := range kv {
			m.Annotations[k] = v
		}
	})
}

// Deploy implements providers.MAAS.
func (r *Region) Deploy(ctx context.Context, systemID string, in providers.MAASDeploy) (providers.MAASMachine, error) {
	if err := r.refuse(OpDeploy, r.host(systemID)); err != nil {
		return providers.MAASMachine{}, err
	}
	err := r.with(systemID, func(m *machine) {
		m.pending, m.EnableHWSync, m.DistroSeries = slices.Clone(in.UserData), in.EnableHWSync, in.DistroSeries
	})
	if err != nil {
		return providers.MAASMachine{}, err
	}
	if err := r.reach(ctx, OpDeploy, systemID, providers.MAASDeployed); err != nil {
		return providers.MAASMachine{}, err
	}
	return r.Machine(ctx, systemID)
}

// Abort ends what runs: a deployment leaves the machine Allocated.
func (r *Region) Abort(_ context.Context, systemID, _ string) error {
	return r.with(systemID, func(m *machine) {
		if m.MAASMachine.Status == providers.MAASDeploying {
			m.MAASMachine.Status = providers.MAASAllocated
		} else {
			m.MAASMachine.Status = providers.MAASNew
		}
	})
}

// Release implements providers.MAAS.
func (r *Region) Release(_ context.Context, systemID string, in providers.MAASRelease) error {
	if err := r.refuse(OpRelease, r.host(systemID)); err != nil {
		return err
	}
	return r.with(systemID, func(m *machine) {
		m.MAASMachine.Status, m.PowerState, m.OSystem = providers.MAASReady, "off", ""
		clear(m.Annotations)
		if in.Erase {
			erased := providers.MAASEvent{ID: firstErased + len(m.erased), Level: "INFO", Type: "Disks erased"}
			m.erased = append([]providers.MAASEvent{erased}, m.erased...)
		}
	})
}

// firstErased is greater than the ids of other events.
const firstErased = 10

// PowerOn implements providers.MAAS.
func (r *Region) PowerOn(_ context.Context, systemID string) error {
	return r.with(systemID, func(m *machine) { m.PowerState = "on" })
}

// PowerOff implements providers.MAAS.
func (r *Region) PowerOff(_ context.Context, systemID string, _ bool) error {
	return r.with(systemID, func(m *machine) { m.PowerState = "off" })
}

// QueryPower implements providers.MAAS.
func (r *Region) QueryPower(_ context.Context, systemID string) (state string, err error) {
	err = r.with(systemID, func(m *machine) { state = m.PowerState })
	return state, err
}

// PowerLogin implements providers.MAAS.
func (r *Region) PowerLogin(_ context.Context, systemID, _ string, _ providers.Secret) (providers.MAASPower, error) {
	return providers.MAASPower{Type: "redfish", User: BMCUser, SameBMC: true, SamePassword: true}, r.with(systemID, func(*machine) {})
}

// HeldLogin implements providers.MAAS. This region holds no login.
func (r *Region) HeldLogin(context.Context, string, string) (providers.Login, error) {
	return providers.Login{}, &providers.Error{Kind: providers.KindNotFound, Op: "maas.held_login", Message: "MAAS holds no login for this BMC"}
}

// SetPowerLogin implements providers.MAAS.
func (r *Region) SetPowerLogin(_ context.Context, systemID, _ string, _ providers.Secret) error {
	return r.with(systemID, func(*machine) {})
}

// SetHardwareSync implements providers.MAAS.
func (r *Region) SetHardwareSync(_ context.Context, systemID string, on bool) error {
	return r.with(systemID, func(m *machine) { m.EnableHWSync = on })
}

// MachineToken implements providers.MAAS.
func (r *Region) MachineToken(context.Context, string) (providers.Secret, error) {
	return providers.NewSecret(MachineToken), nil
}

// Events tells of releases that erased the disks, newest first, and of a search for a datasource
// where a deployment has failed.
func (r *Region) Events(_ context.Context, systemID, _ string, _ int) (events []providers.MAASEvent, err error) {
	err = r.with(systemID, func(m *machine) {
		events = slices.Clone(m.erased)
		if m.MAASMachine.Status == providers.MAASFailedDeployment {
			events = append(events,
				providers.MAASEvent{ID: 2, Level: "DEBUG", Type: "Node installation", Description: "'cloudinit' searching for network data from DataSourceMAAS"},
				providers.MAASEvent{ID: 1, Level: "INFO", Type: "Node powered on"})
		}
	})
	return events, err
}

// Results implements providers.MAAS.
func (r *Region) Results(context.Context, string, string) ([]providers.MAASResult, error) {
	return nil, nil
}
