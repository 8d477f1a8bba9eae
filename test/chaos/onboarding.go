package chaos

import (
	"context"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/stack"
)

// Onboarding is the scenario set of the onboarding job.
func Onboarding() *ScenarioSet {
	return &ScenarioSet{
		Name: "onboarding", Kind: contract.KindOnboarding, Stages: lifecycle.OnboardingStages(), Start: startOnboarding,
		Also: remote("observe", "ObserveMachine"), // a run that takes up a job looks before it acts
		Paths: []Path{
			{Name: "plain", Keeps: lifecycle.NodeActive, Points: append(straight(), projections()...), Check: onboarded(times{1, 1})},
			{Name: "recommission", Keeps: lifecycle.NodeActive, Points: []Point{{Stage: lifecycle.StageCommission, Activity: "CommissionMachine"}, project(lifecycle.StageWaitReady)},
				Prepare: maasFault("commission_fail"), Check: onboarded(times{2, 1})},
			{Name: "datasource", Keeps: lifecycle.NodeActive, Points: append(remote(
				lifecycle.StageClassifyFailure, "ClassifyDeployFailure", lifecycle.StageRecoverDatasource, "ReturnToReady",
			), project(lifecycle.StageClassifyFailure), project(lifecycle.StageRecoverDatasource)),
				Prepare: maasFault("deploy_datasource_none"), Check: onboarded(times{1, 2})},
			{Name: "repair", Keeps: lifecycle.NodeActive, Points: remote(
				lifecycle.StageWaitHWSync, "WaitForHardwareSync", lifecycle.StageWaitHWSync, "MachineCredentials", lifecycle.StageWaitHWSync, "RepairHardwareSync",
				lifecycle.StageWaitHWSync, "ForgetMachineCredentials",
			), NoCancel: true, Prepare: maasFault("hw_sync_disabled_by_userdata"), Check: onboarded(times{1, 1})},
			undone("undone_enrolling", Point{Stage: lifecycle.StageWaitAgent, Activity: "WaitForAgent"}, append([]string{
				lifecycle.StageWaitAgent, "LockAgentIdentity", lifecycle.StageWaitAgent, "CheckIdentityLocked",
			}, append(deployedUndone(), createdUndone()...)...)...),
			undone("undone_deploying", Point{Stage: lifecycle.StageWaitDeployed, Activity: "WaitForDeployed"},
				append(deployedUndone(), createdUndone()...)...),
			undone("undone_commissioning", Point{Stage: lifecycle.StageWaitReady, Activity: "WaitForReady"}, createdUndone()...),
		},
	}
}

// createdUndone and deployedUndone are the compensation of a machine's record
// and of its deployment: each undo, and the look whether it is done.
func createdUndone() []string {
	return []string{
		lifecycle.StageCommission, "AbortCommissioning", lifecycle.StageCommission, "CheckNotCommissioning",
		lifecycle.StageCreateOrFind, "RemoveCreatedMachine", lifecycle.StageCreateOrFind, "CheckRecordRemoved",
	}
}

func deployedUndone() []string {
	return []string{
		lifecycle.StageDeploy, "ReturnToReady", lifecycle.StageDeploy, "CheckReleased",
		lifecycle.StageRenderCloudInit, "RevokeBootstrap", lifecycle.StageRenderCloudInit, "CheckBootstrapRevoked",
	}
}

// straight lists the remote activities of an onboarding without incident.
func straight() []Point {
	return remote(
		lifecycle.StageLoadSiteConfig, "LoadSiteConfig", lifecycle.StageResolvePower, "ResolvePowerCredentials",
		lifecycle.StageResolvePower, "CompareFormerSettings",
		lifecycle.StageCreateOrFind, "CreateOrFindMachine", lifecycle.StageCommission, "CommissionMachine",
		lifecycle.StageWaitReady, "WaitForReady", lifecycle.StageConfigureStorage, "ConfigureStorage",
		lifecycle.StageApplyRoCE, "ApplyRoCE", lifecycle.StageEnsurePXE, "EnsurePXEInterfaceAuto",
		lifecycle.StageRenderCloudInit, "RenderCloudInit", lifecycle.StageDeploy, "DeployMachine",
		lifecycle.StageWaitDeployed, "WaitForDeployed", lifecycle.StageEnsureHWSync, "CheckSSHSeed",
		lifecycle.StageEnsureHWSync, "EnsureHardwareSync", lifecycle.StageWaitHWSync, "WaitForHardwareSync",
		lifecycle.StageWaitAgent, "WaitForAgent", lifecycle.StageWaitAgent, "DiscardUserData",
	)
}

// remote makes points of pairs of stage and activity.
func remote(pairs ...string) []Point {
	var out []Point
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, Point{Stage: pairs[i], Activity: pairs[i+1]})
	}
	return out
}

// project is a job's projection at a stage, or at a status that ends it.
func project(at string) Point { return Point{Stage: at, Activity: "ProjectJob", Local: true} }

// projections are the local activities of an onboarding without incident.
func projections() []Point {
	out := []Point{{Stage: "load", Activity: "TakeJob", Local: true}}
	for _, s := range lifecycle.OnboardingStages() {
		if s != lifecycle.StageClassifyFailure && s != lifecycle.StageRecoverDatasource {
			out = append(out, project(s))
		}
	}
	return append(out, project(string(lifecycle.JobCompleted)))
}

// undone is a path that is cancelled at a point; its compensation gets the faults.
func undone(name string, at Point, pairs ...string) Path {
	return Path{
		Name: name, First: []Fault{{Point: at, Kind: Cancel, Variant: "before"}}, NoCancel: true, Check: onboarded(times{1, 1}),
		Points: append(remote(pairs...), project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
	}
}

// maasFault makes MAAS misbehave once with the target's machine.
func maasFault(name string) func(context.Context, *Target) error {
	return func(_ context.Context, t *Target) error {
		_, err := t.Stack.Sims.MAAS.AddFault(maassim.Fault{Name: name, Machine: t.Machine.Spec().NICs[0].MAC, Count: 1})
		return err
	}
}

// startOnboarding accepts an onboarding as the API does.
func startOnboarding(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	spec := t.Machine.Spec()
	job, _, err := onboarding.Accept(ctx, tx, onboarding.Checked{
		Request: onboarding.Request{
			SiteID: t.Site.ID, ProfileID: t.Profile.ID, SKUID: t.SKU.ID, Hostname: t.Host,
			BMC: intent.BMC{Address: spec.BMCAddress, Protocol: intent.ProtocolRedfish, CredentialRef: stack.BMCSecret(spec.ID)},
		},
		Site: t.Site, Profile: t.Profile, JobID: t.Job.ID,
	}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"})
	return job, err
}
