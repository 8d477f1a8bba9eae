package decommission

import (
	"go.temporal.io/sdk/workflow"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// The second half of a migration: the node goes on on other hardware.

func (s *State) hardwareIn(at string) nodestateact.HardwareIn {
	return nodestateact.HardwareIn{JobRef: s.Job.At(at), Poll: s.Config.Profile.PollInterval}
}

// replaceHardware waits for an operator to name the new hardware. It cannot be undone, since the
// old hardware may be erased or gone.
func replaceHardware(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageReplaceHardware
	f, err := stage.Do(ctx, stage.KindPoll, "wait for the new hardware to be named", nodeActs.ReplaceHardware, s.hardwareIn(at))
	if err != nil {
		return err
	}
	s.recordHardware(f)
	return s.ReadNode(ctx, at)
}

// recordHardware keeps the last boot of the old hardware from the first time.
func (s *State) recordHardware(f contract.HardwareFacts) {
	if s.Hardware.Done {
		f.BootID = s.Hardware.BootID
	}
	s.Hardware = f
}

func observeReplaced(ctx workflow.Context, s *State) (stage.Observation, error) {
	const at = lifecycle.StageReplaceHardware
	in := s.hardwareIn(at)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the planned hardware", nodeActs.ReplaceHardware, in)
	if err != nil || !f.Done {
		return stage.Observation{State: "not replaced", Note: f.Note}, err
	}
	s.recordHardware(f)
	return stage.Observation{Done: true, State: "replaced", Note: f.Note}, s.ReadNode(ctx, at)
}

// newSystemIn asks for the system on the new hardware: an agent that was
// installed, or the one that moved, in a boot of its own.
func (s *State) newSystemIn(ctx workflow.Context) nodestateact.SystemIn {
	in := s.SystemIn(ctx, lifecycle.StageBootHardware, s.Hardware.BootID)
	in.Purpose, in.Healthy = lifecycle.NetbootInstall, true
	if s.Hardware.Moved {
		in.Purpose = ""
	}
	return in
}

// bootHardware installs the new hardware, or starts it with the disks of the
// old, and waits for an agent whose report meets the SKU. Without a BMC whoever
// puts the machine in place also switches it on.
func bootHardware(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageBootHardware
	if !s.Hardware.Moved {
		if err := s.Arm(ctx, at, lifecycle.NetbootInstall); err != nil {
			return err
		}
	}
	if err := s.ReadNode(ctx, at); err != nil {
		return err
	}
	in := s.newSystemIn(ctx)
	f, err := s.LookAtSystem(ctx, in)
	if err != nil {
		return err
	}
	if !f.Done && f.BootID == s.Hardware.BootID {
		if err := s.startHardware(ctx, at); err != nil {
			return err
		}
	}
	if !f.Done {
		if f, err = s.WaitForSystem(ctx, in); err != nil {
			return err
		}
	}
	if err := s.sameMachine(f); err != nil {
		return err
	}
	return s.ReadNode(ctx, at)
}

// startHardware starts the machine that the node is on. Without a BMC somebody does: whoever puts
// new hardware in place, and for a node that keeps its own an operator, who is asked.
func (s *State) startHardware(ctx workflow.Context, at string) error {
	switch {
	case s.Node.BMCID != "":
		return s.RestartMachine(ctx, at)
	case s.Request.Disks == diskSame:
		return s.AskForRestart(ctx, at)
	}
	return nil
}

// sameMachine refuses a machine that is another than the one that was named.
func (s *State) sameMachine(f contract.SystemFacts) error {
	planned, shown := spec.NormalSerial(s.Hardware.Serial), spec.NormalSerial(f.Serial)
	if planned == "" || shown == "" || spec.SameSerial(planned, shown) {
		return nil
	}
	return stage.Fail(lifecycle.FailStateDisagreement,
		"the machine says that its serial number is %s, and %s was planned; boot the right one and rerun, or cancel, and migrate again with what is true", f.Serial, s.Hardware.Serial)
}

func observeHardware(ctx workflow.Context, s *State) (stage.Observation, error) {
	const at = lifecycle.StageBootHardware
	f, err := s.LookAtSystem(ctx, s.newSystemIn(ctx))
	if err != nil || !f.Done {
		return stage.Observation{State: "not booted", Note: f.Note}, err
	}
	if err := s.sameMachine(f); err != nil {
		return stage.Observation{State: "another machine", Note: "serial number " + f.Serial}, nil //nolint:nilerr // an observation, not a failure
	}
	return stage.Observation{Done: true, State: "booted", Note: f.Note}, s.ReadNode(ctx, at)
}

// retirePXE shuts the agent's identity out and retires the node, which gives its
// addresses back.
func (s *State) retirePXE(ctx workflow.Context) error {
	const at = lifecycle.StageRetireNode
	f, err := stage.Do(ctx, stage.KindLocalWork, "shut the agent's identity out", nodeActs.RevokeIdentity, s.Job.At(at))
	if err != nil {
		return err
	}
	if !f.Done {
		return stage.Fail(lifecycle.FailInternal, "the identity is not revoked: %s", f.Note)
	}
	if err := s.move(ctx, at, lifecycle.NodeDeprovisioning, lifecycle.NodeRetired, s.ModeInfo().Owner, nil, s.Note("has erased the node and proven it clean")); err != nil {
		return err
	}
	s.Retired = true
	return nil
}
