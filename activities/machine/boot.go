package machine

import (
	"context"
	"errors"
	"time"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
)

// ReadBootID reads the boot id of a machine before a reboot.
func (a *Activities) ReadBootID(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.open(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	if s.adapter.Inspect == nil {
		return StepFacts{}, s.lacks(runplan.CapInspect)
	}
	limit := s.step.Timeout()
	byBMC := s.step.Reboot != nil && s.step.Reboot.Mode == runplan.RebootBMC
	if byBMC {
		limit = s.hungAfter()
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	id, err := s.awaitBootID(limited, "")
	if byBMC && ctx.Err() == nil && isNoAnswer(err) {
		return s.facts("the machine does not answer; its BMC restarts it all the same"), nil
	}
	if err != nil {
		return StepFacts{}, s.bootFailure(ctx, err, "the machine did not answer within %s, so that its restart could not be proven", s.step.Timeout())
	}
	facts := s.facts("the boot id is %s", id)
	facts.BootID = id
	return facts, nil
}

// RebootIn is the input of Reboot. Before is the boot id of before, "" of a machine that did not
// answer. Ordered says that a call before may have ordered the restart.
type RebootIn struct {
	StepIn
	Before  string `json:"before"`
	Ordered bool   `json:"ordered,omitempty"`
}

// longestHung bounds how long a machine may give no answer before its BMC restarts it.
const longestHung = 2 * time.Minute

// hungAfter is how long a machine may give no answer before its BMC restarts it.
func (s *session) hungAfter() time.Duration { return min(s.step.Timeout()/4, longestHung) }

// isNoAnswer reports whether a machine gave no answer, none in time, or none that names a boot.
func isNoAnswer(err error) bool {
	switch providers.KindOf(err) { //nolint:exhaustive // the others are answers
	case providers.KindUnreachable, providers.KindUncertain, providers.KindBusy, providers.KindProtocol:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// Reboot restarts a machine and returns when it answers with another boot id than before. It asks
// for no restart when there is another one already. A machine that gives no answer is restarted by
// its BMC, unless a call before has ordered that: then it is switched on and nothing is cut.
func (a *Activities) Reboot(ctx context.Context, in RebootIn) (StepFacts, error) {
	s, err := a.open(ctx, in.StepIn)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Reboot == nil || s.adapter.Inspect == nil {
		return StepFacts{}, s.lacks(runplan.CapInspect)
	}
	timeout := s.step.Timeout()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ordered := in.Ordered || isRepeated(ctx, in.StepIn)
	now, err := s.askBootID(limited, ordered)
	switch {
	case err == nil && (now == in.Before || in.Before == ""): // without a boot id of before nothing proves a restart
		in.Before = now
		err = s.restart(limited)
	case err != nil && !ordered && isNoAnswer(err) && s.step.Reboot.Mode == runplan.RebootBMC:
		err = s.restart(limited) // it hangs
	case err != nil && s.hasNodePower(): // an attempt before may have left it off
		err = s.switchPower(limited, s.a.Power.PowerOnByBMC)
	default:
		err = nil // it restarts already, or has done so
	}
	if err != nil {
		return StepFacts{}, s.bootFailure(ctx, err, "the machine took no order to restart within %s", timeout)
	}
	id, err := s.awaitBootID(limited, in.Before)
	if err != nil {
		return StepFacts{}, s.bootFailure(ctx, err, "the machine did not come back with a new boot id within %s", timeout)
	}
	facts := s.facts("the machine restarted; its boot id is %s", id)
	facts.BootID = id
	return facts, nil
}

// askBootID returns the boot id of the machine now. Where no restart was ordered it waits a while
// for an answer.
func (s *session) askBootID(ctx context.Context, ordered bool) (string, error) {
	if !ordered {
		limited, cancel := context.WithTimeout(ctx, s.hungAfter())
		defer cancel()
		return s.awaitBootID(limited, "")
	}
	now, err := s.adapter.Inspect.Inspect(ctx, s.target)
	s.record(ctx, err)
	return now.BootID, err
}

// restart asks for a restart. A machine that goes down before it has answered is no error: the boot
// id decides. A simulated machine has no system that could restart it from within.
func (s *session) restart(ctx context.Context) error {
	if err := s.checkRight(ctx); err != nil {
		return err
	}
	if s.hasNodePower() {
		return s.switchPower(ctx, s.a.Power.PowerCycleByBMC)
	}
	if s.step.Reboot.Mode == runplan.RebootBMC || s.adapter.Simulated {
		if s.adapter.PowerControl == nil {
			return s.lacks(runplan.CapPowerControl)
		}
		return s.adapter.PowerControl.Reboot(ctx, s.target)
	}
	if s.adapter.RemoteExec == nil {
		return s.lacks(runplan.CapRemoteExec)
	}
	script := s.a.RebootScript
	if script == "" {
		script = DefaultRebootScript
	}
	c := providers.RemoteCommand{OpID: s.opID(".reboot"), Script: script, Timeout: time.Minute}
	res, err := s.adapter.RemoteExec.Exec(ctx, s.target, c, func(context.Context, providers.OutputChunk) error { return nil })
	s.record(ctx, err)
	switch kind := providers.KindOf(err); {
	case err == nil && res.ExitCode != 0 && res.ExitCode < 128:
		return fault.New(lifecycle.FailCommand, "the order to restart ended with exit status %d", res.ExitCode)
	case kind == providers.KindUncertain, kind == providers.KindBusy, kind == providers.KindUnreachable:
		return nil
	}
	return err
}

// hasNodePower reports whether the step goes through the BMC of the node that the machine is linked
// to, or through its own, because the adapter of the machine reaches none.
func (s *session) hasNodePower() bool {
	return s.step.Reboot.Mode == runplan.RebootBMC && s.adapter.PowerControl == nil && (s.machine.NodeID != nil || s.machine.BMCID != nil) && s.a.Power != nil
}

// switchPower has the BMC of the node do something.
func (s *session) switchPower(ctx context.Context, do func(context.Context, bmcact.PowerIn) (contract.PowerFacts, error)) error {
	bmc, err := s.nodeBMC(ctx)
	if err == nil {
		err = s.checkRight(ctx)
	}
	if err != nil {
		return err
	}
	_, err = do(ctx, bmcact.PowerIn{JobRef: s.in.JobRef, BMCID: bmc.ID, CAPEM: s.site.Spec.BMCCAPEM})
	return err
}

// awaitBootID returns the boot id of the machine when it is another one than before.
func (s *session) awaitBootID(ctx context.Context, before string) (string, error) {
	for {
		if err := s.checkRight(ctx); err != nil {
			return "", err
		}
		facts, err := s.adapter.Inspect.Inspect(ctx, s.target)
		s.record(ctx, err)
		switch kind := providers.KindOf(err); {
		case err == nil && facts.BootID != "" && facts.BootID != before:
			return facts.BootID, nil
		case err == nil, kind == providers.KindUnreachable, kind == providers.KindUncertain, kind == providers.KindBusy:
		default:
			return "", err
		}
		if err := poll.Sleep(ctx, s.a.poll()); err != nil {
			return "", err
		}
	}
}

// bootFailure types the error of a restart. With the time of the attempt over it says what was
// awaited.
func (s *session) bootFailure(ctx context.Context, err error, format string, timeout time.Duration) error {
	if _, typed := fault.Failure(err); typed && ctx.Err() == nil {
		return err // of the BMC
	}
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || providers.IsKind(err, providers.KindUnreachable)) {
		return fault.New(lifecycle.FailPowerNotConfirmed, format, timeout)
	}
	return s.failureOf(ctx, err)
}

// devices has the device of each mode of SetNetboot.
var devices = map[string]providers.BootTarget{
	runplan.NetbootPXE: providers.BootPXE, runplan.NetbootUEFIHTTP: providers.BootUEFIHTTP, runplan.NetbootDisk: providers.BootHDD,
}

// SetNetboot sets the device of the next boot of a machine, and reads it back. The machine of a
// node has to be the one of its record. A failure before anything was sent to the BMC of its node
// is marked CommandUnsent.
func (a *Activities) SetNetboot(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.read(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Netboot == nil {
		return StepFacts{}, s.lacks(runplan.CapNetboot)
	}
	return s.setDevice(ctx, devices[s.step.Netboot.Mode])
}

// ClearNetboot leaves the next boot of a machine to its firmware.
func (a *Activities) ClearNetboot(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.readToUndo(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	return s.setDevice(ctx, providers.BootNone)
}

func (s *session) setDevice(ctx context.Context, device providers.BootTarget) (StepFacts, error) {
	if s.adapter.Netboot == nil {
		return s.setNodeDevice(ctx, device)
	}
	if err := s.adapter.Netboot.SetNetboot(ctx, s.target, device); err != nil {
		return StepFacts{}, s.failureOf(ctx, err)
	}
	facts, err := s.readDevice(ctx)
	if err == nil && facts.Netboot != nameOf(device) {
		return StepFacts{}, fault.New(lifecycle.FailStateDisagreement, "the next boot was set to %s, and the machine says %q", device, facts.Netboot)
	}
	return facts, err
}

// ReadNetboot reads the device of the next boot of a machine.
func (a *Activities) ReadNetboot(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.readToUndo(ctx, in)
	if err != nil {
		return StepFacts{}, err
	}
	return s.readDevice(ctx)
}

func (s *session) readDevice(ctx context.Context) (StepFacts, error) {
	if s.adapter.Netboot == nil {
		return s.readNodeDevice(ctx)
	}
	device, err := s.adapter.Netboot.Netboot(ctx, s.target)
	if err != nil {
		return StepFacts{}, s.failureOf(ctx, err)
	}
	return s.deviceFacts(device), nil
}

func (s *session) deviceFacts(device providers.BootTarget) StepFacts {
	facts := s.facts("the next boot comes from %s", device)
	facts.Netboot = nameOf(device)
	return facts
}

// nameOf returns the name of a device, "" for none.
func nameOf(device providers.BootTarget) string {
	if device == providers.BootNone {
		return ""
	}
	return string(device)
}
