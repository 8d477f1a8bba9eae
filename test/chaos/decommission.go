package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	intentdecommission "github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// DecommissionJobs returns the sets of the jobs that take a node out of service: the four modes of
// a decommission, and the operations drain, retire and remove. Their stages come from the table of
// modes (lifecycle.DecommissionModes). Booted returns the sets of PXE nodes.
func DecommissionJobs() []*ScenarioSet {
	return []*ScenarioSet{decommission(), nodeOperation(), rootDecommission()}
}

func stagesOf(operation bool) []string {
	var out []string
	for _, m := range lifecycle.DecommissionModes() {
		for _, s := range m.Stages {
			if m.Lifecycle == lifecycle.NodeMAAS.Lifecycle && m.Operation == operation && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

func decommission() *ScenarioSet {
	soft, cleanup, reimage, full := mode(lifecycle.ModeSoftReset), mode(lifecycle.ModeStorageCleanup), mode(lifecycle.ModeReimage), mode(lifecycle.ModeFull)
	retired := full
	retired.name, retired.from, retired.occupied = "full_of_retired", lifecycle.NodeRetired, false
	return &ScenarioSet{
		Name: "decommission", Kind: contract.KindDecommission, Stages: stagesOf(false), Start: startDecommission(""),
		Also: append(observes(stagesOf(false)), remote("job", "RevokeTasks", "job", "WaitForTasks", "job", "ReadNodeFacts", "job", "CheckNothingErased", "observe", "ObserveMachine",
			lifecycle.StageReleaseMAAS, "ReturnToReady", lifecycle.StageReleaseMAAS, "RevokeBootstrap")...),
		Paths: []Path{
			soft.path(), cleanup.path(), reimage.path(), full.path(), retired.path(),
			soft.undone("undone_draining", lifecycle.StageDrainNode, runTask, stopped()...),
			reimage.undone("undone_deploying", lifecycle.StageReleaseMAAS, "WaitForDeployed", append(stopped(), "job", "CheckNothingErased",
				lifecycle.StageReleaseMAAS, "ObserveMachine", lifecycle.StageReleaseMAAS, "ReturnToReady", lifecycle.StageReleaseMAAS, "RevokeBootstrap")...),
			full.undone("undone_releasing", lifecycle.StageReleaseMAAS, "EraseAndRelease", append(stopped(), "job", "CheckNothingErased")...),
		},
	}
}

// rootDecommission returns the set of a full decommission whose tenant is root on the node.
// Switching the machine off ends the tenant's access, and MAAS alone cleans the node. Stages lists
// only the stages that do something else for such a tenant; the other sets require faults in the
// rest.
func rootDecommission() *ScenarioSet {
	full := mode(lifecycle.ModeFull)
	full.name, full.root = "full_of_root", true
	return &ScenarioSet{
		Name: "decommission_root", Kind: contract.KindDecommission, Stages: []string{lifecycle.StageForceRelease, lifecycle.StageReleaseMAAS}, Start: startDecommission(""),
		Strata: []Kind{CrashAfter, WorkerKilled, SiteCut}, Paths: []Path{full.path()},
	}
}

func nodeOperation() *ScenarioSet {
	drain, retire, remove := mode(lifecycle.ModeDrain), mode(lifecycle.ModeRetire), mode(lifecycle.ModeRemove)
	return &ScenarioSet{
		Name: "node_operation", Kind: contract.KindNodeOperation, Stages: stagesOf(true), Start: startDecommission(""),
		Also: append(observes(stagesOf(true)), remote("job", "RevokeTasks", "job", "WaitForTasks", "job", "ReadNodeFacts")...),
		Paths: []Path{
			drain.path(), retire.path(), remove.path(),
			retire.undone("undone_retiring", lifecycle.StageDrainNode, runTask, stopped()...),
			remove.undone("undone_removing", lifecycle.StageRemoveNode, runTask,
				append(withdrawn(), lifecycle.StageRemoveNode, "ReadNodeFacts", lifecycle.StageRemoveNode, "MoveNode")...),
		},
	}
}

// modeScenario is one mode on a node in one situation, as the harness plays it.
type modeScenario struct {
	lifecycle.DecommissionModeInfo
	name     string
	from     lifecycle.NodeStatus
	occupied bool // a tenant is on the node
	root     bool // the tenant is root on the node
}

func mode(m lifecycle.DecommissionMode) modeScenario {
	info, _ := lifecycle.DecommissionModeOf(m)
	s := modeScenario{DecommissionModeInfo: info, name: string(m), from: lifecycle.NodeActive, occupied: m != lifecycle.ModeRemove}
	if m == lifecycle.ModeRemove {
		s.from = lifecycle.NodeRetired
	}
	return s
}

func (s modeScenario) path() Path {
	p := Path{Name: s.name, Mode: s.Mode, From: s.from, Points: append(s.points(), s.projections()...), Prepare: s.prepare, Check: s.check}
	switch s.Ends { //nolint:exhaustive // where a mode ends
	case lifecycle.NodeOffline:
		p.Keeps = lifecycle.NodeActive
	case lifecycle.NodeRetired:
		p.Keeps = lifecycle.NodeRetired
	}
	return p
}

// undone returns the path of a job that is cancelled at a point. The faults meet its compensation.
func (s modeScenario) undone(name, stage, activity string, pairs ...string) Path {
	return Path{
		Name: name, Mode: s.Mode, From: s.from, NoCancel: true, Prepare: s.prepare, Check: s.check,
		First:  []Fault{{Point: Point{Stage: stage, Activity: activity}, Kind: Cancel, Variant: "before"}},
		Points: append(remote(pairs...), project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
	}
}

// withdrawn returns the activities by which a clean-up withdraws the tasks of the job.
func withdrawn() []string { return []string{"job", "RevokeTasks", "job", "WaitForTasks"} }

// stopped returns the activities of a clean-up after the job may have ended the tenant's access.
func stopped() []string { return append(withdrawn(), "job", "ReadNodeFacts") }

// observes returns the activities by which a workflow run that continues a job reads the outside
// world.
func observes(stages []string) []Point {
	var out []Point
	for _, s := range stages {
		for _, a := range []string{"ReadNodeFacts", runTask, "ObserveMachine", "CertifyNode", "PowerOffByMAAS", "PowerOffByBMC", "CheckIdentityRevoked", "RemoveMachine"} {
			out = append(out, Point{Stage: s, Activity: a})
		}
	}
	return out
}

// points returns the remote activities of a job that meets no fault.
func (s modeScenario) points() []Point {
	var pairs []string
	for _, stage := range s.Stages {
		for _, a := range s.activities(stage) {
			pairs = append(pairs, stage, a)
		}
	}
	return remote(pairs...)
}

// activities returns the activities that a stage always runs in this mode.
func (s modeScenario) activities(stage string) []string {
	full, reimage := s.Mode == lifecycle.ModeFull, s.Mode == lifecycle.ModeReimage
	if s.root {
		return s.rootActivities(stage)
	}
	switch stage {
	case lifecycle.StageDisableNode:
		return []string{"ReadNodeFacts", "LoadNodeConfig"}
	case lifecycle.StageForceRelease:
		if s.occupied {
			return []string{"ReadNodeFacts", runTask, "EndAllocation"}
		}
	case lifecycle.StageDrainNode:
		switch {
		case s.Mode == lifecycle.ModeDrain:
			return []string{"WaitForAllocationEnd", "ReadNodeFacts", runTask}
		case s.from == lifecycle.NodeActive:
			return []string{"ReadNodeFacts", runTask}
		}
	case lifecycle.StageCleanupStorage, lifecycle.StageScrubGPU:
		return []string{"ReadNodeFacts", runTask}
	case lifecycle.StageValidateClean:
		out := []string{"ReadNodeFacts", runTask}
		if !reimage { // the new installation is a boot of its own
			out = append(out, "PowerCycleByBMC", "WaitForNewBoot")
		}
		if !full { // it signs after the release
			out = append(out, "CertifyNode")
		}
		if s.Mode.KeepsSystem() { // an installation wipes the mark of a tenant
			out = append(out, "ClearAllocation")
		}
		return out
	case lifecycle.StageLoadSite:
		if reimage {
			return []string{"LoadSiteConfig", "ReadMachineBeforeRelease"}
		}
		return []string{"ProbeRegion", "ReadMachineBeforeRelease"}
	case lifecycle.StageReleaseMAAS:
		if full {
			return []string{"EraseAndRelease", "CertifyNode"}
		}
		return []string{
			"EraseAndRelease", "ObserveMachine", "ConfigureStorage", "ApplyRoCE", "EnsurePXEInterfaceAuto", "RenderCloudInit", "DeployMachine",
			"WaitForDeployed", "EnsureHardwareSync", "CheckSSHSeed", "WaitForAgent", "DiscardUserData",
		}
	case lifecycle.StagePowerOffMAAS:
		return []string{"PowerOffByMAAS", "PowerOffByBMC"}
	case lifecycle.StageRetireNode:
		if s.from == lifecycle.NodeActive {
			return []string{"MoveNode"}
		}
	case lifecycle.StageRemoveNode:
		out := []string{"ReadNodeFacts", "MoveNode", "RevokeIdentity"}
		if s.Mode == lifecycle.ModeRemove {
			out = append(out, "LoadNodeConfig", runTask)
		}
		return out
	case lifecycle.StageCleanupSecrets:
		return []string{"DeleteNodeSecrets"}
	case lifecycle.StageRemoveMAAS:
		return []string{"RemoveMachine"}
	}
	return nil
}

// rootActivities returns those of a full decommission whose tenant is root. The machine is off, so
// no stage asks its agent.
func (s modeScenario) rootActivities(stage string) []string {
	switch stage {
	case lifecycle.StageDisableNode:
		return []string{"ReadNodeFacts", "LoadNodeConfig"}
	case lifecycle.StageForceRelease:
		return []string{"ReadNodeFacts", "PowerOffByBMC", "EndAllocation"}
	case lifecycle.StageLoadSite:
		return []string{"ProbeRegion", "ReadMachineBeforeRelease"}
	case lifecycle.StageReleaseMAAS:
		return []string{"EraseAndRelease", "CertifyNode"}
	case lifecycle.StagePowerOffMAAS:
		return []string{"PowerOffByMAAS"}
	case lifecycle.StageRemoveNode:
		return []string{"ReadNodeFacts", "MoveNode", "RevokeIdentity"}
	case lifecycle.StageCleanupSecrets:
		return []string{"DeleteNodeSecrets"}
	case lifecycle.StageRemoveMAAS:
		return []string{"RemoveMachine"}
	}
	return nil
}

// projections returns the local activities of a job that meets no fault. A skipped stage is
// projected together with the next one.
func (s modeScenario) projections() []Point {
	out := []Point{{Stage: "load", Activity: "TakeJob", Local: true}}
	for _, stage := range s.Stages {
		if len(s.activities(stage)) > 0 {
			out = append(out, project(stage))
		}
	}
	return append(out, project(string(lifecycle.JobCompleted)))
}

// prepare puts a tenant on the node where the mode has one, and counts the effects so far.
func (s modeScenario) prepare(ctx context.Context, t *Target) error {
	if s.occupied {
		if err := s.occupy(ctx, t); err != nil {
			return err
		}
	}
	var err error
	t.before, err = t.effects(ctx)
	return err
}

// tenantStays is how long the tenant stays on the node while the drain waits.
const tenantStays = time.Second

func (s modeScenario) occupy(ctx context.Context, t *Target) error {
	if err := t.setTenantRoot(ctx, s.root); err != nil { // the modes that keep the system need a tenant without root
		return err
	}
	allocation, err := t.occupy(ctx)
	if err != nil {
		return err
	}
	switch s.Mode { //nolint:exhaustive // an operation erases nothing
	case lifecycle.ModeReimage, lifecycle.ModeFull:
		err = t.useAsRoot(allocation.ID)
	case lifecycle.ModeSoftReset: // it keeps the system, and so what only root could hide there
		err = t.leaveData(allocation.ID, "without root", t.node().OccupyWithoutPlants)
	case lifecycle.ModeStorageCleanup: // it does not undo what a tenant did to GPUs
		err = t.leaveData(allocation.ID, "on disks", t.node().Fill)
	}
	if err != nil {
		return fmt.Errorf("let a tenant in: %w", err)
	}
	if s.Mode == lifecycle.ModeDrain {
		go func() { // the tenant leaves after the drain has come to wait for it
			eventually(ctx, preparation, func() bool { return t.Executions("WaitForAllocationEnd") > 0 })
			pause(ctx, tenantStays)
			eventually(ctx, time.Minute, func() bool {
				_, err := dbtest.EndTenancyOf(ctx, t.Store, allocation.ID)
				return err == nil
			})
		}()
	}
	return err
}

// startDecommission accepts a job of a mode as the API does. An empty mode stands for the mode of
// the target's path.
func startDecommission(m lifecycle.DecommissionMode) func(context.Context, *db.Tx, *Target) (db.Job, error) {
	return func(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
		use := m
		if use == "" {
			use = t.mode
		}
		n, err := tx.Node(ctx, t.NodeID)
		if err != nil {
			return db.Job{}, err
		}
		in := contract.DecommissionInput{Mode: use, NodeID: n.ID, Hostname: n.Hostname, From: n.Status, Reason: "chaos", GraceSeconds: 1}
		if use == lifecycle.ModeMigrate {
			in.EraseOld, in.Disks = true, db.DisksNew
		}
		if n.MAASSystemID != nil {
			in.SystemID = *n.MAASSystemID
		}
		job, n, err := intentdecommission.Start(ctx, tx, t.Job.ID, n, in, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"})
		if err == nil && t.Fresh != nil {
			err = t.plan(ctx, tx, n)
		}
		return job, err
	}
}
