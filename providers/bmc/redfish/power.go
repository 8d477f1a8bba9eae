package redfish

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// powerPlan says which reset types carry out an intent, best first, and which
// state proves it. An empty goal means that no state proves it (NMI).
type powerPlan struct {
	goal  providers.PowerState
	types []schemas.ResetType
}

// planFor never maps to PushPowerButton: it toggles, so a repeat undoes it.
func planFor(intent providers.PowerIntent) (powerPlan, bool) {
	switch intent {
	case providers.IntentOn:
		return powerPlan{providers.PowerOn, []schemas.ResetType{schemas.OnResetType, schemas.ForceOnResetType}}, true
	case providers.IntentGracefulOff:
		return powerPlan{providers.PowerOff, []schemas.ResetType{schemas.GracefulShutdownResetType}}, true
	case providers.IntentForceOff:
		return powerPlan{providers.PowerOff, []schemas.ResetType{schemas.ForceOffResetType}}, true
	case providers.IntentNMI:
		return powerPlan{"", []schemas.ResetType{schemas.NmiResetType}}, true
	}
	return powerPlan{}, false
}

// SetPower asks for a state and waits until it is observed. A system already
// there gets no request. It returns the state last seen.
//
// Errors: KindUnsupported when the BMC offers no fitting reset type, KindBusy
// when On stays refused or the system is in its self-test, KindUncertain when
// a reset was sent and the final state was not seen: read before repeating.
func (b *BMC) SetPower(ctx context.Context, intent providers.PowerIntent) (providers.PowerState, error) {
	op := newOperation("set_power", b.opts.MaxListRequests)
	plan, ok := planFor(intent)
	if !ok {
		return providers.PowerUnknown, &providers.Error{Kind: providers.KindInvalid, Op: op.name, Message: "unknown power intent"}
	}
	system, uri, err := b.system(ctx, op)
	if err != nil {
		return providers.PowerUnknown, err
	}
	state := powerOf(system)
	switch {
	case plan.goal != "" && state == plan.goal:
		return state, nil
	case plan.goal == "" && state != providers.PowerOn:
		return state, &providers.Error{Kind: providers.KindStateConflict, Op: op.name,
			Message: "an NMI needs a system that is on; it reads " + string(state)}
	}
	resetType, target, err := b.chooseReset(ctx, op, system, plan.types)
	if err != nil {
		return state, err
	}
	p := &powerChange{b: b, op: op, uri: uri, plan: plan, last: state}
	return p.run(ctx, resetType, target)
}

// chooseReset picks the first wanted type that the BMC allows, from the inline
// list or the ActionInfo. A BMC that lists nothing is asked for the first.
func (b *BMC) chooseReset(ctx context.Context, op *operation, system doc, wanted []schemas.ResetType) (schemas.ResetType, string, error) {
	unsupported := func(message string) (schemas.ResetType, string, error) {
		return "", "", &providers.Error{Kind: providers.KindUnsupported, Op: op.name, Message: message}
	}
	target := resetTarget(system)
	if target == "" {
		return unsupported("the system has no reset action")
	}
	action := system.sub("Actions", "#ComputerSystem.Reset")
	allowed := action.texts("ResetType@Redfish.AllowableValues")
	pick := func() (schemas.ResetType, bool) {
		for _, w := range wanted {
			if slices.Contains(allowed, string(w)) {
				return w, true
			}
		}
		return "", false
	}
	if t, ok := pick(); ok {
		return t, target, nil
	}
	if info := action.text("@Redfish.ActionInfo"); info != "" {
		d, err := b.conn.get(ctx, op, info)
		if err != nil && !passable(err) {
			return "", "", err
		}
		for _, p := range d.docs("Parameters") {
			if p.text("Name") == "ResetType" {
				allowed = append(allowed, p.texts("AllowableValues")...)
			}
		}
	}
	if t, ok := pick(); ok {
		return t, target, nil
	}
	if len(allowed) == 0 {
		return wanted[0], target, nil
	}
	return unsupported("the BMC does not offer the reset type " + string(wanted[0]))
}

// powerChange is one SetPower under way.
type powerChange struct {
	b    *BMC
	op   *operation
	uri  string
	plan powerPlan
	last providers.PowerState
}

func (p *powerChange) run(ctx context.Context, resetType schemas.ResetType, target string) (providers.PowerState, error) {
	if p.plan.goal == providers.PowerOn {
		if p.last == providers.PowerPoweringOff {
			// On sent while it still goes down is swallowed by some BMCs.
			if _, err := p.until(ctx, p.timeout(resetType), func(s providers.PowerState) bool { return s != providers.PowerPoweringOff }); err != nil {
				return p.last, err
			}
		}
		if p.last == providers.PowerPoweringOn {
			return p.confirm(ctx, p.timeout(resetType))
		}
		if p.last == providers.PowerOn {
			return p.last, nil
		}
	}
	if err := p.reset(ctx, resetType, target); err != nil {
		return p.last, err
	}
	if p.plan.goal == "" || p.last == p.plan.goal {
		return p.last, nil
	}
	return p.confirm(ctx, p.timeout(resetType))
}

func (p *powerChange) timeout(t schemas.ResetType) time.Duration {
	if t == schemas.GracefulShutdownResetType {
		return p.b.opts.GracefulTimeout
	}
	return p.b.opts.PowerTimeout
}

// reset sends the reset. Whatever the answer, the state is read afresh before
// an error counts: a refusal in the wanted state is success.
func (p *powerChange) reset(ctx context.Context, resetType schemas.ResetType, target string) error {
	for try := 0; ; try++ {
		err := p.b.change(ctx, p.op, http.MethodPost, target, map[string]string{"ResetType": string(resetType)}, nil)
		if err == nil {
			return nil
		}
		var pe *providers.Error
		if !errors.As(err, &pe) {
			return err
		}
		if outcomeUnknown(pe) {
			return p.settle(ctx, pe)
		}
		if stopsAll(pe) {
			return err
		}
		if rerr := p.read(ctx); rerr == nil && p.plan.goal != "" && p.last == p.plan.goal {
			return nil
		}
		if p.plan.goal != providers.PowerOn || pe.Status != http.StatusConflict {
			return err
		}
		if try >= p.b.opts.ConflictRetries {
			return &providers.Error{Kind: providers.KindBusy, Op: p.op.name, Status: pe.Status,
				Message: "the BMC keeps refusing to power on; it may still be busy after the last power-off"}
		}
		if werr := poll.Sleep(ctx, max(p.b.opts.ConflictWait, min(pe.RetryAfter, 3*p.b.opts.ConflictWait))); werr != nil {
			return &providers.Error{Kind: providers.KindBusy, Op: p.op.name, Status: pe.Status, Err: werr,
				Message: "the BMC refused to power on, and time ran out before the next try"}
		}
	}
}

// outcomeUnknown: no answer, or an answer of something in between.
func outcomeUnknown(pe *providers.Error) bool {
	return pe.Kind == providers.KindUncertain || pe.Status == 500 || pe.Status == 502 || pe.Status == 504
}

// stopsAll: no re-read can help.
func stopsAll(pe *providers.Error) bool {
	switch pe.Kind {
	case providers.KindUnauthorized, providers.KindLocked, providers.KindPinMismatch, providers.KindForeign,
		providers.KindPasswordChangeRequired, providers.KindForbidden, providers.KindUnreachable:
		return true
	default:
		return errors.Is(pe, errSessionEnded)
	}
}

// settle looks at the state after a lost answer. The reset is not sent again:
// that is for the caller, after a fresh read.
func (p *powerChange) settle(ctx context.Context, lost *providers.Error) error {
	before := p.last
	if p.plan.goal != "" {
		_, err := p.until(ctx, p.b.opts.LostAnswerWait, func(s providers.PowerState) bool {
			return s == p.plan.goal || (s != before && s != providers.PowerUnknown)
		})
		if err == nil {
			return nil // it moves: confirm waits for the final state
		}
		if pe := (*providers.Error)(nil); errors.As(err, &pe) && pe.Kind != providers.KindUncertain && stopsAll(pe) {
			return err
		}
	}
	return &providers.Error{Kind: providers.KindUncertain, Op: p.op.name, Status: lost.Status, Err: lost.Err,
		Message: "the reset was sent but its answer was lost, and the system reads " + string(p.last) + "; read the state before repeating it"}
}

// confirm waits for the final state.
func (p *powerChange) confirm(ctx context.Context, timeout time.Duration) (providers.PowerState, error) {
	return p.until(ctx, timeout, func(s providers.PowerState) bool { return s == p.plan.goal })
}

func (p *powerChange) read(ctx context.Context) error {
	d, err := p.b.conn.get(ctx, p.op, p.uri)
	if err == nil {
		p.last = powerOf(d)
	}
	return err
}

// until polls with back-off. A BMC that does not answer for a moment is
// tolerated, a rejected login or a foreign link is not.
func (p *powerChange) until(ctx context.Context, timeout time.Duration, reached func(providers.PowerState) bool) (providers.PowerState, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := p.b.opts.PollMin; ; pause = p.b.longer(pause) {
		err := p.read(ctx)
		if err == nil && reached(p.last) {
			return p.last, nil
		}
		var pe *providers.Error
		switch {
		case !errors.As(err, &pe) || pe.Kind == providers.KindUnreachable:
		case errors.Is(pe, errSessionEnded):
			return p.last, &providers.Error{Kind: providers.KindUncertain, Op: p.op.name, Status: pe.Status, Err: errSessionEnded,
				Message: "the BMC ended the session before the power state was confirmed; open it again and read the state"}
		case stopsAll(pe) || pe.Kind == providers.KindTooBig:
			return p.last, err
		}
		if werr := poll.Sleep(ctx, pause); werr != nil {
			return p.last, &providers.Error{Kind: providers.KindUncertain, Op: p.op.name, Err: werr,
				Message: "the system did not reach the wanted power state in time; it last read " + string(p.last)}
		}
	}
}
