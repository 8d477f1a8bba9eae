package chaos

import (
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
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
		Name: "booted", Kind: contract.KindNodeOperation, Stages: stages, Start: startDecommission(""),
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
	out := remote("job", "RevokeTasks", "job", "WaitForTasks", "job", "CheckNothingErased", "job", "DisarmNetboot", "job", "CheckNetboot")
	for _, s := range stages {
		for _, a := range []string{"WaitForSystem", "ArmNetboot", "DisarmNetboot", "CheckNetboot", "PowerCycleByBMC", "ReplaceHardware", "WaitForNewBoot", "RevokeIdentity", "MoveNode"} {
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
		return []string{"ReadNodeFacts", "LoadNodeConfig"}
	case lifecycle.StageForceRelease:
		return []string{"ReadNodeFacts", runTask, "EndAllocation"}
	case lifecycle.StageDrainNode, lifecycle.StageScrubGPU:
		return []string{"ReadNodeFacts", runTask}
	case lifecycle.StageBootEraser:
		return []string{"ArmNetboot", "ReadNodeFacts", "WaitForSystem", "PowerCycleByBMC"}
	case lifecycle.StageValidateClean:
		return []string{"ReadNodeFacts", "WaitForSystem", "PowerCycleByBMC", runTask, "CertifyNode"}
	case lifecycle.StagePowerOff:
		return []string{"PowerOffByBMC"}
	case lifecycle.StageReplaceHardware:
		return []string{"ReplaceHardware", "ReadNodeFacts"}
	case lifecycle.StageBootHardware:
		return []string{"ArmNetboot", "ReadNodeFacts", "WaitForSystem", "PowerCycleByBMC"}
	case lifecycle.StageRetireNode:
		return []string{"RevokeIdentity", "MoveNode"}
	case lifecycle.StageCleanupSecrets:
		return []string{"DeleteNodeSecrets"}
	}
	return nil
}
