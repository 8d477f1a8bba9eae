package maas

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// powerPatience is how long a power state that was asked for may take.
const powerPatience = 8 * time.Minute

// The power states as MAAS writes them.
const (
	powerOn  = "on"
	powerOff = "off"
)

// PowerOffByMAAS switches the machine off and confirms it by asking the BMC
// through MAAS. An absent machine, and one whose power MAAS cannot control, are
// no failure: Done is false and Note says so, and another must confirm it.
// Repeatable.
func (a *Activities) PowerOffByMAAS(ctx context.Context, in MachineIn) (contract.PowerFacts, error) {
	return a.power(ctx, in, powerOff)
}

// PowerOnByMAAS switches the machine on and confirms it, as PowerOffByMAAS.
func (a *Activities) PowerOnByMAAS(ctx context.Context, in MachineIn) (contract.PowerFacts, error) {
	return a.power(ctx, in, powerOn)
}

func (a *Activities) power(ctx context.Context, in MachineIn, want string) (contract.PowerFacts, error) {
	out := contract.PowerFacts{By: "MAAS", State: "unknown"}
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return out, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		out.Note = "the machine is not in MAAS"
		return out, nil
	}
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	if got.PowerType == "" || got.PowerType == "manual" {
		out.Note = "MAAS controls no power of this machine"
		return out, nil
	}
	if out.State, err = m.QueryPower(ctx, in.SystemID); err != nil && !transient(err) {
		return out, fault.MAAS(ctx, err)
	}
	if out.Done = out.State == want; out.Done || in.ObserveOnly {
		return out, nil
	}
	if err := a.belongs(ctx, m, in, got); err != nil {
		return out, err
	}
	out.State, err = ask(ctx, m, in, want)
	out.Done = err == nil
	return out, err
}

// ask sends the request until MAAS has taken it, and queries until it is so.
func ask(ctx context.Context, m providers.MAAS, in MachineIn, want string) (string, error) {
	limit, cancel := context.WithTimeout(ctx, powerPatience)
	defer cancel()
	var sent once
	state := "unknown"
	_, err := poll(limit, m, in.SystemID, in.Poll.D(), func(providers.MAASMachine) error {
		if err := sent.send(limit, func() error {
			if want == powerOn {
				return m.PowerOn(limit, in.SystemID)
			}
			return m.PowerOff(limit, in.SystemID, true)
		}); err != nil {
			return err
		}
		if now, err := m.QueryPower(limit, in.SystemID); err == nil {
			state = now
		}
		if state == want {
			return nil
		}
		return errKeepWaiting
	})
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return state, fault.New(lifecycle.FailPowerNotConfirmed, "machine %s should be %s and MAAS reads %s after %s", in.SystemID, want, state, powerPatience)
	}
	return state, err
}
