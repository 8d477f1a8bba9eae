package chaos

import (
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Booted are the sets of the jobs of nodes that boot from the network: they are
// erased from a live system and retired, or go on on other hardware.
func Booted() []*ScenarioSet {
	deprovision, migrate := bootedMode(lifecycle.ModeDeprovision), bootedMode(lifecycle.ModeMigrate)
	stages := slices.Clone(deprovision.Stages)
	for _, s := range migrate.Stages {
		if !slices.Contains(stages, s) {
			stages = append(stages, s)
		}
	}
	return []*ScenarioSet{{
		Name: "booted", Kind: contract.KindNodeOperation, Stages: stages, Start: startLeaving(""),
		Also: append(observes(stages), bootedLooks(stages)...),
		Paths: []Path{
			deprovision.path(), migrate.path(),
			deprovision.undone("undone_erasing", lifecycle.StageScrubGPU, runTask, append(withdrawn(), "job", "DisarmNetboot", "job", "CheckNetboot")...),
		},
	}}
}

// bootedLooks are boundaries that only a job with faults meets, or that it meets
// when the machine happens to be in another state.
func bootedLooks(stages []string) []Point {
	out := remote("job", "RevokeTasks", "job", "SettleTasks", "job", "ErasureBegun", "job", "DisarmNetboot", "job", "CheckNetboot")
	for _, s := range stages {
		for _, a := range []string{"WaitForSystem", "ArmNetboot", "DisarmNetboot", "CheckNetboot", "PowerCycleByBMC", "ReplaceHardware", "WaitForFreshBoot", "RevokeIdentity", "MoveLeaving"} {
			out = append(out, Point{Stage: s, Activity: a})
		}
	}
	return out
}

// booted is one mode as the harness plays it, with a tenant on the node.
type booted struct{ lifecycle.DecommissionModeInfo }

func bootedMode(m lifecycle.DecommissionMode) booted {
	info, _ := lifecycle.DecommissionModeOf(m)
	return booted{info}
}

func (b booted) path() Path {
	var pairs []string
	var local []Point
	for _, s := range b.Stages {
		for _, a := range b.activities(s) {
			pairs = append(pairs, s, a)
		}
		local = append(local, project(s))
	}
	points := append([]Point{{Stage: "load", Activity: "TakeJob", Local: true}}, local...)
	points = append(points, project(string(lifecycle.JobCompleted)))
	return Path{Name: string(b.Mode), Mode: b.Mode, Boots: true, Points: append(remote(pairs...), points...), Prepare: b.prepare, Check: b.check}
}

// undone is the mode cancelled at a point; its compensation gets the faults.
func (b booted) undone(name, stage, activity string, pairs ...string) Path {
	return Path{
		Name: name, Mode: b.Mode, Boots: true, NoCancel: true, Prepare: b.prepare, Check: b.check,
		First:  []Fault{{Point: Point{Stage: stage, Activity: activity}, Kind: Cancel, Variant: "before"}},
		Points: append(remote(pairs...), project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
	}
}

// activities are those that a stage is sure to run.
func (b booted) activities(stage string) []string {
	switch stage {
	case lifecycle.StageDisableNode:
		return []string{"LookAtLeaving", "LoadLeavingConfig"}
	case lifecycle.StageForceRelease:
		return []string{"LookAtLeaving", runTask, "EndAllocation"}
	case lifecycle.StageDrainNode, lifecycle.StageScrubGPU:
		return []string{"LookAtLeaving", runTask}
	case lifecycle.StageBootEraser:
		return []string{"ArmNetboot", "LookAtLeaving", "WaitForSystem", "PowerCycleByBMC"}
	case lifecycle.StageValidateClean:
		return []string{"LookAtLeaving", "WaitForSystem", "PowerCycleByBMC", runTask, "CertifyNode"}
	case lifecycle.StagePowerOff:
		return []string{"PowerOffByBMC"}
	case lifecycle.StageReplaceHardware:
		return []string{"ReplaceHardware", "LookAtLeaving"}
	case lifecycle.StageBootHardware:
		return []string{"ArmNetboot", "LookAtLeaving", "WaitForSystem", "PowerCycleByBMC"}
	case lifecycle.StageRetireNode:
		return []string{"RevokeIdentity", "MoveLeaving"}
	case lifecycle.StageCleanupSecrets:
		return []string{"CleanSecrets"}
	}
	return nil
}
