package decommission

import (
	"time"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	nodeActs *nodestateact.Activities
	maas     *maasact.Activities
)

// stages are the thirteen, and those that only PXE nodes have; a mode chooses among them.
func stages() []stage.Stage[State] {
	return []stage.Stage[State]{
		{Name: lifecycle.StageDisableNode, Weight: 1, Deadline: 10 * time.Minute, Run: disable,
			Doc: "confirm that the node takes no new work, and read the policy of the job"},
		{Name: lifecycle.StageForceRelease, Weight: 2, Deadline: 30 * time.Minute, Waits: true, Skip: skipForceRelease, Run: forceRelease,
			Observe: observeAllocationEnded, Undo: withdrawDrain, VerifyUndo: verifyTasksWithdrawn, Doc: "end the tenant's allocation on the node"},
		{Name: lifecycle.StageDrainNode, Weight: 5, Deadline: 24 * time.Hour, Waits: true, Skip: skipDrainNode, Run: drain,
			Observe: observeDrained, Undo: withdrawDrain, VerifyUndo: verifyTasksWithdrawn, Doc: "end what runs on the node"},
		cleaning(sanitize.CleanupStorage()),
		ofOldHardware(cleaning(sanitize.ScrubGPU())),
		ofOldHardware(cleaning(sanitize.ValidateClean())),
		cleaning(sanitize.LoadSite()),
		cleaning(sanitize.ReleaseMAAS()),
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
		ofOldHardware(cleaning(sanitize.BootEraser())),
		{Name: lifecycle.StagePowerOff, Weight: 2, Deadline: 30 * time.Minute, Skip: skipPowerOff, Run: switchOff(lifecycle.StagePowerOff),
			Observe: observeOff(lifecycle.StagePowerOff), Doc: "switch the machine off and have its BMC confirm it"},
		{Name: lifecycle.StageReplaceHardware, Weight: 10, Deadline: 7 * 24 * time.Hour, Waits: true, Run: replaceHardware,
			Observe: observeReplaced, Doc: "wait until the new hardware is named, and put the node on it"},
		{Name: lifecycle.StageBootHardware, Weight: 30, Deadline: 4 * time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Run: bootHardware,
			Observe: observeHardware, Undo: disarmNetboot, VerifyUndo: verifyDisarmed, Doc: "install the new hardware, or start it with the disks that moved, and wait for a healthy agent"},
	}
}

// cleaning takes a stage that makes the node clean.
func cleaning(st stage.Stage[sanitize.State]) stage.Stage[State] {
	return stage.Lift(st, func(s *State) *sanitize.State { return &s.State })
}

// ofOldHardware leaves a stage out once the node is on other hardware, or where the old one is kept
// as it is.
func ofOldHardware(st stage.Stage[State]) stage.Stage[State] {
	st.Skip = stage.FirstReason(st.Skip, oldHardwareKept)
	return st
}

func skipWithoutMAAS(s *State) string { return sanitize.SkipWithoutMAAS(&s.State) }
