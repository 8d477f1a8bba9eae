package onboarding

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// Plan is the workflow that says what an onboarding would do, stage by stage, given what is
// observed now. It runs the stages' own activities where none of them can change anything.
func Plan(ctx workflow.Context, in contract.PlanInput) (contract.Plan, error) {
	in.Job.Kind = in.Kind
	p := &predictor{Planner: plan.New[State](ctx), bmcRecord: in.BMC, login: in.Login, actor: in.Actor}
	with := plan.Predictions[State]{
		Job: Job, Hostname: func(s *State) string { return s.Request.Hostname }, Unknown: p.unconfigured, Predict: p.predict,
	}
	return plan.Run(ctx, p.Planner, with, in.Job, in.Request)
}

// predictor is what the predictions learn of the machine, besides the state.
type predictor struct {
	*plan.Planner[State]
	bmcRecord json.RawMessage // of the request of a dry run
	login     bool            // one login to the BMC is allowed
	actor     string          // who asked

	// unreadable says why MAAS cannot be asked about the machine any more: the region is
	// unavailable, or it is not settled which machine it is.
	unreadable string
	// absent: MAAS has no such machine. toReady: the machine will come to Ready before the stages
	// that need it there.
	absent, toReady bool
	// recovers: the failed deployment would be tried again.
	recovers bool
}

// unconfigured says why nothing can be told of a stage without site and profile.
func (p *predictor) unconfigured(name string) string {
	configured := p.State.Site.Profile.DistroSeries != ""
	if name != lifecycle.StageLoadSiteConfig && !configured && !p.State.Request.Manual {
		return "site and profile could not be read"
	}
	return ""
}

type predictFunc func(p *predictor, ctx workflow.Context, st stage.Stage[State]) contract.PlanRow

// predictions has one function for every stage.
func predictions() map[string]predictFunc {
	return map[string]predictFunc{
		lifecycle.StageLoadSiteConfig: (*predictor).loadSiteConfig, lifecycle.StageResolvePower: (*predictor).resolvePower,
		lifecycle.StageCreateOrFind: (*predictor).createOrFind, lifecycle.StageCommission: (*predictor).commission,
		lifecycle.StageWaitReady: (*predictor).waitReady, lifecycle.StageConfigureStorage: (*predictor).configureStorage,
		lifecycle.StageApplyRoCE: (*predictor).applyRoCE, lifecycle.StageEnsurePXE: (*predictor).ensurePXE,
		lifecycle.StageRenderCloudInit: (*predictor).renderCloudInit, lifecycle.StageDeploy: (*predictor).deploy,
		lifecycle.StageWaitDeployed: (*predictor).waitDeployed, lifecycle.StageClassifyFailure: (*predictor).classify,
		lifecycle.StageRecoverDatasource: (*predictor).recoverDatasource, lifecycle.StageEnsureHWSync: (*predictor).ensureSync,
		lifecycle.StageWaitHWSync: (*predictor).waitSync, lifecycle.StageWaitAgent: (*predictor).waitAgent,
	}
}

func (p *predictor) predict(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	return predictions()[st.Name](p, ctx, st)
}

type dryRunMAAS[I any] = func(context.Context, maasact.DryRunIn[I]) (maasact.DryRunOut, error)

// readMachine asks MAAS what a stage would do with the machine.
func readMachine[I any](ctx workflow.Context, p *predictor, summary string, act dryRunMAAS[I], in I) (contract.PlanRow, maasact.DryRunOut) {
	if p.unreadable != "" {
		return plan.Unknown(p.unreadable), maasact.DryRunOut{}
	}
	l := maasact.DryRunIn[I]{In: in, Ready: p.toReady}
	if p.absent {
		l.Absent = p.State.Request.Hostname
	}
	f, err := plan.Read(ctx, p.Planner, summary, act, l)
	if err != nil {
		return plan.Unreadable(err), f
	}
	return p.machineRow(f), f
}

// machineRow is the row that MAAS's answer makes.
func (p *predictor) machineRow(f maasact.DryRunOut) contract.PlanRow {
	if f.MachineKnown {
		p.State.recordMachine(f.Machine)
	}
	row := contract.PlanRow{Steps: f.Steps, Observed: f.Observed}
	switch {
	case f.Unknown:
		row.Planned, row.Why = contract.PlannedUnknown, "commissioning has to read the machine's hardware first"
	case f.Failure != nil && f.Assumed && f.Failure.Class != lifecycle.FailMAASUnavailable:
		row.Planned = contract.PlannedUnknown
		row.Why = "commissioning reads the machine's hardware again; as MAAS lists it now it would not do: " + f.Failure.Message
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Waits:
		row.Planned = contract.PlannedWait
	case len(f.Steps) > 0:
		row.Planned = contract.PlannedRun
	default:
		row.Planned, row.Why = contract.PlannedDone, f.Machine.Note
	}
	return row
}

// fails is the row at which the job would park. When MAAS does not answer, or
// the machine is gone, the rest cannot be looked at.
func (p *predictor) fails(row contract.PlanRow, f contract.Failure) contract.PlanRow {
	row.Planned, row.Failure = contract.PlannedFail, contract.NewPlanFailure(f)
	if f.Class == lifecycle.FailMAASUnavailable || f.Class == lifecycle.FailMAASMachineDeleted {
		p.unreadable = f.Message
	}
	return row
}

// The prediction of each stage. None decides by itself what the stage's own activity can decide.

func (p *predictor) loadSiteConfig(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	in := maasact.LoadSiteIn{JobRef: p.State.Job.At(st.Name), Request: p.State.Request}
	f, err := plan.Read(ctx, p.Planner, "read site, profile, SKU", maas.PlanSite, maasact.DryRunIn[maasact.LoadSiteIn]{In: in})
	if err != nil {
		p.unreadable = "the site could not be read"
		return plan.Unreadable(err)
	}
	p.State.Site = f.Facts
	row := contract.PlanRow{Planned: contract.PlannedRun, Why: "reads site, profile and SKU"}
	if v := f.Facts.MAASVersion; v != "" {
		row.Observed = fmt.Sprintf("MAAS %s answers", v)
	}
	if f.Failure == nil {
		return row
	}
	row.Why = ""
	row = p.fails(row, *f.Failure)
	if f.Facts.MAASVersion == "" && p.unreadable == "" {
		p.unreadable = f.Failure.Message
	}
	return row
}

func (p *predictor) resolvePower(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	in := bmcact.PlanIn{
		In: bmcact.ResolveIn{
			JobRef: p.State.Job.At(st.Name), BMCID: p.State.Request.BMCID, CAPEM: p.State.Site.Site.BMCCAPEM, TrustFirstPin: p.State.Site.Site.TrustFirstBMCPin,
		},
		BMCRecord: p.bmcRecord, Login: p.login, Actor: p.actor,
	}
	f, err := plan.Read(ctx, p.Planner, "ask the BMC", bmc.PlanPower, in)
	if err != nil {
		return plan.Unreadable(err)
	}
	if f.LoggedIn || p.State.BMC.Serial == "" {
		p.State.BMC = f.Facts
	}
	row := contract.PlanRow{Planned: contract.PlannedRun, Steps: f.Steps, Observed: f.Observed}
	if f.Failure != nil {
		return p.fails(row, *f.Failure)
	}
	if !p.login {
		row.Why = "whether the BMC takes the login is not tried; ask with login to try it once"
	}
	return row
}

func (p *predictor) createOrFind(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	in := maasact.CreateIn{
		JobRef: p.State.Job.At(st.Name), Hostname: p.State.Request.Hostname, Profile: p.State.Site.Profile, BMC: p.State.BMC, KnownSystemID: p.State.Machine.SystemID,
	}
	row, f := readMachine(ctx, p, "find "+in.Hostname, maas.PlanCreateOrFind, in)
	known := p.State.Machine.SystemID
	switch {
	case row.Planned == contract.PlannedUnknown || row.Planned == contract.PlannedFail:
		if p.unreadable == "" {
			p.unreadable = "it is not settled which machine it is"
		}
	case known == "":
		p.absent, row.Observed = true, "no machine in MAAS matches"
		if len(p.State.BMC.MACs) == 0 {
			row.Why = "an enlisted machine is found by serial and MAC addresses too, which only a login to the BMC tells; ask with login to look for those"
		}
	case in.KnownSystemID == "" && !f.Machine.Done:
		row.Planned = contract.PlannedRun
		row.Steps = []string{"take up machine " + known + ", which MAAS has already"}
	default:
		row.Planned, row.Why = contract.PlannedDone, "machine "+known+" is this node's"
	}
	return row
}

func (p *predictor) commission(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	if p.absent {
		p.toReady = true
		return plan.Runs("commission " + p.State.Request.Hostname)
	}
	act := maas.PlanCommission
	if p.State.Recommission {
		act = maas.PlanRecommission
	}
	row, _ := readMachine(ctx, p, "would it commission", act, p.State.machineIn(st.Name))
	p.toReady = row.Planned == contract.PlannedRun || !slices.Contains([]string{"Ready", "Allocated", "Deploying", "Deployed"}, p.State.Machine.Status)
	return row
}

func (p *predictor) waitReady(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	waits := p.Waits(st, "waits until MAAS says Ready")
	switch {
	case p.unreadable != "":
		return plan.Unknown(p.unreadable)
	case p.State.Recommission: // commissioning failed: to wait once more would only see the same failure
		row := p.commission(ctx, st)
		row.Why = "commissioning failed; a new try goes back to " + lifecycle.StageCommission
		return row
	case p.Planned[lifecycle.StageCommission] == contract.PlannedRun:
		return waits
	case p.Planned[lifecycle.StageCommission] == contract.PlannedFail:
		return plan.Unknown("the machine does not come to Ready by itself")
	}
	row, _ := readMachine(ctx, p, "is it Ready", maas.PlanReady, p.State.machineIn(st.Name))
	if row.Planned == contract.PlannedWait {
		p.toReady = true
		row.Why = waits.Why
	}
	return row
}

func (p *predictor) configureStorage(ctx workflow.Context, _ stage.Stage[State]) contract.PlanRow {
	in := p.State.storageIn()
	row, f := readMachine(ctx, p, "boot disk and layout", maas.PlanStorage, in)
	if f.Unknown {
		row.Why += fmt.Sprintf("; then the boot disk is chosen by rule (%s) and gets layout %s", rule(in.Rule), in.Layout)
	}
	return row
}

func rule(r spec.BootDiskRule) string {
	text := "any disk"
	if r.ModelContains != "" {
		text = "model contains " + r.ModelContains
	}
	if r.MinBytes > 0 {
		text += fmt.Sprintf(", at least %d GB", r.MinBytes/1_000_000_000)
	}
	if r.MaxBytes > 0 {
		text += fmt.Sprintf(", at most %d GB", r.MaxBytes/1_000_000_000)
	}
	return text
}

func (p *predictor) applyRoCE(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	row, _ := readMachine(ctx, p, "RoCE ports", maas.PlanRoCE, p.State.networkIn(st.Name))
	return row
}

func (p *predictor) ensurePXE(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	row, _ := readMachine(ctx, p, "links of the boot interface", maas.PlanPXE, p.State.networkIn(st.Name))
	return row
}

func (p *predictor) renderCloudInit(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	in := nodeact.DryRunIn[nodeact.RenderIn]{In: p.State.renderIn()}
	f, err := plan.Read(ctx, p.Planner, "does the user-data render", node.PlanCloudInit, in)
	if err != nil {
		return plan.Unreadable(err)
	}
	row := contract.PlanRow{Planned: contract.PlannedRun, Steps: f.Steps, Observed: f.Observed}
	switch {
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Done:
		row.Planned = contract.PlannedDone
	}
	return row
}

func (p *predictor) deploy(ctx workflow.Context, _ stage.Stage[State]) contract.PlanRow {
	in := p.State.deployIn()
	if in.UserDataRef == "" || p.Planned[lifecycle.StageRenderCloudInit] != contract.PlannedDone {
		in.UserDataRef = maasact.PlannedUserData
	}
	row, _ := readMachine(ctx, p, "would it deploy", maas.PlanDeploy, in)
	return row
}

// deployed reports whether this job's deployment is there to be looked at.
func (p *predictor) deployed() bool { return p.Planned[lifecycle.StageDeploy] == contract.PlannedDone }

func (p *predictor) waitDeployed(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	waits := p.Waits(st, "waits until MAAS says Deployed or the deployment failed")
	switch {
	case p.Planned[lifecycle.StageDeploy] == contract.PlannedRun:
		return waits
	case !p.deployed():
		return plan.Unknown("it depends on " + lifecycle.StageDeploy)
	}
	in := maasact.WaitDeployedIn{MachineIn: p.State.machineIn(st.Name), Attempt: p.State.Deploy.Attempt}
	row, f := readMachine(ctx, p, "how does the deployment stand", maas.PlanDeployed, in)
	p.State.Deploy.Outcome = f.Outcome
	switch {
	case row.Planned == contract.PlannedWait:
		row.Why = waits.Why
	case f.Outcome == contract.DeployFailed:
		row.Why = "the deployment has failed"
	}
	return row
}

func (p *predictor) classify(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	if p.State.Deploy.Outcome == "" {
		return plan.Skips("only when the deployment fails")
	}
	in := maasact.ClassifyIn{MachineIn: p.State.machineIn(st.Name), Outcome: p.State.Deploy.Outcome}
	row, f := readMachine(ctx, p, "why the deployment failed", maas.PlanClassify, in)
	if f.Failure == nil || f.Failure.Class != lifecycle.FailDatasource {
		return row
	}
	attempt := max(p.State.Deploy.Attempt, 1)
	switch {
	case p.State.mayRetryDatasource():
		p.recovers = true
		return contract.PlanRow{Planned: contract.PlannedRun, Observed: row.Observed, Why: f.Failure.Message}
	case attempt > 1:
		row.Failure = contract.NewPlanFailure(contract.Failure{
			Class: lifecycle.FailDatasourceRepeated, Message: fmt.Sprintf("after %d deployments: %s", attempt, f.Failure.Message),
		})
	}
	return row
}

func (p *predictor) recoverDatasource(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	classified := p.Planned[lifecycle.StageClassifyFailure] == contract.PlannedDone && p.State.Deploy.Class == lifecycle.FailDatasource
	if !p.recovers && !classified {
		return plan.Skips("only when a deployment found no datasource")
	}
	in := maasact.ReleaseIn{MachineIn: p.State.machineIn(st.Name), OnlyOurs: true}
	row, _ := readMachine(ctx, p, "would it be released", maas.PlanRecover, in)
	if row.Planned == contract.PlannedRun {
		row.Why = fmt.Sprintf("then goes back to %s for deployment %d", lifecycle.StageConfigureStorage, max(p.State.Deploy.Attempt, 1)+1)
	}
	return row
}

// running reports whether the machine is up with this job's deployment.
func (p *predictor) running() bool {
	return p.unreadable == "" && p.State.Machine.Status == "Deployed" && !p.State.Machine.Foreign && p.State.Deploy.Outcome == contract.DeployOK
}

func (p *predictor) ensureSync(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	row := contract.PlanRow{Planned: contract.PlannedRun, Why: "looks whether hardware sync is on once the machine is Deployed"}
	switch {
	case !p.State.Site.Profile.RequireHWSync:
		row.Why = "logs in once the machine is Deployed; the profile does not require hardware sync"
	case p.running():
		row, _ = readMachine(ctx, p, "is hardware sync on", maas.PlanSyncOn, p.State.machineIn(st.Name))
	}
	if p.State.Site.Site.SSHKeyRef != "" && row.Failure == nil && row.Planned != contract.PlannedUnknown {
		row.Planned = contract.PlannedRun
		row.Steps = append([]string{"log in to the node by SSH and ask cloud-init whether it is done"}, row.Steps...)
	}
	return row
}

func (p *predictor) waitSync(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	waits := p.Waits(st, "waits for a hardware sync later than the deployment, and repairs it once")
	if !p.running() {
		return waits
	}
	in := maasact.WaitSyncIn{MachineIn: p.State.machineIn(st.Name), After: p.State.Deploy.SyncBefore}
	row, _ := readMachine(ctx, p, "has it synced", maas.PlanSynced, in)
	if row.Planned == contract.PlannedWait {
		row.Why = waits.Why
	}
	return row
}

func (p *predictor) waitAgent(ctx workflow.Context, st stage.Stage[State]) contract.PlanRow {
	in := nodeact.DryRunIn[nodeact.WaitAgentIn]{In: nodeact.WaitAgentIn{JobRef: p.State.Job.At(st.Name), SKU: p.State.Site.SKU, After: p.State.UserData.IssuedAt}}
	f, err := plan.Read(ctx, p.Planner, "what the agent reports", node.PlanAgent, in)
	if err != nil {
		return plan.Unreadable(err)
	}
	row := p.Waits(st, "waits for the agent's enrolment and a report that meets the SKU")
	row.Observed = f.Observed
	// Of an installation that will be replaced the agent proves nothing.
	replaced := p.Planned[lifecycle.StageDeploy] == contract.PlannedRun
	if !replaced {
		p.State.Agent = f.Agent
	}
	switch {
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Done && !replaced:
		row.Planned, row.Why = contract.PlannedDone, ""
	}
	return row
}
