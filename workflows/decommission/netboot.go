package decommission

import (
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// PXE nodes are erased from a live system that they boot from the network: no
// disk is in its way, and nothing of the installed system is needed.

func (s *State) pxe() bool { return s.mode().Lifecycle == lifecycle.NodePXE.Lifecycle }

// What is asked of the agent of a live system. Accounts, keys and files are
// those of its image, made anew at each boot; a tenant's are on the disks.
var (
	liveScrub    = []string{"mounts", "gpu_processes", "gpu_reset", "gpu_memory", "memory_overwrite_request", "disks"}
	liveValidate = []string{"fresh_boot", "mounts", "disks_blank", "hardware", "gpu_state", "gpu_fabric", "gpu_errors"}
)

// held confirms that the node is still in the state that the request has set: an
// admin may take it out of the job's hands at any time.
func (s *State) held() error {
	info := s.mode()
	switch {
	case s.Node.Status == info.Enters:
		return nil
	case s.Node.Status == lifecycle.NodeRetired && info.Ends == lifecycle.NodeRetired && (s.Retired || s.Validated):
		s.Retired = true // rerun from the top, perhaps after an answer that was lost
		return nil
	}
	return stage.Fail(lifecycle.FailStateDisagreement, "the node is %s and not %s: somebody took it out of this job's hands; cancel it", s.Node.Status, info.Enters)
}

// withoutAgentPXE stands in for a drain where no agent can be asked: the machine
// is switched off where that is possible. Without a BMC the restart that follows
// ends what runs.
func (s *State) withoutAgentPXE(ctx workflow.Context, at string) error {
	why := s.silence()
	if s.Node.BMCID == "" {
		s.Dark = why + "; the restart that follows ends what runs on it"
		return nil
	}
	off, err := s.power(ctx, at, false)
	switch {
	case err != nil:
		return err
	case !off:
		return stage.Fail(lifecycle.FailPowerNotConfirmed, "the node's agent cannot be asked to drain it (%s), and nobody confirms that the machine is off: %s", why, s.Power.TimelineNote())
	}
	s.Dark = why + "; its power is confirmed off"
	return nil
}

// past is why a stage about the old machine is not run any more.
func past(s *State) string {
	if s.Hardware.Done {
		return "the node is on its new hardware"
	}
	return ""
}

// spared is why the old machine is not erased.
func spared(s *State) string {
	if s.Request.Mode == lifecycle.ModeMigrate && !s.Request.EraseOld {
		return "the request does not ask for the old hardware to be erased"
	}
	return past(s)
}

// eraserNeedless is why the live system is not booted.
func eraserNeedless(s *State) string {
	if s.Validated && s.Evidence.CertificateID != "" && len(s.Evidence.Unproven) == 0 {
		return "the node is proven clean already: certificate " + s.Evidence.CertificateID
	}
	return spared(s)
}

// eraser is set once the live system has been armed.
func (s *State) eraser() bool { return s.Netboot.Purpose == lifecycle.NetbootErase }

// arm makes the node boot from the network for a purpose. What the installed
// system said of its disks is kept from the first time.
func (s *State) arm(ctx workflow.Context, at string, purpose lifecycle.Netboot) error {
	in := nodestateact.NetbootIn{JobRef: s.ref(at), Purpose: purpose}
	f, err := stage.Do(ctx, stage.KindLocalWork, "arm the netboot", nodestate.ArmNetboot, in)
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
	if err := s.arm(ctx, at, lifecycle.NetbootErase); err != nil {
		return err
	}
	if err := s.live(ctx, at, s.Netboot.BootID); err != nil {
		return err
	}
	s.Dark = ""
	return nil
}

// systemIn asks for the system that was armed, in another boot than the one
// named.
func (s *State) systemIn(ctx workflow.Context, at, notBoot string) nodestateact.SystemIn {
	return nodestateact.SystemIn{
		JobRef: s.ref(at), Purpose: s.Netboot.Purpose, NotBootID: notBoot, SKU: s.Config.SKU, Poll: s.Config.Profile.PollInterval,
		Until: stage.DeadlineAt(ctx).Add(-taskMargin), Class: lifecycle.FailAgentNotEnrolled,
	}
}

func (s *State) lookAtSystem(ctx workflow.Context, in nodestateact.SystemIn) (contract.SystemFacts, error) {
	in.ObserveOnly = true
	return stage.Do(ctx, stage.KindLocalWork, "look for the agent of the system", nodestate.WaitForSystem, in)
}

func (s *State) waitForSystem(ctx workflow.Context, in nodestateact.SystemIn) (contract.SystemFacts, error) {
	return stage.Do(ctx, stage.KindPoll, "wait for the agent of the system", nodestate.WaitForSystem, in)
}

// livePatience is how long a live system may take to boot and enrol.
const livePatience = time.Hour

// live sees to it that the live system runs in another boot than the one named:
// by a power cycle at the BMC, or by a person, who is asked once and then waited
// for.
func (s *State) live(ctx workflow.Context, at, notBoot string) error {
	if err := s.look(ctx, at); err != nil {
		return err
	}
	in := s.systemIn(ctx, at, notBoot)
	if last := workflow.Now(ctx).Add(livePatience); in.Until.After(last) {
		in.Until = last
	}
	here, err := s.lookAtSystem(ctx, in)
	if err != nil {
		return err
	}
	if !here.Done {
		if s.Node.BMCID != "" {
			err = s.cycleAway(ctx, at)
		} else {
			err = s.byHand(ctx, at, &in)
		}
		if err != nil {
			return err
		}
		if _, err := s.waitForSystem(ctx, in); err != nil {
			return err
		}
	}
	delete(s.Asked, at)
	return s.look(ctx, at)
}

// cycleAway power cycles the machine out of the boot that its agent was last
// heard from.
func (s *State) cycleAway(ctx workflow.Context, at string) error {
	in := bmcact.PowerIn{JobRef: s.ref(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM, NotBootID: s.Node.BootID}
	f, err := stage.Do(ctx, stage.KindBMCCall, "power cycle at the BMC", bmc.PowerCycleByBMC, in)
	if err == nil {
		s.Power = f
	}
	return err
}

// handPatience is how long a restart by hand is waited for once somebody has
// said that it is done.
const handPatience = 20 * time.Minute

// byHand parks the job so that a person restarts the machine; a retry waits for
// the machine, as it takes a while to boot.
func (s *State) byHand(ctx workflow.Context, at string, in *nodestateact.SystemIn) error {
	if !s.Asked[at] || stage.Attempt(ctx) > 1 {
		if s.Asked == nil {
			s.Asked = map[string]bool{}
		}
		s.Asked[at] = true
		return stage.Fail(lifecycle.FailPowerNotConfirmed,
			"the machine must boot %s from the network, and Slipway knows no BMC of it; restart it by hand, then retry the stage", s.Netboot.Workflow)
	}
	if last := workflow.Now(ctx).Add(handPatience); in.Until.After(last) {
		in.Until = last
	}
	in.Class = lifecycle.FailPowerNotConfirmed
	return nil
}

func observeEraser(ctx workflow.Context, s *State) (stage.Observation, error) {
	if !s.eraser() {
		return stage.Observation{State: "not armed"}, nil
	}
	f, err := s.lookAtSystem(ctx, s.systemIn(ctx, lifecycle.StageBootEraser, s.Netboot.BootID))
	if err != nil || !f.Done {
		return stage.Observation{State: "not booted", Note: f.Note}, err
	}
	s.Dark = ""
	return stage.Observation{Done: true, State: "live", Note: f.Note}, s.look(ctx, lifecycle.StageBootEraser)
}

// disarm takes an armed netboot back: from then on the machine boots by the
// node's state. A live system that runs goes on until it is restarted.
func disarm(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "disarm the netboot", nodestate.DisarmNetboot, s.Job)
	return err
}

// armedRemains proves disarm.
func armedRemains(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "no netboot of the job is armed", nodestate.CheckNetboot, s.Job)
	if err != nil || !f.Armed {
		return "", err
	}
	return f.Note, nil
}

// unscrubbed is why the scrub is not run.
func unscrubbed(s *State) string {
	if s.pxe() {
		return spared(s)
	}
	return dark(s)
}

// unvalidated is why the validation is not run.
func unvalidated(s *State) string {
	if s.pxe() {
		return spared(s)
	}
	return blind(s)
}

// again is how often a scrub whose end nobody knows is asked for once more by
// itself in a live system: its journal ended with its boot, and to erase twice
// harms nothing.
const again = 3

func (s *State) runScrub(ctx workflow.Context, a ask) (lifecycle.TaskResult, error) {
	r, err := s.run(ctx, a)
	for n := 0; s.pxe() && n < again && stage.ClassOf(err) == lifecycle.FailNodeTaskUncertain; n++ {
		r, err = s.run(ctx, a)
	}
	return r, err
}
