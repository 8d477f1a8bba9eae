// Package sanitize makes a node clean and proves it: its stages, what they know, and the
// certificate. A decommission, the release of an allocation and a run that installs its machine
// again take the stages that they need, over a State of their own.
package sanitize

import (
	"time"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
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

// The stages. Those that erase or release mark, in their Undo, that nothing of it can be taken
// back.

// CleanupStorage has the agent unmount what tenants mounted; in a storage cleanup it erases all of
// it.
func CleanupStorage() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageCleanupStorage, Weight: 5, Deadline: 13 * time.Hour, Waits: true, Skip: skipCleanupStorage, Run: cleanStorage,
		Observe: observeStorage, Undo: markIrreversible(lifecycle.StageCleanupStorage), Doc: "take away what tenants mounted or left in storage"}
}

// ScrubGPU has the agent erase the disks, the memory of the GPUs, and what tenants left in the
// system.
func ScrubGPU() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageScrubGPU, Weight: 30, Deadline: 13 * time.Hour, Waits: true, Skip: skipScrubGPU, Run: scrub,
		Observe: observeScrubbed, Undo: markIrreversible(lifecycle.StageScrubGPU), Doc: "erase what tenants may have left, device by device"}
}

// ValidateClean proves the node clean in another boot, and signs the certificate where no proof
// follows.
func ValidateClean() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageValidateClean, Weight: 10, Deadline: 4 * time.Hour, Waits: true, Skip: skipValidateClean, Run: validate,
		Observe: observeValidated, Undo: undoValidate, Doc: "restart the node, prove it clean, and sign the certificate"}
}

// LoadSite proves that MAAS can do what the release needs, and looks at the machine.
func LoadSite() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageLoadSite, Weight: 1, Deadline: 10 * time.Minute, Skip: SkipWithoutMAAS, Run: loadSite,
		Doc: "prove that MAAS can do what is asked of it, and look at the machine before it changes"}
}

// ReleaseMAAS has MAAS erase the disks and release the machine, and in a reimage install it again.
func ReleaseMAAS() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageReleaseMAAS, Weight: 30, Deadline: 16 * time.Hour, Waits: true, Skip: SkipWithoutMAAS, Run: release,
		Observe: observeReleased, Undo: undoRelease, VerifyUndo: verifyDeploymentUndone,
		Doc: "release the machine in MAAS with its disks erased; in a reimage, deploy it again and wait for its agent"}
}

// BootEraser boots a PXE node into a live system, from which every disk can be erased.
func BootEraser() stage.Stage[State] {
	return stage.Stage[State]{Name: lifecycle.StageBootEraser, Weight: 10, Deadline: time.Hour, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true, Skip: skipBootEraser, Run: bootEraser,
		Observe: observeEraser, Undo: DisarmNetboot, VerifyUndo: VerifyDisarmed, Doc: "boot a live system from the network and wait for its agent"}
}
