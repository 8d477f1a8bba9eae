package onboarding

import (
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	maas *maasact.Activities
	bmc  *bmcact.Activities
	node *nodeact.Activities
)

// stages is the story of an onboarding.
func stages() []stage.Stage[State] {
	return []stage.Stage[State]{
		{Name: contract.StageLoadSiteConfig, Weight: 1, Deadline: 5 * time.Minute, Run: loadSiteConfig,
			Doc: "read site, profile and SKU, and prove that MAAS can do what they ask"},
		{Name: contract.StageResolvePower, Weight: 1, Deadline: 10 * time.Minute, Skip: manual, Run: resolvePower,
			Doc: "resolve the BMC login, check its certificate, read the system's identity"},
		{Name: contract.StageCreateOrFind, Weight: 2, Deadline: 15 * time.Minute, Skip: manual, Run: createOrFind, Undo: removeCreated, Remains: recordRemains,
			Doc: "find the machine in MAAS or create it"},
		{Name: contract.StageCommission, Weight: 2, Deadline: 10 * time.Minute, Skip: manual, Run: commission, Undo: abortCommissioning, Remains: commissioningRemains,
			Observe: observeCommissioned, Doc: "start commissioning"},
		{Name: contract.StageWaitReady, Weight: 20, Deadline: 90 * time.Minute, Waits: true, Skip: manual, Run: waitReady,
			Observe: observeMachine("Ready", "Allocated", "Deploying", "Deployed"), Doc: "wait until MAAS says Ready"},
		{Name: contract.StageConfigureStorage, Weight: 2, Deadline: 10 * time.Minute, Skip: manual, Run: configureStorage,
			Observe: observeStorage, Doc: "choose the boot disk by rule and lay it out"},
		{Name: contract.StageApplyRoCE, Weight: 2, Deadline: 10 * time.Minute, Skip: noRoCE, Run: applyRoCE,
			Observe: observeRoCE, Doc: "set up the RoCE ports from the records of site and hostname"},
		{Name: contract.StageEnsurePXE, Weight: 2, Deadline: 10 * time.Minute, Skip: manual, Run: ensurePXE,
			Observe: observePXE, Doc: "leave exactly one AUTO link on the boot interface"},
		{Name: contract.StageRenderCloudInit, Weight: 1, Deadline: 5 * time.Minute, Skip: manual, Run: renderCloudInit, Undo: revokeBootstrap, Remains: bootstrapRemains,
			Doc: "issue the enrolment token and seal the user-data"},
		{Name: contract.StageDeploy, Weight: 3, Deadline: 15 * time.Minute, Skip: manual, Run: deploy, Undo: releaseDeployed, Remains: deploymentRemains,
			Observe: observeDeploy, Adoptable: []string{"Deploying"}, Doc: "allocate, mark and deploy"},
		{Name: contract.StageWaitDeployed, Weight: 40, Deadline: 130 * time.Minute, DeadlineClass: lifecycle.FailDeployTimeout, Waits: true,
			Skip: manual, Run: waitDeployed, Observe: observeDeployed, Doc: "wait until MAAS says Deployed, or the deployment failed"},
		{Name: contract.StageClassifyFailure, Weight: 1, Deadline: 10 * time.Minute, Skip: deployedWell, Run: classify,
			Doc: "tell why a deployment failed"},
		{Name: contract.StageRecoverDatasource, Weight: 1, Deadline: 60 * time.Minute, Waits: true, Skip: deployedWell, Run: recoverDatasource,
			Doc: "after a datasource failure: release, wait, and deploy again"},
		{Name: contract.StageEnsureHWSync, Weight: 2, Deadline: 30 * time.Minute, Skip: noSync, Run: ensureSync,
			Doc: "check that the node takes Slipway's SSH login, and that hardware sync is on"},
		{Name: contract.StageWaitHWSync, Weight: 10, Deadline: 120 * time.Minute, Waits: true, Skip: noSync, Run: waitSync,
			Observe: observeSync, Doc: "wait for a hardware sync later than the deployment; repair once"},
		{Name: contract.StageWaitAgent, Weight: 10, Deadline: 60 * time.Minute, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true,
			Run: waitAgent, Undo: lockIdentity, Remains: identityRemains, Doc: "wait for the agent's enrolment and a report that meets the SKU"},
	}
}

func manual(s *State) string {
	if s.Request.Manual {
		return "bootstrapped by hand"
	}
	return ""
}

func noRoCE(s *State) string {
	if why := manual(s); why != "" {
		return why
	}
	if !s.Site.Profile.EnablePhase2RoCE {
		return "the profile does not enable RoCE"
	}
	return ""
}

func noSync(s *State) string {
	if why := manual(s); why != "" {
		return why
	}
	if !s.Site.Profile.RequireHWSync {
		return "the profile does not require hardware sync"
	}
	return ""
}

func deployedWell(s *State) string {
	if why := manual(s); why != "" {
		return why
	}
	if s.Deploy.Outcome == contract.DeployOK {
		return "the deployment succeeded"
	}
	return ""
}

// ref names the job at a stage.
func (s *State) ref(name string) contract.JobRef {
	r := s.Job
	r.Stage = name
	return r
}

func (s *State) machineIn(name string) maasact.MachineIn {
	return maasact.MachineIn{JobRef: s.ref(name), SystemID: s.Machine.SystemID, Poll: s.Site.Profile.PollInterval}
}

// saw keeps the newest facts without losing what an earlier step established.
func (s *State) saw(f contract.MachineFacts) {
	if f.SystemID == "" {
		f.SystemID = s.Machine.SystemID
	}
	f.Created = f.Created || (s.Machine.Created && f.SystemID == s.Machine.SystemID)
	if f.Status == "" {
		f.Status, f.IPs = s.Machine.Status, s.Machine.IPs
	}
	if f.Power == "" {
		f.Power = s.Machine.Power
	}
	f.Commissioning = max(f.Commissioning, s.Machine.Commissioning)
	s.Machine = f
}

func loadSiteConfig(ctx workflow.Context, s *State) error {
	in := maasact.LoadSiteIn{JobRef: s.ref(contract.StageLoadSiteConfig), Request: s.Request}
	f, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadSiteConfig, in)
	if err == nil {
		s.Site = f
	}
	return err
}

func resolvePower(ctx workflow.Context, s *State) error {
	in := bmcact.ResolveIn{
		JobRef: s.ref(contract.StageResolvePower), BMCID: s.Request.BMCID,
		CAPEM: s.Site.Site.BMCCAPEM, TrustFirstPin: s.Site.Site.TrustFirstBMCPin,
	}
	f, err := stage.Do(ctx, stage.KindBMCCall, "log in to the BMC and identify", bmc.ResolvePowerCredentials, in)
	if err == nil {
		s.BMC = f
	}
	return err
}

func createOrFind(ctx workflow.Context, s *State) error {
	in := maasact.CreateIn{
		JobRef: s.ref(contract.StageCreateOrFind), Hostname: s.Request.Hostname,
		Profile: s.Site.Profile, BMC: s.BMC, Known: s.Machine.SystemID,
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "find or create "+s.Request.Hostname, maas.CreateOrFindMachine, in)
	if err == nil {
		s.saw(f)
	}
	return err
}

func commission(ctx workflow.Context, s *State) error {
	act, what := maas.CommissionMachine, "commission "
	// Only what is known to be Ready has to be commissioned from there: after a
	// commissioning that failed, a Ready machine is what a lost execution of this
	// very activity has made of it.
	if s.Recommission && s.Machine.Status == "Ready" {
		act, what = maas.CommissionAgain, "commission again "
	}
	in := s.machineIn(contract.StageCommission)
	in.Commissioning = s.Machine.Commissioning
	f, err := stage.Do(ctx, stage.KindMAASCall, what+s.Machine.SystemID, act, in)
	if err == nil {
		s.saw(f)
		s.Recommission = false
	}
	return err
}

// observeCommissioned takes nothing for done while the machine is to be
// commissioned again.
func observeCommissioned(ctx workflow.Context, s *State) (stage.Observation, error) {
	o, err := observeMachine("Commissioning", "Testing", "Ready", "Allocated", "Deploying", "Deployed")(ctx, s)
	o.Done = o.Done && !s.Recommission
	return o, err
}

// waitReady commissions anew before it waits again after a failure: to wait
// once more would only see the same one. A person's retry goes back to
// commission_node for it.
func waitReady(ctx workflow.Context, s *State) error {
	switch {
	case s.Recommission && stage.Attempt(ctx) == 1:
		return stage.Back(contract.StageCommission)
	case s.Recommission:
		if err := commission(ctx, s); err != nil {
			return err
		}
	}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for Ready", maas.WaitForReady, s.machineIn(contract.StageWaitReady))
	if err == nil {
		s.saw(f)
	}
	s.Recommission = stage.ClassOf(err) == lifecycle.FailCommissioning
	return err
}

func (s *State) storageIn() maasact.StorageIn {
	return maasact.StorageIn{
		JobRef: s.ref(contract.StageConfigureStorage), SystemID: s.Machine.SystemID,
		Rule: s.Site.Profile.BootDisk, Layout: s.Site.Profile.StorageLayout,
	}
}

func configureStorage(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "boot disk and layout", maas.ConfigureStorage, s.storageIn())
	if err == nil {
		s.saw(f)
	}
	// MAAS knows the disks that commissioning saw: one that is put in now is
	// seen only when the machine is commissioned again.
	s.Recommission = stage.ClassOf(err) == lifecycle.FailBootDiskNotFound
	return err
}

func (s *State) networkIn(name string) maasact.NetworkIn {
	return maasact.NetworkIn{
		JobRef: s.ref(name), SystemID: s.Machine.SystemID, Hostname: s.Request.Hostname, Strict: s.Site.Profile.StrictPXEPreflight,
	}
}

func applyRoCE(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindMAASCall, "RoCE ports", maas.ApplyRoCE, s.networkIn(contract.StageApplyRoCE))
	return err
}

func ensurePXE(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "one AUTO link", maas.EnsurePXEInterfaceAuto, s.networkIn(contract.StageEnsurePXE))
	if err == nil {
		s.saw(f)
	}
	return err
}

func (s *State) renderIn() nodeact.RenderIn {
	return nodeact.RenderIn{
		JobRef: s.ref(contract.StageRenderCloudInit), Hostname: s.Request.Hostname, Profile: s.Site.Profile, Site: s.Site.Site,
		Attempt: max(s.Deploy.Attempt, 1), Known: s.UserData,
		InUse: s.Machine.Status == "Deploying" || s.Machine.Status == "Deployed",
	}
}

func renderCloudInit(ctx workflow.Context, s *State) error {
	ud, err := stage.Do(ctx, stage.KindLocalWork, "token, host key, user-data", node.RenderCloudInit, s.renderIn())
	if err == nil {
		s.UserData = ud
	}
	s.Deploy.Begun = s.Deploy.Begun || s.Machine.Status == "Ready" // known before deploy_via_maas begins
	return err
}
