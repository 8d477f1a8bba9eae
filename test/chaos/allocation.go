package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AllocationJobs are the sets of the jobs of an allocation, for tenants who are root on their nodes
// and for tenants who are not.
func AllocationJobs() []*ScenarioSet {
	return []*ScenarioSet{allocationProvision(), allocationRelease(), allocationKeys()}
}

func allocationProvision() *ScenarioSet {
	kind := contract.KindAllocationProvision
	proven := Fault{Point: Point{Stage: lifecycle.StageProveKeys, Activity: "OfferKeys"}, Kind: Cancel, Variant: "before"}
	claimed := Fault{Point: Point{Stage: lifecycle.StageProveLogin, Activity: "ProveLogin"}, Kind: Cancel, Variant: "before"}
	undone := func(name string, root bool, first Fault, pairs ...string) Path {
		a := letting{name: name, root: root}
		p := a.provisionPath(append(remote(append(pairs, "job", "RevokeTasks", lifecycle.StageCreateAccount, runTask)...),
			project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled)))...)
		p.First, p.NoCancel = []Fault{first}, true
		return p
	}
	// The last stage has no activity of its own.
	stages := slices.DeleteFunc(slices.Clone(contract.Stages(kind)), func(s string) bool { return s == lifecycle.StageActivate })
	straight := append(provisionPoints(), projectionsOf(kind)...)
	return &ScenarioSet{
		Name: string(kind), Kind: kind, Stages: stages, Start: startProvision,
		Also: append(remote("job", "RevokeTasks", lifecycle.StageCreateAccount, runTask, lifecycle.StageCreateAccount, "ClearAllocation",
			lifecycle.StageInstallKeys, "OfferKeys"),
			project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
		Paths: []Path{
			letting{name: "root", root: true}.provisionPath(straight...),
			letting{name: "other"}.provisionPath(straight...),
			undone("undone_proving", true, claimed, lifecycle.StageCreateAccount, "ClearAllocation"),
			undone("undone_keys", false, proven, lifecycle.StageInstallKeys, runTask, lifecycle.StageInstallKeys, "OfferKeys"),
		},
	}
}

// provisionPoints are the remote activities of a provision without incident.
func provisionPoints() []Point {
	return remote(
		lifecycle.StageClaimNode, "ClaimNode", "job", "ReadAllocation",
		lifecycle.StageCheckNode, "ReadNodeFacts", lifecycle.StageCheckNode, "LoadNodeConfig", lifecycle.StageCheckNode, "ObserveMachine",
		lifecycle.StageCheckNode, "ReadInstalledImage", lifecycle.StageCheckNode, "ReadNetwork", lifecycle.StageCheckNode, "KeepNetwork",
		lifecycle.StageIsolateNode, "DisableHostInterfaces", lifecycle.StageSnapshotFirmware, "KeepSettings",
		lifecycle.StageRetireCredentials, "RetireCredentials", lifecycle.StageRetireCredentials, runTask,
		lifecycle.StageProbeNetwork, "ListProbeTargets", lifecycle.StageProbeNetwork, runTask,
		lifecycle.StageCreateAccount, "MarkAllocation", lifecycle.StageCreateAccount, runTask, lifecycle.StageProveLogin, "ProveLogin",
		lifecycle.StageInstallKeys, "DescribeInstance", lifecycle.StageInstallKeys, runTask, lifecycle.StageInstallKeys, "GiveAccess",
		lifecycle.StageProveKeys, "OfferKeys", lifecycle.StageProveKeys, "RecordKeys",
	)
}

// projectionsOf are the local activities of a job whose stages all run.
func projectionsOf(kind contract.JobKind, skipped ...string) []Point {
	out := []Point{{Stage: "load", Activity: "TakeJob", Local: true}}
	for _, s := range contract.Stages(kind) {
		if !slices.Contains(skipped, s) {
			out = append(out, project(s))
		}
	}
	return append(out, project(string(lifecycle.JobCompleted)))
}

func allocationRelease() *ScenarioSet {
	kind := contract.KindAllocationRelease
	root, other := letting{name: "root", root: true}, letting{name: "other"}
	ofRoot := slices.Concat(powerPoints(), reinstallPoints(), cleanPoints(), rotationPoints(), projectionsOf(kind, lifecycle.StageCleanupStorage))
	reinstalled := slices.Concat(powerPoints(), reinstallPoints(), cleanPoints(),
		projectionsOf(kind, lifecycle.StageCleanupStorage, lifecycle.StageRotateBMCLogin))
	kept := slices.Concat(remote(lifecycle.StageRevokeAccess, runTask, lifecycle.StageRevokeAccess, "ObserveMachine", lifecycle.StageRevokeAccess, "OfferKeys",
		lifecycle.StageCleanupStorage, "RecordOccupancy", lifecycle.StageCleanupStorage, "ReadNodeFacts", lifecycle.StageCleanupStorage, runTask, lifecycle.StageValidateClean, "PowerCycleByBMC",
		lifecycle.StageValidateClean, "WaitForNewBoot", lifecycle.StageCertify, "ClearAllocation"), cleanPoints(),
		projectionsOf(kind, lifecycle.StageLoadSite, lifecycle.StageReleaseMAAS, lifecycle.StageRotateBMCLogin))
	lies := letting{name: "other_agent_lies", trouble: agentLies}
	stopped := letting{name: "other_agent_stopped", trouble: agentStopped}
	stuck := letting{name: "other_process_stuck", trouble: processStuck}
	dead := letting{name: "root_bmc_dead", root: true, trouble: bmcDead, operator: forceRelease}
	removed := letting{name: "other_removed", trouble: both(agentLies, bmcDead), operator: removeAssignment, removed: true}
	return &ScenarioSet{
		Name: string(kind), Kind: kind, Stages: contract.Stages(kind), Start: startRelease,
		Also: append(releaseAlso(), projectionsOf(kind)...),
		Paths: []Path{
			root.releasePath(ofRoot...), other.releasePath(kept...),
			lies.releasePath(reinstalled...), stopped.releasePath(powerPoints()...), stuck.releasePath(powerPoints()...),
			dead.releasePath(slices.Concat(reinstallPoints(), cleanPoints(), rotationPoints())...), removed.releasePath(unconfirmedPoints()...),
		},
	}
}

// powerPoints are those of a release that ends the access by the power.
func powerPoints() []Point {
	return remote(lifecycle.StageRevokeAccess, "ReadNodeFacts", lifecycle.StageRevokeAccess, "PowerOffByBMC", lifecycle.StageRevokeAccess, "EndAccess")
}

// unconfirmedPoints are those that a release meets before it finds that nothing proves the end of
// the access.
func unconfirmedPoints() []Point {
	return remote(lifecycle.StageCloseTerminals, "TakeNode", lifecycle.StageCloseTerminals, "ReadNodeFacts",
		lifecycle.StageRevokeAccess, "PowerOffByMAAS", lifecycle.StageRevokeAccess, "EndAccess")
}

// cleanPoints are those of every release that completes.
func cleanPoints() []Point {
	return remote(
		lifecycle.StageCloseTerminals, "TakeNode", lifecycle.StageCloseTerminals, "LoadNodeConfig", lifecycle.StageCloseTerminals, "ReadNodeFacts",
		lifecycle.StageStopUsage, "StopUsage", lifecycle.StageDetachStorage, "LoadNodeConfig",
		lifecycle.StageScrubGPU, "RecordOccupancy", lifecycle.StageScrubGPU, runTask,
		lifecycle.StageValidateClean, "RecordOccupancy", lifecycle.StageValidateClean, runTask,
		lifecycle.StageValidateFirmware, "CompareSettings", lifecycle.StageCertify, "CertifyNode", lifecycle.StageFreeNode, "RecordOccupancy",
	)
}

// rotationPoints are those of a release after which the BMC has another password.
func rotationPoints() []Point {
	const at = lifecycle.StageRotateBMCLogin
	return remote(at, "PrepareRotation", at, "ApplyRotation", at, "VerifyRotation", at, "UpdatePowerLogin", at, "CommitRotation")
}

// reinstallPoints are those of a release that installs the node again.
func reinstallPoints() []Point {
	var out []Point
	for _, a := range mode(lifecycle.ModeReimage).activities(lifecycle.StageReleaseMAAS) {
		out = append(out, Point{Stage: lifecycle.StageReleaseMAAS, Activity: a})
	}
	return append(out, remote(lifecycle.StageLoadSite, "LoadSiteConfig", lifecycle.StageLoadSite, "RecordOccupancy",
		lifecycle.StageLoadSite, "ReadMachineBeforeRelease", lifecycle.StageReleaseMAAS, "RecordOccupancy")...)
}

// releaseAlso are what a release meets only after some faults.
func releaseAlso() []Point {
	pairs := []string{"job", "ReadAllocation", "job", "RevokeTasks", "job", "WaitForTasks", "job", "ReadNodeFacts"}
	out := slices.Concat(remote(pairs...), powerPoints(), unconfirmedPoints(), reinstallPoints(), cleanPoints(), rotationPoints(), observes(contract.Stages(contract.KindAllocationRelease)))
	return append(out, remote(lifecycle.StageRevokeAccess, "OfferKeys")...)
}

// letting is one way in which a tenant has, and gives back, a node.
type letting struct {
	name    string
	root    bool
	trouble func(context.Context, *Target) error // what is wrong at the node when the release begins
	// operator does what ends a release that has failed. removed: the assignment is removed.
	operator func(context.Context, *Target, db.Job) error
	removed  bool
}

func (l letting) provisionPath(points ...Point) Path {
	return Path{
		Name: l.name, From: lifecycle.NodeActive, Points: points, Prepare: l.offer, Check: l.checkProvision,
		Ends: []lifecycle.JobStatus{lifecycle.JobCompleted, lifecycle.JobCancelled},
	}
}

func (l letting) releasePath(points ...Point) Path {
	p := Path{Name: l.name, From: lifecycle.NodeActive, Keeps: lifecycle.NodeActive, Points: points, Prepare: l.let, Check: l.checkRelease}
	if p.Parked = l.endRelease; l.operator == nil {
		// A site that is away for as long as the release may take leaves it to an operator.
		p.Parked = func(ctx context.Context, t *Target, job db.Job) bool {
			return t.Case.Has(SiteCut) && letting{operator: forceRelease}.endRelease(ctx, t, job)
		}
	}
	if l.removed {
		p.Ends, p.Keeps, p.NoCancel = []lifecycle.JobStatus{lifecycle.JobCancelled}, "", true
	}
	return p
}

func both(a, b func(context.Context, *Target) error) func(context.Context, *Target) error {
	return func(ctx context.Context, t *Target) error {
		if err := a(ctx, t); err != nil {
			return err
		}
		return b(ctx, t)
	}
}

// startProvision accepts an allocation as the API does. Nobody else has nodes at the target's site.
func startProvision(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	got, err := t.tenant.Allocate(ctx, tx, t.Site.ID)
	t.allocation = got.Allocation.ID
	return got.Job, err
}

// startRelease gives the node back as the API does.
func startRelease(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	r, err := t.giveBack(ctx, tx)
	if err != nil {
		return db.Job{}, err
	}
	if r.Job == nil {
		return db.Job{}, fmt.Errorf("allocation %s is %s and has no job", t.allocation, r.Allocation.Status)
	}
	return *r.Job, nil
}
