package onboarding

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
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
		{Name: lifecycle.StageLoadSiteConfig, Weight: 1, Deadline: 5 * time.Minute, Run: loadSiteConfig,
			Doc: "read site, profile and SKU, and prove that MAAS can do what they ask"},
		{Name: lifecycle.StageResolvePower, Weight: 1, Deadline: 10 * time.Minute, Skip: skipManual, Run: resolvePower,
			Undo: endRotation, VerifyUndo: verifyRotationEnded, HasUndo: func(s *State, _ lifecycle.StageRow) bool { return s.RotatesBMC != "" },
			Observe: observePower, Adoptable: []string{}, Doc: "resolve the BMC login, check its certificate, read the system's identity, and compare a BMC that a former tenant could change"},
		{Name: lifecycle.StageCreateOrFind, Weight: 2, Deadline: 15 * time.Minute, Skip: skipManual, Run: createOrFind, Undo: removeCreated, VerifyUndo: verifyRecordRemoved,
			Doc: "find the machine in MAAS or create it"},
		{Name: lifecycle.StageCommission, Weight: 2, Deadline: 10 * time.Minute, Skip: skipManual, Run: commission, Undo: abortCommissioning, VerifyUndo: verifyNotCommissioning,
			Observe: observeCommissioned, Doc: "start commissioning"},
		{Name: lifecycle.StageWaitReady, Weight: 20, Deadline: 90 * time.Minute, Waits: true, Skip: skipManual, Run: waitReady,
			Observe: observeMachine("Ready", "Allocated", "Deploying", "Deployed"), Doc: "wait until MAAS says Ready"},
		{Name: lifecycle.StageConfigureStorage, Weight: 2, Deadline: 10 * time.Minute, Skip: skipManual, Run: configureStorage,
			Observe: observeStorage, Doc: "choose the boot disk by rule and lay it out"},
		{Name: lifecycle.StageApplyRoCE, Weight: 2, Deadline: 10 * time.Minute, Skip: skipApplyRoCE, Run: applyRoCE,
			Observe: observeRoCE, Doc: "set up the RoCE ports from the records of site and hostname"},
		{Name: lifecycle.StageEnsurePXE, Weight: 2, Deadline: 10 * time.Minute, Skip: skipManual, Run: ensurePXE,
			Observe: observePXE, Doc: "leave exactly one AUTO link on the boot interface"},
		{Name: lifecycle.StageRenderCloudInit, Weight: 1, Deadline: 5 * time.Minute, Skip: skipManual, Run: renderCloudInit, Undo: revokeBootstrap, VerifyUndo: verifyBootstrapRevoked,
			Doc: "issue the enrolment token and seal the user-data"},
		{Name: lifecycle.StageDeploy, Weight: 3, Deadline: 15 * time.Minute, Skip: skipManual, Run: deploy, Undo: releaseDeployed, VerifyUndo: verifyReleased,
			Observe: observeDeploy, Adoptable: []string{"Deploying"}, Doc: "allocate, mark and deploy"},
		{Name: lifecycle.StageWaitDeployed, Weight: 40, Deadline: 130 * time.Minute, DeadlineClass: lifecycle.FailDeployTimeout, Waits: true,
			Skip: skipManual, Run: waitDeployed, Observe: observeDeployed, Doc: "wait until MAAS says Deployed, or the deployment failed"},
		{Name: lifecycle.StageClassifyFailure, Weight: 1, Deadline: 10 * time.Minute, Skip: skipDeployRecovery, Run: classify,
			Doc: "tell why a deployment failed"},
		{Name: lifecycle.StageRecoverDatasource, Weight: 1, Deadline: 60 * time.Minute, Waits: true, Skip: skipDeployRecovery, Run: recoverDatasource,
			Doc: "after a datasource failure: release, wait, and deploy again"},
		{Name: lifecycle.StageEnsureHWSync, Weight: 2, Deadline: 30 * time.Minute, Skip: skipLoginAndSync, Run: ensureSync,
			Doc: "check that the node takes Slipway's SSH login, and that hardware sync is on where the profile requires it"},
		{Name: lifecycle.StageWaitHWSync, Weight: 10, Deadline: 120 * time.Minute, Waits: true, Skip: skipHardwareSync, Run: waitSync,
			Observe: observeSync, Doc: "wait for a hardware sync later than the deployment; repair once"},
		{Name: lifecycle.StageWaitAgent, Weight: 10, Deadline: 60 * time.Minute, DeadlineClass: lifecycle.FailAgentNotEnrolled, Waits: true,
			Run: waitAgent, Undo: lockIdentity, VerifyUndo: verifyIdentityLocked, Doc: "wait for the agent's enrolment and a report that meets the SKU"},
	}
}

func skipManual(s *State) string {
	if s.Request.Manual {
		return "bootstrapped by hand"
	}
	return ""
}

func skipApplyRoCE(s *State) string {
	if why := skipManual(s); why != "" {
		return why
	}
	if !s.Site.Profile.EnablePhase2RoCE {
		return "the profile does not enable RoCE"
	}
	return ""
}

func skipHardwareSync(s *State) string {
	if why := skipManual(s); why != "" {
		return why
	}
	if !s.Site.Profile.RequireHWSync {
		return "the profile does not require hardware sync"
	}
	return ""
}

// skipLoginAndSync is skipHardwareSync for the stage that also proves the SSH login, which does not
// depend on hardware sync.
func skipLoginAndSync(s *State) string {
	why := skipHardwareSync(s)
	if why == "" || (!s.Request.Manual && s.Site.Site.SSHKeyRef != "") {
		return ""
	}
	return why
}

func skipDeployRecovery(s *State) string {
	if why := skipManual(s); why != "" {
		return why
	}
	if s.Deploy.Outcome == contract.DeployOK {
		return "the deployment succeeded"
	}
	return ""
}

func (s *State) machineIn(name string) maasact.MachineIn {
	return maasact.MachineIn{JobRef: s.Job.At(name), SystemID: s.Machine.SystemID, Poll: s.Site.Profile.PollInterval}
}

// recordMachine keeps the newest facts without losing what an earlier step established.
func (s *State) recordMachine(f contract.MachineFacts) {
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
	in := maasact.LoadSiteIn{JobRef: s.Job.At(lifecycle.StageLoadSiteConfig), Request: s.Request}
	f, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadSiteConfig, in)
	if err == nil {
		s.Site = f
	}
	return err
}

func resolvePower(ctx workflow.Context, s *State) error {
	if s.RotatesBMC != "" { // until that has ended no login of the BMC is proven
		if err := rotateLogin(ctx, s); err != nil {
			return err
		}
	}
	in := bmcact.ResolveIn{
		JobRef: s.Job.At(lifecycle.StageResolvePower), BMCID: s.Request.BMCID,
		CAPEM: s.Site.Site.BMCCAPEM, TrustFirstPin: s.Site.Site.TrustFirstBMCPin,
	}
	f, err := stage.Do(ctx, stage.KindBMCCall, "log in to the BMC and identify", bmc.ResolvePowerCredentials, in)
	if err != nil {
		return err
	}
	s.BMC = f
	return compareFormerTenant(ctx, s)
}

// compareFormerTenant fails with firmware_changed where the BMC is another one than before the last
// tenant of the machine's former record. Else it gives the BMC another password, since that tenant
// was root and could have learnt it, and ends the mark of the record.
func compareFormerTenant(ctx workflow.Context, s *State) error {
	in := bmcact.FormerIn{JobRef: s.Job.At(lifecycle.StageResolvePower), CAPEM: s.Site.Site.BMCCAPEM, BMC: s.BMC, Rotated: s.NewLogin}
	f, err := compareFormer(ctx, in)
	if err != nil || f.FormerNode == "" {
		return err
	}
	s.RotatesBMC = s.BMC.BMCID
	if err := stage.Save(ctx); err != nil { // a workflow that is lost now ends the rotation all the same
		return err
	}
	if err := rotateLogin(ctx, s); err != nil || !s.NewLogin {
		return err
	}
	in.Rotated = true
	_, err = compareFormer(ctx, in)
	return err
}

// rotateLogin gives the BMC another password, or goes on with that. A BMC whose password cannot be
// changed keeps its own: then an operator may accept it at a risk.
func rotateLogin(ctx workflow.Context, s *State) error {
	job := s.Job.At(lifecycle.StageResolvePower)
	done, err := sanitize.RotateLogin(ctx, job, s.RotatesBMC)
	if stage.ClassOf(err) == lifecycle.FailConfiguration && sanitize.EndRotation(ctx, job, s.RotatesBMC) == nil {
		s.RotatesBMC = ""
	}
	if done {
		s.RotatesBMC, s.NewLogin = "", true
	}
	return err
}

func compareFormer(ctx workflow.Context, in bmcact.FormerIn) (contract.SettingsFacts, error) {
	f, err := stage.Do(ctx, stage.KindBMCCall, "compare the BMC with what it was before its last tenant", bmc.CompareFormerSettings, in)
	if err == nil && len(f.Changed) > 0 {
		err = stage.Fail(lifecycle.FailFirmwareChanged, "a tenant has left this machine, and its BMC shows other settings than before: %s", strings.Join(f.Changed, "; "))
	}
	return f, err
}

// observePower lets an operator accept, at a risk, a BMC that was identified and is not what it was
// before its last tenant. It reads nothing: the stage itself always runs.
func observePower(_ workflow.Context, s *State) (stage.Observation, error) {
	if s.BMC.BMCID == "" {
		return stage.Observation{Refused: "the BMC has not been identified, so that nothing of it can be accepted"}, nil
	}
	if s.RotatesBMC != "" {
		return stage.Observation{Refused: "the job has begun to change the BMC's password; retry the stage, or cancel the job, which ends the change"}, nil
	}
	return stage.Observation{State: "the BMC as it is"}, nil
}

func createOrFind(ctx workflow.Context, s *State) error {
	in := maasact.CreateIn{
		JobRef: s.Job.At(lifecycle.StageCreateOrFind), Hostname: s.Request.Hostname,
		Profile: s.Site.Profile, BMC: s.BMC, KnownSystemID: s.Machine.SystemID, NewLogin: s.NewLogin,
	}
	f, err := stage.Do(ctx, stage.KindMAASCall, "find or create "+s.Request.Hostname, maas.CreateOrFindMachine, in)
	if err == nil {
		s.recordMachine(f)
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
	in := s.machineIn(lifecycle.StageCommission)
	in.Commissioning = s.Machine.Commissioning
	f, err := stage.Do(ctx, stage.KindMAASCall, what+s.Machine.SystemID, act, in)
	if err == nil {
		s.recordMachine(f)
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

// waitReady commissions the machine again before it waits again after a failure, since waiting
// alone would find the same failure. For that, an operator's retry goes back to commission_node.
func waitReady(ctx workflow.Context, s *State) error {
	switch {
	case s.Recommission && stage.Attempt(ctx) == 1:
		return stage.GoTo(lifecycle.StageCommission)
	case s.Recommission:
		if err := commission(ctx, s); err != nil {
			return err
		}
	}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for Ready", maas.WaitForReady, s.machineIn(lifecycle.StageWaitReady))
	if err == nil {
		s.recordMachine(f)
	}
	s.Recommission = stage.ClassOf(err) == lifecycle.FailCommissioning
	return err
}

func (s *State) storageIn() maasact.StorageIn {
	return maasact.StorageIn{
		JobRef: s.Job.At(lifecycle.StageConfigureStorage), SystemID: s.Machine.SystemID,
		Rule: s.Site.Profile.BootDisk, Layout: s.Site.Profile.StorageLayout,
	}
}

func configureStorage(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "boot disk and layout", maas.ConfigureStorage, s.storageIn())
	if err == nil {
		s.recordMachine(f)
	}
	// MAAS knows the disks that commissioning saw: one that is put in now is
	// seen only when the machine is commissioned again.
	s.Recommission = stage.ClassOf(err) == lifecycle.FailBootDiskNotFound
	return err
}

func (s *State) networkIn(name string) maasact.NetworkIn {
	return maasact.NetworkIn{
		JobRef: s.Job.At(name), SystemID: s.Machine.SystemID, Hostname: s.Request.Hostname, Strict: s.Site.Profile.StrictPXEPreflight,
	}
}

func applyRoCE(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindMAASCall, "RoCE ports", maas.ApplyRoCE, s.networkIn(lifecycle.StageApplyRoCE))
	return err
}

func ensurePXE(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindMAASCall, "one AUTO link", maas.EnsurePXEInterfaceAuto, s.networkIn(lifecycle.StageEnsurePXE))
	if err == nil {
		s.recordMachine(f)
	}
	return err
}

func (s *State) renderIn() nodeact.RenderIn {
	return nodeact.RenderIn{
		JobRef: s.Job.At(lifecycle.StageRenderCloudInit), Hostname: s.Request.Hostname, Profile: s.Site.Profile, Site: s.Site.Site,
		Attempt: max(s.Deploy.Attempt, 1), Existing: s.UserData,
		InUse: s.Machine.Status == "Deploying" || s.Machine.Status == "Deployed",
	}
}

func renderCloudInit(ctx workflow.Context, s *State) error {
	ud, err := stage.Do(ctx, stage.KindLocalWork, "token, host key, user-data", node.RenderCloudInit, s.renderIn())
	if err == nil {
		s.UserData = ud
	}
	s.Deploy.Started = s.Deploy.Started || s.Machine.Status == "Ready" // known before deploy_via_maas begins
	return err
}
