package redfish

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// CycleStep names a step of PowerCycle that has been completed.
type CycleStep string

// The steps, in order.
const (
	CycleStarted CycleStep = ""
	CycleOff     CycleStep = "off"     // off was confirmed and the settle time passed
	CycleBootSet CycleStep = "bootset" // the override reads back, or none was asked for
	CycleOn      CycleStep = "on"      // on was confirmed
)

// CycleOptions shape one power cycle. Zero waits take the values of the
// procedure: 2 minutes for off, 10 seconds to settle, 4 minutes for on (which
// includes the retries of a refused On).
type CycleOptions struct {
	OffTimeout, Settle, OnTimeout time.Duration
	// Boot is the one-time override to set while the system is off; BootNone
	// clears one, "" leaves it as it is.
	Boot providers.BootTarget
	UEFI bool
	// After is the step that an earlier run had completed. With it a repetition after a lost worker
	// does not switch off a system that is already booting.
	After CycleStep
	// Done is called after each step, for heartbeats; nil is fine.
	Done func(CycleStep)
}

// CycleResult is what a power cycle observed. The caller has to prove that the machine has really
// booted again, by a new boot id.
type CycleResult struct {
	Override providers.BootOverride
	Power    providers.PowerState
	Step     CycleStep // last completed step
}

// PowerCycle forces the system off, confirms it, lets it settle, sets the override if one is asked
// for, powers on and confirms that. It uses Off and On instead of ForceRestart, since some BMCs
// lose an override in a warm restart. With an error the result has the last completed step.
func PowerCycle(ctx context.Context, bmc providers.BMC, o CycleOptions) (CycleResult, error) {
	orElse(&o.OffTimeout, 2*time.Minute)
	orElse(&o.Settle, 10*time.Second)
	orElse(&o.OnTimeout, 4*time.Minute)
	res := CycleResult{Step: o.After, Power: providers.PowerUnknown}
	done := func(s CycleStep) {
		res.Step = s
		if o.Done != nil {
			o.Done(s)
		}
	}
	if res.Step == CycleStarted {
		if err := cycleOff(ctx, bmc, o, &res); err != nil {
			return res, err
		}
		done(CycleOff)
	}
	if res.Step == CycleOff {
		if o.Boot != "" {
			var err error
			if res.Override, err = bmc.SetBootOnce(ctx, o.Boot, o.UEFI); err != nil {
				return res, err
			}
		}
		done(CycleBootSet)
	}
	if res.Step == CycleBootSet {
		var err error
		if res.Power, err = setWithin(ctx, bmc, providers.IntentOn, o.OnTimeout); err != nil {
			return res, err
		}
		if res.Power != providers.PowerOn {
			return res, notReached("on", res.Power)
		}
		done(CycleOn)
	}
	return res, nil
}

func cycleOff(ctx context.Context, bmc providers.BMC, o CycleOptions, res *CycleResult) error {
	var err error
	if res.Power, err = setWithin(ctx, bmc, providers.IntentForceOff, o.OffTimeout); err != nil {
		return err
	}
	if res.Power != providers.PowerOff {
		return notReached("off", res.Power)
	}
	// Power supplies and drives need a moment before power returns.
	if err := poll.Sleep(ctx, o.Settle); err != nil {
		return &providers.Error{Kind: providers.KindUncertain, Op: "redfish.power_cycle", Err: err,
			Message: "the power cycle was interrupted while the system is off"}
	}
	return nil
}

func setWithin(ctx context.Context, bmc providers.BMC, intent providers.PowerIntent, limit time.Duration) (providers.PowerState, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	state, err := bmc.SetPower(ctx, intent)
	var pe *providers.Error
	if err != nil && !errors.As(err, &pe) {
		return state, &providers.Error{Kind: providers.KindUncertain, Op: "redfish.power_cycle", Err: err,
			Message: "the power state could not be confirmed"}
	}
	return state, err
}

func notReached(want string, got providers.PowerState) error {
	return &providers.Error{Kind: providers.KindUncertain, Op: "redfish.power_cycle",
		Message: "the system was asked to be " + want + " but reads " + string(got)}
}
