package decommission

import (
	"time"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	agent     *agenttask.Activities
	bmc       *bmcact.Activities
	evidence  *evidenceact.Activities
	nodestate *nodestateact.Activities
	maas      *maasact.Activities
	node      *nodeact.Activities
)

// stages are the thirteen, and those that only PXE nodes have; a mode chooses among them. Those that erase or
// release mark, in their Undo, that nothing of it can be taken back.
func stages() []stage.Stage[State] {
	return []stage.Stage[State]{
		{Name: lifecycle.StageDisableNode, Weight: 1, Deadline: 10 * time.Minute, Run: disable,
			Doc: "confirm that the node takes no new work, and read what the job goes by"},
		{Name: lifecycle.StageForceRelease, Weight: 2, Deadline: 30 * time.Minute, Waits: true, Skip: vacant, Run: forceRelease,
			Observe: observeVacant, Undo: stopDraining, Remains: tasksRemain, Doc: "end the tenant's allocation on the node"},
		{Name: lifecycle.StageDrainNode, Weight: 5, Deadline: 24 * time.Hour, Waits: true, Skip: drainedBefore, Run: drain,
			Observe: observeDrained, Undo: stopDraining, Remains: tasksRemain, Doc: "end what runs on the node"},
		{Name: lifecycle.StageCleanupStorage, Weight: 5, Deadline: 13 * time.Hour, Waits: true, Skip: dark, Run: cleanStorage,
			Observe: observeStorage, Undo: spent(lifecycle.StageCleanupStorage), Doc: "take away what tenants mounted or left in storage"},
		{Name: lifecycle.StageScrubGPU, Weight: 30, Deadline: 13 * time.Hour, Waits: true, Skip: unscrubbed, Run: scrub,
			Observe: observeScrubbed, Undo: spent(lifecycle.StageScrubGPU), Doc: "erase what tenants may have left, device by device"},
		{Name: lifecycle.StageValidateClean, Weight: 10, Deadline: 4 * time.Hour, Waits: true, Skip: unvalidated, Run: validate,
			Observe: observeValidated, Undo: withdraw, Doc: "boot anew, prove the node clean, and sign the certificate"},
		{Name: lifecycle.StageLoadSite, Weight: 1, Deadline: 10 * time.Minute, Skip: notInMAAS, Run: loadSite,
			Doc: "prove that MAAS can do what is asked of it, and look at the machine before it changes"},
		{Name: lifecycle.StageReleaseMAAS, Weight: 30, Deadline: 16 * time.Hour, Waits: true, Skip: notInMAAS, Run: release,
			Observe: observeReleased, Undo: undoRelease, Remains: deploymentRemains,
			Doc: "release the machine in MAAS with its disks erased; in a reimage, deploy it anew and wait for its agent"},
		{Name: lifecycle.StagePowerOffMAAS, Weight: 2, Deadline: 30 * time.Minute, Skip: powerless, Run: switchOff(lifecycle.StagePowerOffMAAS),
			Observe: observeOff(lifecycle.StagePowerOffMAAS), Doc: "switch the machine off and have MAAS and its BMC confirm it"},
		{Name: lifecycle.StageRetireNode, Weight: 1, Deadline: 10 * time.Minute, Skip: retiredBefore, Run: retire,
			Doc: "retire the node"},
		{Name: lifecycle.StageRemoveNode, Weight: 3, Deadline: time.Hour, Waits: true, Run: removeNode,
			Observe: observeRemoved, Undo: undoRemoval, Remains: removalRemains, Doc: "uninstall the agent and shut its identity out for good"},
		{Name: lifecycle.StageCleanupSecrets, Weight: 1, Deadline: 10 * time.Minute, Run: cleanSecrets,
			Doc: "delete the secrets that only this node needed, and let go of its BMC"},
		{Name: lifecycle.StageRemoveMAAS, Weight: 2, Deadline: 30 * time.Minute, Skip: notInMAAS, Run: removeRecord,
			Observe: observeRecord, Doc: "delete the machine in MAAS, and what it enlisted itself as meanwhile"},
		{Name: lifecycle.StageBootEraser, Weight: 10, Deadline: time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Skip: eraserNeedless, Run: bootEraser,
			Observe: observeEraser, Undo: disarm, Remains: armedRemains, Doc: "boot a live system from the network and wait for its agent"},
		{Name: lifecycle.StagePowerOff, Weight: 2, Deadline: 30 * time.Minute, Skip: unswitchable, Run: switchOff(lifecycle.StagePowerOff),
			Observe: observeOff(lifecycle.StagePowerOff), Doc: "switch the machine off and have its BMC confirm it"},
		{Name: lifecycle.StageReplaceHardware, Weight: 10, Deadline: 7 * 24 * time.Hour, Waits: true, Run: replaceHardware,
			Observe: observeReplaced, Doc: "wait until the new hardware is named, and put the node on it"},
		{Name: lifecycle.StageBootHardware, Weight: 30, Deadline: 4 * time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Run: bootHardware,
			Observe: observeHardware, Undo: disarm, Remains: armedRemains, Doc: "install the new hardware, or start it with the disks that moved, and wait for a healthy agent"},
	}
}

// ref names the job at a stage.
func (s *State) ref(name string) contract.JobRef {
	r := s.Job
	r.Stage = name
	return r
}

func (s *State) machineIn(name string) maasact.MachineIn {
	return maasact.MachineIn{JobRef: s.ref(name), SystemID: s.Node.SystemID, Poll: s.Config.Profile.PollInterval}
}

// saw keeps the newest facts of the machine.
func (s *State) saw(f contract.MachineFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Machine.SystemID
	}
	if f.Status == "" {
		f.Status, f.IPs = s.Machine.Status, s.Machine.IPs
	}
	s.Machine = f
}

// learn keeps the newest facts of the node; what a record no longer says, since
// this job has let go of it, stays known.
func (s *State) learn(f contract.LeavingFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Node.SystemID
	}
	if len(f.MACs) == 0 {
		f.MACs = s.Node.MACs
	}
	s.Node = f
}

func notInMAAS(s *State) string {
	if s.Node.SystemID == "" {
		return "the node is not a machine of MAAS"
	}
	return ""
}

// unreleased is set in a full decommission of a node that MAAS does not manage:
// nobody erases its disks from outside, so that what there is to prove is proven,
// and certified, before it is retired.
func (s *State) unreleased() bool { return s.full() && notInMAAS(s) != "" }

// blind is why the node cannot be validated: only a reimage gets a new system.
// What cannot be validated and is released by nobody is certified as it is.
func blind(s *State) string {
	if s.full() && !s.unreleased() {
		return dark(s)
	}
	return ""
}

// erased is set in a reimage whose disks MAAS has erased, and whose new system is
// not there yet: a deployment that failed is begun again from here.
func erased(s *State) string {
	if s.Request.Mode == lifecycle.ModeReimage && s.Release.Over && s.Release.Erased && !s.Deploy.Over {
		return "MAAS has erased the disks; there is no system to ask"
	}
	return ""
}

// dark is why the agent is not asked to erase: it cannot be, or there is nothing
// of the old system left.
func dark(s *State) string {
	if why := erased(s); why != "" {
		return why
	}
	if s.Dark != "" && s.unreleased() {
		return "the agent cannot be asked (" + s.Dark + "), and no MAAS erases the disks from outside"
	}
	if s.Dark != "" && s.full() {
		return "the agent cannot be asked (" + s.Dark + "); erasing from outside has to be the proof"
	}
	return ""
}
