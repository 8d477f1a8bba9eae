package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// DecommissionMode names how far a node is taken out of service, or one of the node operations that
// use the same stages.
type DecommissionMode string

// The four modes. A start of one requires the hash of a plan.
const (
	ModeSoftReset      DecommissionMode = "soft_reset"
	ModeReimage        DecommissionMode = "reimage"
	ModeFull           DecommissionMode = "full_decommission"
	ModeStorageCleanup DecommissionMode = "storage_cleanup"
)

// The node operations, started by the action of the same name on the node.
const (
	ModeDrain  DecommissionMode = "drain"
	ModeRetire DecommissionMode = "retire"
	ModeRemove DecommissionMode = "remove"
)

// The operations of PXE nodes. A request for the state in which they work starts them.
const (
	ModeDeprovision DecommissionMode = "deprovision"
	ModeMigrate     DecommissionMode = "migrate"
)

// The thirteen decommission stages. load_site_config has the name of the onboarding stage.
const (
	StageDisableNode    = "disable_node"
	StageForceRelease   = "force_release_allocations"
	StageDrainNode      = "drain_node"
	StageCleanupStorage = "cleanup_storage"
	StageScrubGPU       = "scrub_gpu"
	StageValidateClean  = "validate_clean_node"
	StageLoadSite       = "load_site_config"
	StageReleaseMAAS    = "release_maas_node"
	StagePowerOffMAAS   = "power_off_maas_node"
	StageRetireNode     = "retire_gpuaas_node"
	StageRemoveNode     = "remove_gpuaas_node_record"
	StageCleanupSecrets = "cleanup_secrets"
	StageRemoveMAAS     = "remove_maas_record"
)

// The stages that only PXE nodes have.
const (
	StageBootEraser      = "boot_eraser"
	StagePowerOff        = "power_off_node"
	StageReplaceHardware = "replace_hardware"
	StageBootHardware    = "boot_new_hardware"
)

// DecommissionModeInfo describes what a mode does.
type DecommissionModeInfo struct {
	Mode DecommissionMode
	// Lifecycle is that of the nodes for which the mode is made.
	Lifecycle string
	// Operation marks a node operation, which needs no plan hash.
	Operation bool
	// From lists the node states in which it may be started.
	From []NodeStatus
	// Enters is the state to which a node in service moves when the request is accepted. A node
	// that is not in service keeps its state.
	Enters NodeStatus
	// Stages lists its stages in order.
	Stages []string
	// Ends is the node's state after success. From offline a healthy heartbeat leads to active.
	Ends NodeStatus
	// Owner is the owner of its transitions.
	Owner Owner
	Doc   string
}

var inService = []NodeStatus{NodeActive, NodeOffline, NodeQuarantined}

var decommissionModes = []DecommissionModeInfo{
	{
		Mode: ModeSoftReset, Lifecycle: NodeMAAS.Lifecycle, From: inService, Enters: NodeDraining, Ends: NodeOffline, Owner: OwnerDecommission,
		Stages: []string{StageDisableNode, StageForceRelease, StageDrainNode, StageCleanupStorage, StageScrubGPU, StageValidateClean},
		Doc:    "clean the node and give it back to service; the installed system and its identity stay",
	},
	{
		Mode: ModeReimage, Lifecycle: NodeMAAS.Lifecycle, From: inService, Enters: NodeDraining, Ends: NodeOffline, Owner: OwnerDecommission,
		Stages: []string{
			StageDisableNode, StageForceRelease, StageDrainNode, StageCleanupStorage, StageScrubGPU, StageLoadSite, StageReleaseMAAS, StageValidateClean,
		},
		Doc: "clean the node, release it in MAAS with its disks erased, deploy it again, and return it to service once the new system proves clean",
	},
	{
		Mode: ModeFull, Lifecycle: NodeMAAS.Lifecycle, From: append(slices.Clone(inService), NodeRetired), Enters: NodeDraining, Ends: NodeDeleted, Owner: OwnerDecommission,
		Stages: []string{
			StageDisableNode, StageForceRelease, StageDrainNode, StageCleanupStorage, StageScrubGPU, StageValidateClean, StageLoadSite,
			StageReleaseMAAS, StagePowerOffMAAS, StageRetireNode, StageRemoveNode, StageCleanupSecrets, StageRemoveMAAS,
		},
		Doc: "take the node out for good: clean, release, power off, and remove it from Slipway and from MAAS; its identity never comes back",
	},
	{
		Mode: ModeStorageCleanup, Lifecycle: NodeMAAS.Lifecycle, From: inService, Enters: NodeDraining, Ends: NodeOffline, Owner: OwnerDecommission,
		Stages: []string{StageDisableNode, StageForceRelease, StageDrainNode, StageCleanupStorage, StageValidateClean},
		Doc:    "remove what tenants mounted or left in storage, prove it, and give the node back to service",
	},
	{
		Mode: ModeDrain, Lifecycle: NodeMAAS.Lifecycle, Operation: true, From: inService, Enters: NodeDraining, Ends: NodeRetired, Owner: OwnerDrain,
		Stages: []string{StageDisableNode, StageDrainNode, StageRetireNode},
		Doc:    "take no new work, wait for the allocation to end, end what runs, and retire the node",
	},
	{
		Mode: ModeRetire, Lifecycle: NodeMAAS.Lifecycle, Operation: true, From: inService, Enters: NodeDraining, Ends: NodeRetired, Owner: OwnerDrain,
		Stages: []string{StageDisableNode, StageForceRelease, StageDrainNode, StageRetireNode},
		Doc:    "as drain, without waiting: a live allocation is ended by force",
	},
	{
		Mode: ModeRemove, Lifecycle: NodeMAAS.Lifecycle, Operation: true, From: []NodeStatus{NodeRetired}, Enters: NodeRemoving, Ends: NodeDeleted, Owner: OwnerDecommission,
		Stages: []string{StageRemoveNode, StageCleanupSecrets},
		Doc:    "uninstall the agent of a retired node and delete its record; the machine stays as it is in MAAS",
	},
	{
		Mode: ModeDeprovision, Lifecycle: NodePXE.Lifecycle, Operation: true, From: []NodeStatus{NodeActive, NodeDeprovisioning}, Enters: NodeDeprovisioning,
		Ends: NodeRetired, Owner: OwnerDecommission,
		Stages: []string{
			StageDisableNode, StageForceRelease, StageDrainNode, StageBootEraser, StageScrubGPU, StageValidateClean, StagePowerOff, StageRetireNode, StageCleanupSecrets,
		},
		Doc: "erase a PXE node from a live system that it boots from the network, every disk of it, prove it clean in a fresh boot, and retire it",
	},
	{
		Mode: ModeMigrate, Lifecycle: NodePXE.Lifecycle, Operation: true, From: []NodeStatus{NodeActive, NodeMigrating}, Enters: NodeMigrating,
		Ends: NodeActive, Owner: OwnerDecommission,
		Stages: []string{
			StageDisableNode, StageForceRelease, StageDrainNode, StageBootEraser, StageScrubGPU, StageValidateClean, StagePowerOff, StageReplaceHardware,
			StageBootHardware,
		},
		Doc: "put a PXE node on other hardware under its id, with its history and labels; the old hardware is erased where that is asked for. With the same disks: erase the node's own hardware, prove it clean, install it again and return it to service",
	},
}

// DecommissionModes lists the modes, the operations last.
func DecommissionModes() []DecommissionModeInfo { return slices.Clone(decommissionModes) }

// KeepsSystem reports whether a mode keeps the installed system on the node, which then cleans
// itself.
func (m DecommissionMode) KeepsSystem() bool { return m == ModeSoftReset || m == ModeStorageCleanup }

// DecommissionModeOf returns the description of a mode.
func DecommissionModeOf(m DecommissionMode) (DecommissionModeInfo, bool) {
	i := slices.IndexFunc(decommissionModes, func(d DecommissionModeInfo) bool { return d.Mode == m })
	if i < 0 {
		return DecommissionModeInfo{}, false
	}
	return decommissionModes[i], true
}

// PXEModeOf returns the mode whose job owns a PXE node in this state, and false for a state that no
// job owns.
func PXEModeOf(s NodeStatus) (DecommissionMode, bool) {
	i := slices.IndexFunc(decommissionModes, func(d DecommissionModeInfo) bool { return d.Lifecycle == NodePXE.Lifecycle && d.Enters == s })
	if i < 0 {
		return "", false
	}
	return decommissionModes[i].Mode, true
}

// DecommissionStages lists the stages: the thirteen of a full decommission in their order, then
// those that only PXE nodes have.
func DecommissionStages() []string {
	full, _ := DecommissionModeOf(ModeFull)
	return append(slices.Clone(full.Stages), StageBootEraser, StagePowerOff, StageReplaceHardware, StageBootHardware)
}

// DocumentDecommission renders which mode uses which stage.
func DocumentDecommission() string {
	var b strings.Builder
	b.WriteString("# Decommission modes and node operations\n\n" +
		"Generated from package lifecycle. Do not edit; `make generate` writes it.\n\n" +
		"| mode | started in | ends | meaning |\n|---|---|---|---|\n")
	for _, m := range decommissionModes {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", m.Mode, codes(m.From), m.Ends, m.Doc)
	}
	b.WriteString("\nThe number is the stage's place in the mode's order; `drain`, `retire` and `remove` are operations, started by the node action of that name; " +
		"`deprovision` and `migrate` are those of PXE nodes, started by a request for the state `deprovisioning` or `migrating`.\n\n| stage |")
	for _, m := range decommissionModes {
		fmt.Fprintf(&b, " %s |", m.Mode)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(decommissionModes)) + "\n")
	for _, s := range DecommissionStages() {
		fmt.Fprintf(&b, "| `%s` |", s)
		for _, m := range decommissionModes {
			place := ""
			if i := slices.Index(m.Stages, s); i >= 0 {
				place = fmt.Sprint(i + 1)
			}
			fmt.Fprintf(&b, " %s |", place)
		}
		b.WriteString("\n")
	}
	return b.String()
}
