package ipmi

import (
	"context"
	"errors"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/chassis"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// powerPlan says which chassis control carries out an intent and which state
// proves it. An empty goal means that no state proves it (NMI).
type powerPlan struct {
	goal    providers.PowerState
	control chassis.ChassisControl
	effect  effect
	limit   time.Duration
}

// planFor never uses the power cycle and the hard reset of IPMI: each one sent
// counts, so a repeat is a second one.
func (b *BMC) planFor(intent providers.PowerIntent) (powerPlan, bool) {
	switch intent {
	case providers.IntentOn:
		return powerPlan{providers.PowerOn, chassis.ChassisControlPowerUp, changes, b.opts.PowerTimeout}, true
	case providers.IntentForceOff:
		return powerPlan{providers.PowerOff, chassis.ChassisControlPowerDown, changes, b.opts.PowerTimeout}, true
	case providers.IntentGracefulOff:
		return powerPlan{providers.PowerOff, chassis.ChassisControlSoftShutdown, counted, b.opts.GracefulTimeout}, true
	case providers.IntentNMI:
		return powerPlan{"", chassis.ChassisControlDiagnosticInterrupt, counted, 0}, true
	}
	return powerPlan{}, false
}

// status reads the chassis.
func (b *BMC) status(ctx context.Context, op string) (chassis.GetChassisStatusResponse, error) {
	var res chassis.GetChassisStatusResponse
	err := b.ask(ctx, op, &chassis.GetChassisStatusRequest{}, &res, reads)
	return res, err
}

// Power reads the power state, On or Off; IPMI knows none in between.
func (b *BMC) Power(ctx context.Context) (providers.PowerState, error) {
	return b.power(ctx, "ipmi.power")
}

func (b *BMC) power(ctx context.Context, op string) (providers.PowerState, error) {
	res, err := b.status(ctx, op)
	switch {
	case err != nil:
		return providers.PowerUnknown, err
	case res.PowerIsOn:
		return providers.PowerOn, nil
	}
	return providers.PowerOff, nil
}

// SetPower asks for a state and waits until it is observed. A system already
// there gets no request. It returns the state last seen.
//
// Errors: KindBusy or KindStateConflict when On stays refused, KindUnsupported
// for what the BMC does not know, KindUncertain when a request was sent and
// the final state was not seen: read before repeating.
func (b *BMC) SetPower(ctx context.Context, intent providers.PowerIntent) (providers.PowerState, error) {
	const op = "ipmi.set_power"
	plan, ok := b.planFor(intent)
	if !ok {
		return providers.PowerUnknown, invalid(op, "unknown power intent")
	}
	state, err := b.power(ctx, op)
	switch {
	case err != nil:
		return providers.PowerUnknown, err
	case plan.goal != "" && state == plan.goal:
		return state, nil
	case plan.goal == "" && state != providers.PowerOn:
		return state, &providers.Error{Kind: providers.KindStateConflict, Op: op, Message: "an NMI needs a system that is on; it reads " + string(state)}
	}
	err = b.control(ctx, op, plan)
	switch {
	case err != nil && (plan.goal == "" || !providers.IsKind(err, providers.KindUncertain)):
		return state, err
	case plan.goal == "":
		return state, nil
	}
	return b.confirm(ctx, op, plan, state)
}

// control sends the chassis control. An On that is refused is tried again for
// a while: many BMCs take none right after an off. A refusal in the wanted
// state is success.
func (b *BMC) control(ctx context.Context, op string, plan powerPlan) error {
	for try := 0; ; try++ {
		_, err := b.run(ctx, op, &chassis.ChassisControlRequest{ChassisControl: plan.control}, plan.effect)
		if err == nil || providers.IsKind(err, providers.KindUncertain) {
			return err
		}
		if _, answered := codeOf(err); !answered {
			return err
		}
		if plan.goal != "" {
			if now, rerr := b.power(ctx, op); rerr == nil && now == plan.goal {
				return nil
			}
		}
		passing := providers.IsKind(err, providers.KindBusy) || providers.IsKind(err, providers.KindStateConflict) || providers.IsKind(err, providers.KindUnavailable)
		if plan.goal != providers.PowerOn || !passing || try >= b.opts.ConflictRetries {
			return err
		}
		if poll.Sleep(ctx, b.opts.ConflictWait) != nil {
			return err
		}
	}
}

// confirm polls with back-off for the final state. A BMC that does not answer
// for a moment is tolerated, a refused login is not.
func (b *BMC) confirm(ctx context.Context, op string, plan powerPlan, last providers.PowerState) (providers.PowerState, error) {
	ctx, cancel := context.WithTimeout(ctx, plan.limit)
	defer cancel()
	for pause := b.opts.PollMin; ; pause = min(2*pause, b.opts.PollMax) {
		now, err := b.power(ctx, op)
		if err == nil {
			last = now
			if now == plan.goal {
				return now, nil
			}
		} else if !passes(err) {
			return last, err
		}
		if werr := poll.Sleep(ctx, pause); werr != nil {
			return last, &providers.Error{Kind: providers.KindUncertain, Op: op, Err: werr,
				Message: "the system did not reach the wanted power state in time; it last read " + string(last)}
		}
	}
}

// passes: a later read may well succeed.
func passes(err error) bool {
	var pe *providers.Error
	if !errors.As(err, &pe) {
		return true
	}
	switch pe.Kind {
	case providers.KindUnreachable, providers.KindUnavailable, providers.KindBusy, providers.KindProtocol:
		return true
	default:
		return false
	}
}
