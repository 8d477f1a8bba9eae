package maas

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// powerTimeout is how long a requested power state may take.
const powerTimeout = 8 * time.Minute

// The power states as MAAS writes them.
const (
	powerOn  = "on"
	powerOff = "off"
)

// PowerOffByMAAS switches the machine off and confirms it by a power query of MAAS. Done is false
// when the machine is absent or MAAS cannot control its power: then somebody else has to confirm
// it. Repeatable.
func (a *Activities) PowerOffByMAAS(ctx context.Context, in MachineIn) (contract.PowerFacts, error) {
	return a.setPower(ctx, in, powerOff)
}

// PowerOnByMAAS switches the machine on and confirms it, as PowerOffByMAAS.
func (a *Activities) PowerOnByMAAS(ctx context.Context, in MachineIn) (contract.PowerFacts, error) {
	return a.setPower(ctx, in, powerOn)
}

func (a *Activities) setPower(ctx context.Context, in MachineIn, want string) (contract.PowerFacts, error) {
	out := contract.PowerFacts{ReportedBy: "MAAS", State: "unknown"}
	m, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return out, err
	}
	if got == nil {
		out.Note = notInMAAS
		return out, nil
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
	if err := a.checkBelongs(ctx, m, in, *got); err != nil {
		return out, err
	}
	out.State, err = requestPower(ctx, m, in, want)
	out.Done = err == nil
	return out, err
}

// requestPower sends the request until MAAS accepts it, and reads until the machine has that power
// state.
func requestPower(ctx context.Context, m providers.MAAS, in MachineIn, want string) (string, error) {
	wait := powerTimeout
	if in.Within > 0 {
		wait = min(wait, in.Within)
	}
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var sent once
	state := "unknown"
	_, err := pollMachine(limit, m, in.SystemID, in.Poll.D(), func(providers.MAASMachine) error {
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
		return state, fault.New(lifecycle.FailPowerNotConfirmed, "machine %s should be %s and MAAS reads %s after %s", in.SystemID, want, state, wait)
	}
	return state, err
}
