package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	intentdecommission "github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Leaving are the sets of the jobs that take a node out of service: the four
// modes of a decommission, and the operations drain, retire and remove. Their
// stages are those of the modes, as data (lifecycle.DecommissionModes). Booted
// has those of PXE nodes.
func Leaving() []*ScenarioSet {
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
		Name: "decommission", Kind: contract.KindDecommission, Stages: stagesOf(false), Start: startLeaving(""),
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

// rootDecommission is the decommission of a node whose tenant is root there: his access ends by the
// machine's power, and MAAS alone cleans the node. The other sets have its later stages.
func rootDecommission() *ScenarioSet {
	full := mode(lifecycle.ModeFull)
	full.name, full.root = "full_of_root", true
	return &ScenarioSet{
		Name: "decommission_root", Kind: contract.KindDecommission, Stages: []string{lifecycle.StageForceRelease, lifecycle.StageReleaseMAAS}, Start: startLeaving(""),
		Strata: []Kind{CrashAfter, WorkerKilled, SiteCut}, Paths: []Path{full.path()},
	}
}

func nodeOperation() *ScenarioSet {
	drain, retire, remove := mode(lifecycle.ModeDrain), mode(lifecycle.ModeRetire), mode(lifecycle.ModeRemove)
	return &ScenarioSet{
		Name: "node_operation", Kind: contract.KindNodeOperation, Stages: stagesOf(true), Start: startLeaving(""),
		Also: append(observes(stagesOf(true)), remote("job", "RevokeTasks", "job", "WaitForTasks", "job", "ReadNodeFacts")...),
		Paths: []Path{
			drain.path(), retire.path(), remove.path(),
			retire.undone("undone_retiring", lifecycle.StageDrainNode, runTask, stopped()...),
			remove.undone("undone_removing", lifecycle.StageRemoveNode, runTask,
				append(withdrawn(), lifecycle.StageRemoveNode, "ReadNodeFacts", lifecycle.StageRemoveNode, "MoveNode")...),
		},
	}
}

// leaving is one mode as the harness plays it.
type leaving struct {
	lifecycle.DecommissionModeInfo
	name     string
	from     lifecycle.NodeStatus
	occupied bool // by a tenant
	root     bool // who is root there
}

func mode(m lifecycle.DecommissionMode) leaving {
	info, _ := lifecycle.DecommissionModeOf(m)
	l := leaving{DecommissionModeInfo: info, name: string(m), from: lifecycle.NodeActive, occupied: m != lifecycle.ModeRemove}
	if m == lifecycle.ModeRemove {
		l.from = lifecycle.NodeRetired
	}
	return l
}

func (l leaving) path() Path {
	p := Path{Name: l.name, Mode: l.Mode, From: l.from, Points: append(l.points(), l.projections()...), Prepare: l.prepare, Check: l.check}
	switch l.Ends { //nolint:exhaustive // where a mode ends
	case lifecycle.NodeOffline:
		p.Keeps = lifecycle.NodeActive
	case lifecycle.NodeRetired:
		p.Keeps = lifecycle.NodeRetired
	}
	return p
}

// undone is the mode cancelled at a point; its compensation gets the faults.
func (l leaving) undone(name, stage, activity string, pairs ...string) Path {
	return Path{
		Name: name, Mode: l.Mode, From: l.from, NoCancel: true, Prepare: l.prepare, Check: l.check,
		First:  []Fault{{Point: Point{Stage: stage, Activity: activity}, Kind: Cancel, Variant: "before"}},
		Points: append(remote(pairs...), project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
	}
}

// withdrawn is what a clean-up does with the tasks of the job.
func withdrawn() []string { return []string{"job", "RevokeTasks", "job", "WaitForTasks"} }

// stopped is what it does where a tenant may have been ended.
func stopped() []string { return append(withdrawn(), "job", "ReadNodeFacts") }

// observes are the looks of a run that takes up a job.
func observes(stages []string) []Point {
	var out []Point
	for _, s := range stages {
		for _, a := range []string{"ReadNodeFacts", runTask, "ObserveMachine", "CertifyNode", "PowerOffByMAAS", "PowerOffByBMC", "CheckIdentityRevoked", "RemoveMachine"} {
			out = append(out, Point{Stage: s, Activity: a})
		}
	}
	return out
}

// points are the remote activities of the mode without incident.
func (l leaving) points() []Point {
	var pairs []string
	for _, s := range l.Stages {
		for _, a := range l.activities(s) {
			pairs = append(pairs, s, a)
		}
	}
	return remote(pairs...)
}

// activities are those that a stage is sure to run in the mode.
func (l leaving) activities(stage string) []string {
	full, reimage := l.Mode == lifecycle.ModeFull, l.Mode == lifecycle.ModeReimage
	if l.root {
		return l.rootActivities(stage)
	}
	switch stage {
	case lifecycle.StageDisableNode:
		return []string{"ReadNodeFacts", "LoadNodeConfig"}
	case lifecycle.StageForceRelease:
		if l.occupied {
			return []string{"ReadNodeFacts", runTask, "EndAllocation"}
		}
	case lifecycle.StageDrainNode:
		switch {
		case l.Mode == lifecycle.ModeDrain:
			return []string{"WaitForAllocationEnd", "ReadNodeFacts", runTask}
		case l.from == lifecycle.NodeActive:
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
		if l.Mode.KeepsSystem() { // an installation wipes the mark of a tenant
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
		if l.from == lifecycle.NodeActive {
			return []string{"MoveNode"}
		}
	case lifecycle.StageRemoveNode:
		out := []string{"ReadNodeFacts", "MoveNode", "RevokeIdentity"}
		if l.Mode == lifecycle.ModeRemove {
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

// rootActivities are those of a full decommission whose tenant is root. The machine is off, so that
// nothing on it is asked.
func (l leaving) rootActivities(stage string) []string {
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

// projections are the local activities of the mode without incident; a stage that
// is skipped shows with the next one.
func (l leaving) projections() []Point {
	out := []Point{{Stage: "load", Activity: "TakeJob", Local: true}}
	for _, s := range l.Stages {
		if len(l.activities(s)) > 0 {
			out = append(out, project(s))
		}
	}
	return append(out, project(string(lifecycle.JobCompleted)))
}

// prepare lets a tenant in and notes what is counted so far.
func (l leaving) prepare(ctx context.Context, t *Target) error {
	if l.occupied {
		if err := l.occupy(ctx, t); err != nil {
			return err
		}
	}
	var err error
	t.before, err = t.effects(ctx)
	return err
}

// tenantStays is how long the tenant goes on while the drain waits.
const tenantStays = time.Second

func (l leaving) occupy(ctx context.Context, t *Target) error {
	switch l.Mode { //nolint:exhaustive // an operation erases nothing
	case lifecycle.ModeSoftReset, lifecycle.ModeReimage, lifecycle.ModeFull:
		if err := t.useAsRoot(); err != nil {
			return fmt.Errorf("let a tenant in: %w", err)
		}
	case lifecycle.ModeStorageCleanup: // what tenants did to GPUs it does not undo
		if err := t.node().Fill(); err != nil {
			return fmt.Errorf("let a tenant's data in: %w", err)
		}
	}
	if err := t.setTenantRoot(ctx, l.root); err != nil { // the modes that keep the system are for one who is not
		return err
	}
	allocation, err := t.occupy(ctx)
	if err == nil && l.Mode == lifecycle.ModeDrain {
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

// startLeaving accepts a job of a mode as the API does; "" is the mode of the
// target's path.
func startLeaving(m lifecycle.DecommissionMode) func(context.Context, *db.Tx, *Target) (db.Job, error) {
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
