package decommission

import (
	"time"

	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	agent    *agenttask.Activities
	bmc      *bmcact.Activities
	evidence *evidenceact.Activities
	nodeActs *nodestateact.Activities
	maas     *maasact.Activities
	node     *nodeact.Activities
)

// stages are the thirteen, and those that only PXE nodes have; a mode chooses among them. Those that erase or
// release mark, in their Undo, that nothing of it can be taken back.
func stages() []stage.Stage[State] {
	return []stage.Stage[State]{
		{Name: lifecycle.StageDisableNode, Weight: 1, Deadline: 10 * time.Minute, Run: disable,
			Doc: "confirm that the node takes no new work, and read the policy of the job"},
		{Name: lifecycle.StageForceRelease, Weight: 2, Deadline: 30 * time.Minute, Waits: true, Skip: skipForceRelease, Run: forceRelease,
			Observe: observeAllocationEnded, Undo: withdrawDrain, VerifyUndo: verifyTasksWithdrawn, Doc: "end the tenant's allocation on the node"},
		{Name: lifecycle.StageDrainNode, Weight: 5, Deadline: 24 * time.Hour, Waits: true, Skip: skipDrainNode, Run: drain,
			Observe: observeDrained, Undo: withdrawDrain, VerifyUndo: verifyTasksWithdrawn, Doc: "end what runs on the node"},
		{Name: lifecycle.StageCleanupStorage, Weight: 5, Deadline: 13 * time.Hour, Waits: true, Skip: skipCleanupStorage, Run: cleanStorage,
			Observe: observeStorage, Undo: markIrreversible(lifecycle.StageCleanupStorage), Doc: "take away what tenants mounted or left in storage"},
		{Name: lifecycle.StageScrubGPU, Weight: 30, Deadline: 13 * time.Hour, Waits: true, Skip: skipScrubGPU, Run: scrub,
			Observe: observeScrubbed, Undo: markIrreversible(lifecycle.StageScrubGPU), Doc: "erase what tenants may have left, device by device"},
		{Name: lifecycle.StageValidateClean, Weight: 10, Deadline: 4 * time.Hour, Waits: true, Skip: skipValidateClean, Run: validate,
			Observe: observeValidated, Undo: undoValidate, Doc: "restart the node, prove it clean, and sign the certificate"},
		{Name: lifecycle.StageLoadSite, Weight: 1, Deadline: 10 * time.Minute, Skip: skipWithoutMAAS, Run: loadSite,
			Doc: "prove that MAAS can do what is asked of it, and look at the machine before it changes"},
		{Name: lifecycle.StageReleaseMAAS, Weight: 30, Deadline: 16 * time.Hour, Waits: true, Skip: skipWithoutMAAS, Run: release,
			Observe: observeReleased, Undo: undoRelease, VerifyUndo: verifyDeploymentUndone,
			Doc: "release the machine in MAAS with its disks erased; in a reimage, deploy it again and wait for its agent"},
		{Name: lifecycle.StagePowerOffMAAS, Weight: 2, Deadline: 30 * time.Minute, Skip: skipPowerOffMAAS, Run: switchOff(lifecycle.StagePowerOffMAAS),
			Observe: observeOff(lifecycle.StagePowerOffMAAS), Doc: "switch the machine off and have MAAS and its BMC confirm it"},
		{Name: lifecycle.StageRetireNode, Weight: 1, Deadline: 10 * time.Minute, Skip: skipRetireNode, Run: retire,
			Doc: "retire the node"},
		{Name: lifecycle.StageRemoveNode, Weight: 3, Deadline: time.Hour, Waits: true, Run: removeNode,
			Observe: observeRemoved, Undo: undoRemoval, VerifyUndo: verifyRemovalUndone, Doc: "uninstall the agent and shut its identity out for good"},
		{Name: lifecycle.StageCleanupSecrets, Weight: 1, Deadline: 10 * time.Minute, Run: cleanSecrets,
			Doc: "delete the secrets that only this node needed, and let go of its BMC"},
		{Name: lifecycle.StageRemoveMAAS, Weight: 2, Deadline: 30 * time.Minute, Skip: skipWithoutMAAS, Run: removeRecord,
			Observe: observeRecord, Doc: "delete the machine in MAAS, and what it enlisted itself as meanwhile"},
		{Name: lifecycle.StageBootEraser, Weight: 10, Deadline: time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Skip: skipBootEraser, Run: bootEraser,
			Observe: observeEraser, Undo: disarmNetboot, VerifyUndo: verifyDisarmed, Doc: "boot a live system from the network and wait for its agent"},
		{Name: lifecycle.StagePowerOff, Weight: 2, Deadline: 30 * time.Minute, Skip: skipPowerOff, Run: switchOff(lifecycle.StagePowerOff),
			Observe: observeOff(lifecycle.StagePowerOff), Doc: "switch the machine off and have its BMC confirm it"},
		{Name: lifecycle.StageReplaceHardware, Weight: 10, Deadline: 7 * 24 * time.Hour, Waits: true, Run: replaceHardware,
			Observe: observeReplaced, Doc: "wait until the new hardware is named, and put the node on it"},
		{Name: lifecycle.StageBootHardware, Weight: 30, Deadline: 4 * time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Run: bootHardware,
			Observe: observeHardware, Undo: disarmNetboot, VerifyUndo: verifyDisarmed, Doc: "install the new hardware, or start it with the disks that moved, and wait for a healthy agent"},
	}
}

func (s *State) machineIn(name string) maasact.MachineIn {
	return maasact.MachineIn{JobRef: s.Job.At(name), SystemID: s.Node.SystemID, Poll: s.Config.Profile.PollInterval}
}

// recordMachine keeps the newest facts of the machine.
func (s *State) recordMachine(f contract.MachineFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Machine.SystemID
	}
	if f.Status == "" {
		f.Status, f.IPs = s.Machine.Status, s.Machine.IPs
	}
	s.Machine = f
	if f.Power != "" {
		s.LastPower = f.Power
	}
}

// recordPower keeps what was read of the machine's power.
func (s *State) recordPower(f contract.PowerFacts) {
	s.Power = f
	if f.State != "" {
		s.LastPower = f.State
	}
}

// recordNode keeps the newest facts of the node; what a record no longer says, since
// this job has let go of it, stays known.
func (s *State) recordNode(f contract.DecommissionFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Node.SystemID
	}
	if len(f.MACs) == 0 {
		f.MACs = s.Node.MACs
	}
	// A drive that was protected when the job began stays so, whoever takes the protection away
	// meanwhile: the plan said that it stays.
	f.ProtectSerials = spec.JoinSerials(s.Node.ProtectSerials, f.ProtectSerials)
	s.Node = f
}
