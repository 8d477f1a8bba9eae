package maas

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// EnsureHardwareSync switches hardware sync on where the deployment left it
// off. MAAS installs no agent this way; only a later sync proves that one runs.
func (a *Activities) EnsureHardwareSync(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	out := facts(got)
	if got.EnableHWSync {
		out.Done, out.Note = true, "hardware sync is on"
		return out, nil
	}
	if in.ObserveOnly {
		return out, nil
	}
	if err := m.SetHardwareSync(ctx, in.SystemID, true); err != nil {
		return out, fault.MAAS(ctx, err)
	}
	got, err = machine(ctx, m, in.SystemID)
	if err != nil {
		return out, err
	}
	if !got.EnableHWSync {
		return facts(got), fault.New(lifecycle.FailHWSyncUnhealthy, "MAAS accepted enable_hw_sync for %s but does not show it", in.SystemID)
	}
	return facts(got), nil
}

// WaitSyncIn is the input of WaitForHardwareSync.
type WaitSyncIn struct {
	MachineIn
	// After is the last sync known when the machine became Deployed: MAAS sets
	// one at that moment, so only a strictly later one proves anything.
	After *time.Time `json:"after,omitempty"`
	// Until is when to give up and report it as not done.
	Until time.Time `json:"until"`
}

// WaitForHardwareSync polls for a sync that is later than After. Done is false
// when there was none by Until: the caller repairs or fails.
func (a *Activities) WaitForHardwareSync(ctx context.Context, in WaitSyncIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	seen := false
	got, err := pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		switch {
		case got.Status != providers.MAASDeployed:
			return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s while its hardware sync was awaited", in.SystemID, got.Status)
		case !got.LastSync.IsZero() && (in.After == nil || got.LastSync.After(*in.After)):
			seen = true
			return nil
		case in.ObserveOnly || time.Now().After(in.Until):
			return nil
		}
		return errKeepWaiting
	})
	out := facts(got)
	out.Done = seen && err == nil
	return out, err
}

// MachineCredentials stores the machine's own MAAS token as a secret and
// returns its reference, for the repair of hardware sync over SSH. It is to be
// forgotten once the repair is done.
func (a *Activities) MachineCredentials(ctx context.Context, in MachineIn) (string, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return "", err
	}
	tok, err := m.MachineToken(ctx, in.SystemID)
	if err != nil {
		return "", fault.MAAS(ctx, err)
	}
	ref, err := a.Secrets.Put(ctx, cloudinit.MachineTokenName(in.NodeID), tok)
	return string(ref), fault.Secret(ctx, err)
}

// ForgetMachineCredentials deletes what MachineCredentials stored: the node has
// its token, and nobody else needs a copy. Absent is success.
func (a *Activities) ForgetMachineCredentials(ctx context.Context, in contract.JobRef) (contract.UserData, error) {
	return contract.UserData{}, fault.Secret(ctx, a.Secrets.Delete(ctx, cloudinit.MachineTokenName(in.NodeID)))
}
