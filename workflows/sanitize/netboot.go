package sanitize

import (
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// PXE nodes are erased from a live system that they boot from the network: no
// disk is in its way, and nothing of the installed system is needed.

// IsPXE reports whether the node is installed from the network, without MAAS.
func (s *State) IsPXE() bool { return s.ModeInfo().Lifecycle == lifecycle.NodePXE.Lifecycle }

// The steps of scrub and validation in a live system. They leave out accounts, keys and files,
// which come from the image at each boot; a tenant's are on the disks.
var (
	liveScrub    = []string{"mounts", "gpu_processes", "gpu_reset", "gpu_memory", "memory_overwrite_request", "disks"}
	liveValidate = []string{"fresh_boot", "mounts", "disks_blank", "hardware", "gpu_state", "gpu_fabric", "gpu_errors"}
)

// verifyNodeState confirms that the node is still in the state that the request has set: an
// admin may take it out of the job's hands at any time.
func (s *State) verifyNodeState() error {
	info := s.ModeInfo()
	switch {
	case s.Node.Status == info.Enters:
		return nil
	case s.Node.Status == lifecycle.NodeRetired && info.Ends == lifecycle.NodeRetired && (s.Retired || s.Validated):
		s.Retired = true // rerun from the top, perhaps after an answer that was lost
		return nil
	}
	return stage.Fail(lifecycle.FailStateDisagreement, "the node is %s and not %s: somebody took it out of this job's hands; cancel it", s.Node.Status, info.Enters)
}

// eraser is set once the live system has been armed.
func (s *State) eraser() bool { return s.Netboot.Purpose == lifecycle.NetbootErase }

// Arm makes the node boot from the network for a purpose. The installed system's report of its
// disks is kept from the first time.
func (s *State) Arm(ctx workflow.Context, at string, purpose lifecycle.Netboot) error {
	in := nodestateact.NetbootIn{JobRef: s.Job.At(at), Purpose: purpose}
	f, err := stage.Do(ctx, stage.KindLocalWork, "arm the netboot", nodeActs.ArmNetboot, in)
	if err != nil {
		return err
	}
	if s.Netboot.Purpose == purpose {
		f.BootID, f.Installed, f.Disks = s.Netboot.BootID, s.Netboot.Installed, s.Netboot.Disks
	} else if known := s.Netboot; known.Installed && purpose != lifecycle.NetbootErase {
		f.Installed, f.Disks = known.Installed, known.Disks
	}
	s.Netboot = f
	return nil
}

// bootEraser boots the live system and waits for its agent.
func bootEraser(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageBootEraser
	if err := s.Arm(ctx, at, lifecycle.NetbootErase); err != nil {
		return err
	}
	if err := s.ensureLiveSystem(ctx, at, s.Netboot.BootID); err != nil {
		return err
	}
	s.AgentUnreachable = ""
	return nil
}

// SystemIn asks for the system that was armed, in another boot than the one
// named.
func (s *State) SystemIn(ctx workflow.Context, at, notBoot string) nodestateact.SystemIn {
	return nodestateact.SystemIn{
		JobRef: s.Job.At(at), Purpose: s.Netboot.Purpose, NotBootID: notBoot, SKU: s.Config.SKU, Poll: s.Config.Profile.PollInterval,
		Until: stage.DeadlineAt(ctx).Add(-TaskMargin), Class: lifecycle.FailAgentNotEnrolled,
	}
}

// LookAtSystem reports whether the system that was armed runs already.
func (s *State) LookAtSystem(ctx workflow.Context, in nodestateact.SystemIn) (contract.SystemFacts, error) {
	in.ObserveOnly = true
	return stage.Do(ctx, stage.KindLocalWork, "look for the agent of the system", nodeActs.WaitForSystem, in)
}

// WaitForSystem waits for the system that was armed.
func (s *State) WaitForSystem(ctx workflow.Context, in nodestateact.SystemIn) (contract.SystemFacts, error) {
	return stage.Do(ctx, stage.KindPoll, "wait for the agent of the system", nodeActs.WaitForSystem, in)
}

// livePatience is how long a live system may take to boot and enrol.
const livePatience = time.Hour

// ensureLiveSystem ensures that the live system runs in another boot than notBoot. It restarts the
// machine by a power cycle at the BMC, or asks an operator once and then waits.
func (s *State) ensureLiveSystem(ctx workflow.Context, at, notBoot string) error {
	if err := s.ReadNode(ctx, at); err != nil {
		return err
	}
	in := s.SystemIn(ctx, at, notBoot)
	if last := workflow.Now(ctx).Add(livePatience); in.Until.After(last) {
		in.Until = last
	}
	here, err := s.LookAtSystem(ctx, in)
	if err != nil {
		return err
	}
	if !here.Done {
		if s.Node.BMCID != "" {
			err = s.RestartMachine(ctx, at)
		} else {
			err = s.requestManualRestart(ctx, at, &in)
		}
		if err != nil {
			return err
		}
		if _, err := s.WaitForSystem(ctx, in); err != nil {
			return err
		}
	}
	delete(s.RestartRequested, at)
	return s.ReadNode(ctx, at)
}

// RestartMachine power cycles the machine out of the boot that its agent was last
// heard from.
func (s *State) RestartMachine(ctx workflow.Context, at string) error {
	in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM, NotBootID: s.Node.BootID}
	f, err := stage.Do(ctx, stage.KindBMCCall, "power cycle at the BMC", bmc.PowerCycleByBMC, in)
	if err == nil {
		s.RecordPower(f)
	}
	return err
}

// handPatience is how long the job waits for the machine after an operator has reported that it was
// restarted by hand.
const handPatience = 20 * time.Minute

// requestManualRestart parks the job so that an operator restarts the machine. A retry waits for
// the machine, since booting takes a while.
func (s *State) requestManualRestart(ctx workflow.Context, at string, in *nodestateact.SystemIn) error {
	if err := s.AskForRestart(ctx, at); err != nil {
		return err
	}
	if last := workflow.Now(ctx).Add(handPatience); in.Until.After(last) {
		in.Until = last
	}
	in.Class = lifecycle.FailPowerNotConfirmed
	return nil
}

// AskForRestart fails the stage with what an operator has to do, and returns nil once the operator
// has retried it.
func (s *State) AskForRestart(ctx workflow.Context, at string) error {
	if s.RestartRequested[at] && stage.Attempt(ctx) == 1 {
		return nil
	}
	if s.RestartRequested == nil {
		s.RestartRequested = map[string]bool{}
	}
	s.RestartRequested[at] = true
	return stage.Fail(lifecycle.FailPowerNotConfirmed,
		"the machine must boot %s from the network, and Slipway knows no BMC of it; restart it by hand, then retry the stage", s.Netboot.Workflow)
}

func observeEraser(ctx workflow.Context, s *State) (stage.Observation, error) {
	if !s.eraser() {
		return stage.Observation{State: "not armed"}, nil
	}
	f, err := s.LookAtSystem(ctx, s.SystemIn(ctx, lifecycle.StageBootEraser, s.Netboot.BootID))
	if err != nil || !f.Done {
		return stage.Observation{State: "not booted", Note: f.Note}, err
	}
	s.AgentUnreachable = ""
	return stage.Observation{Done: true, State: "live", Note: f.Note}, s.ReadNode(ctx, lifecycle.StageBootEraser)
}

// scrubRetries is how often a scrub whose end nobody knows is asked for once more by
// itself in a live system: its journal ended with its boot, and to erase twice
// harms nothing.
const scrubRetries = 3

func (s *State) runScrub(ctx workflow.Context, a Task) (lifecycle.TaskResult, error) {
	r, err := s.RunTask(ctx, a)
	for n := 0; s.IsPXE() && n < scrubRetries && stage.ClassOf(err) == lifecycle.FailNodeTaskUncertain; n++ {
		r, err = s.RunTask(ctx, a)
	}
	return r, err
}
