package onboarding

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// What each stage would do. None decides by itself what the stage's own
// activity can decide.

func planSite(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	in := maasact.LoadSiteIn{JobRef: p.s.ref(st.Name), Request: p.s.Request}
	f, err := look[maasact.Look[maasact.LoadSiteIn], maasact.SitePlan](ctx, p, "read site, profile, SKU", maas.PlanSite, maasact.Look[maasact.LoadSiteIn]{In: in})
	if err != nil {
		p.blind = "the site could not be read"
		return unseen(err)
	}
	p.s.Site = f.Facts
	row := contract.PlanRow{Would: contract.WouldRun, Why: "reads site, profile and SKU"}
	if v := f.Facts.MAASVersion; v != "" {
		row.Seen = fmt.Sprintf("MAAS %s answers", v)
	}
	if f.Failure == nil {
		return row
	}
	row.Why = ""
	row = p.fails(row, *f.Failure)
	if f.Facts.MAASVersion == "" && p.blind == "" {
		p.blind = f.Failure.Message
	}
	return row
}

func planPower(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	in := bmcact.PlanIn{
		In: bmcact.ResolveIn{
			JobRef: p.s.ref(st.Name), BMCID: p.s.Request.BMCID, CAPEM: p.s.Site.Site.BMCCAPEM, TrustFirstPin: p.s.Site.Site.TrustFirstBMCPin,
		},
		Asked: p.in.BMC, Login: p.in.Login,
	}
	f, err := look[bmcact.PlanIn, bmcact.PowerPlan](ctx, p, "ask the BMC", bmc.PlanPower, in)
	if err != nil {
		return unseen(err)
	}
	if f.LoggedIn || p.s.BMC.Serial == "" {
		p.s.BMC = f.Facts
	}
	row := contract.PlanRow{Would: contract.WouldRun, Steps: f.Steps, Seen: f.Seen}
	if f.Failure != nil {
		return p.fails(row, *f.Failure)
	}
	if !p.in.Login {
		row.Why = "whether the BMC takes the login is not tried; ask with login to try it once"
	}
	return row
}

func planCreateOrFind(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	in := maasact.CreateIn{
		JobRef: p.s.ref(st.Name), Hostname: p.s.Request.Hostname, Profile: p.s.Site.Profile, BMC: p.s.BMC, Known: p.s.Machine.SystemID,
	}
	row, f := machineRow(ctx, p, "find "+in.Hostname, maas.PlanCreateOrFind, in)
	known := p.s.Machine.SystemID
	switch {
	case row.Would == contract.WouldUnknown || row.Would == contract.WouldFail:
		if p.blind == "" {
			p.blind = "it is not settled which machine it is"
		}
	case known == "":
		p.absent, row.Seen = true, "no machine in MAAS matches"
		if len(p.s.BMC.MACs) == 0 {
			row.Why = "an enlisted machine is found by serial and MAC addresses too, which only a login to the BMC tells; ask with login to look for those"
		}
	case in.Known == "" && !f.Machine.Done:
		row.Would = contract.WouldRun
		row.Steps = []string{"take up machine " + known + ", which MAAS has already"}
	default:
		row.Would, row.Why = contract.WouldBeDone, "machine "+known+" is this node's"
	}
	return row
}

func planCommission(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	if p.absent {
		p.toReady = true
		return contract.PlanRow{Would: contract.WouldRun, Steps: []string{"commission " + p.s.Request.Hostname}}
	}
	act := maas.PlanCommission
	if p.s.Recommission {
		act = maas.PlanRecommission
	}
	row, _ := machineRow(ctx, p, "would it commission", act, p.s.machineIn(st.Name))
	p.toReady = row.Would == contract.WouldRun || !slices.Contains([]string{"Ready", "Allocated", "Deploying", "Deployed"}, p.s.Machine.Status)
	return row
}

func planReady(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	waits := p.waits(st, "waits until MAAS says Ready")
	switch {
	case p.blind != "":
		return unknown(p.blind)
	case p.s.Recommission: // commissioning failed: to wait once more would only see the same failure
		row := planCommission(ctx, p, st)
		row.Why = "commissioning failed; a new try goes back to " + contract.StageCommission
		return row
	case p.would[contract.StageCommission] == contract.WouldRun:
		return waits
	case p.would[contract.StageCommission] == contract.WouldFail:
		return unknown("the machine does not come to Ready by itself")
	}
	row, _ := machineRow(ctx, p, "is it Ready", maas.PlanReady, p.s.machineIn(st.Name))
	if row.Would == contract.WouldWait {
		p.toReady = true
		row.Why = waits.Why
	}
	return row
}

func planStorage(ctx workflow.Context, p *planner, _ stage.Stage[State]) contract.PlanRow {
	in := p.s.storageIn()
	row, f := machineRow(ctx, p, "boot disk and layout", maas.PlanStorage, in)
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

func planRoCE(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	row, _ := machineRow(ctx, p, "RoCE ports", maas.PlanRoCE, p.s.networkIn(st.Name))
	return row
}

func planPXE(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	row, _ := machineRow(ctx, p, "links of the boot interface", maas.PlanPXE, p.s.networkIn(st.Name))
	return row
}

func planCloudInit(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	in := nodeact.Look[nodeact.RenderIn]{In: p.s.renderIn()}
	f, err := look[nodeact.Look[nodeact.RenderIn], nodeact.Foreseen](ctx, p, "does the user-data render", node.PlanCloudInit, in)
	if err != nil {
		return unseen(err)
	}
	row := contract.PlanRow{Would: contract.WouldRun, Steps: f.Steps, Seen: f.Seen}
	switch {
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Done:
		row.Would = contract.WouldBeDone
	}
	return row
}

func planDeploy(ctx workflow.Context, p *planner, _ stage.Stage[State]) contract.PlanRow {
	in := p.s.deployIn()
	if in.UserDataRef == "" || p.would[contract.StageRenderCloudInit] != contract.WouldBeDone {
		in.UserDataRef = maasact.PlannedUserData
	}
	row, _ := machineRow(ctx, p, "would it deploy", maas.PlanDeploy, in)
	return row
}

// deployed reports whether this job's deployment is there to be looked at.
func (p *planner) deployed() bool { return p.would[contract.StageDeploy] == contract.WouldBeDone }

func planDeployed(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	waits := p.waits(st, "waits until MAAS says Deployed or the deployment failed")
	switch {
	case p.would[contract.StageDeploy] == contract.WouldRun:
		return waits
	case !p.deployed():
		return unknown("it depends on " + contract.StageDeploy)
	}
	in := maasact.WaitDeployedIn{MachineIn: p.s.machineIn(st.Name), Attempt: p.s.Deploy.Attempt}
	row, f := machineRow(ctx, p, "how does the deployment stand", maas.PlanDeployed, in)
	p.s.Deploy.Outcome = f.Outcome
	switch {
	case row.Would == contract.WouldWait:
		row.Why = waits.Why
	case f.Outcome == contract.DeployFailed:
		row.Why = "the deployment has failed"
	}
	return row
}

func planClassify(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	if p.s.Deploy.Outcome == "" {
		return contract.PlanRow{Would: contract.WouldSkip, Why: "only when the deployment fails"}
	}
	in := maasact.ClassifyIn{MachineIn: p.s.machineIn(st.Name), Outcome: p.s.Deploy.Outcome}
	row, f := machineRow(ctx, p, "why the deployment failed", maas.PlanClassify, in)
	if f.Failure == nil || f.Failure.Class != lifecycle.FailDatasource {
		return row
	}
	attempt := max(p.s.Deploy.Attempt, 1)
	switch {
	case p.s.mayRetryDatasource():
		p.recovers = true
		return contract.PlanRow{Would: contract.WouldRun, Seen: row.Seen, Why: f.Failure.Message}
	case attempt > 1:
		row.Failure = contract.ForeseenFailure(contract.Failure{
			Class: lifecycle.FailDatasourceRepeated, Message: fmt.Sprintf("after %d deployments: %s", attempt, f.Failure.Message),
		})
	}
	return row
}

func planRecover(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	classified := p.would[contract.StageClassifyFailure] == contract.WouldBeDone && p.s.Deploy.Class == lifecycle.FailDatasource
	if !p.recovers && !classified {
		return contract.PlanRow{Would: contract.WouldSkip, Why: "only when a deployment found no datasource"}
	}
	in := maasact.ReleaseIn{MachineIn: p.s.machineIn(st.Name), OnlyOurs: true}
	row, _ := machineRow(ctx, p, "would it be released", maas.PlanRecover, in)
	if row.Would == contract.WouldRun {
		row.Why = fmt.Sprintf("then goes back to %s for deployment %d", contract.StageConfigureStorage, max(p.s.Deploy.Attempt, 1)+1)
	}
	return row
}

// running reports whether the machine is up with this job's deployment.
func (p *planner) running() bool {
	return p.blind == "" && p.s.Machine.Status == "Deployed" && !p.s.Machine.Foreign && p.s.Deploy.Outcome == contract.DeployOK
}

func planSyncOn(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	row := contract.PlanRow{Would: contract.WouldRun, Why: "looks whether hardware sync is on once the machine is Deployed"}
	if p.running() {
		row, _ = machineRow(ctx, p, "is hardware sync on", maas.PlanSyncOn, p.s.machineIn(st.Name))
	}
	if p.s.Site.Site.SSHKeyRef != "" && row.Failure == nil && row.Would != contract.WouldUnknown {
		row.Would = contract.WouldRun
		row.Steps = append([]string{"log in to the node by SSH and ask cloud-init whether it is done"}, row.Steps...)
	}
	return row
}

func planSynced(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	waits := p.waits(st, "waits for a hardware sync later than the deployment, and repairs it once")
	if !p.running() {
		return waits
	}
	in := maasact.WaitSyncIn{MachineIn: p.s.machineIn(st.Name), After: p.s.Deploy.SyncBefore}
	row, _ := machineRow(ctx, p, "has it synced", maas.PlanSynced, in)
	if row.Would == contract.WouldWait {
		row.Why = waits.Why
	}
	return row
}

func planAgent(ctx workflow.Context, p *planner, st stage.Stage[State]) contract.PlanRow {
	in := nodeact.Look[nodeact.WaitAgentIn]{In: nodeact.WaitAgentIn{JobRef: p.s.ref(st.Name), SKU: p.s.Site.SKU, After: p.s.UserData.IssuedAt}}
	f, err := look[nodeact.Look[nodeact.WaitAgentIn], nodeact.Foreseen](ctx, p, "what the agent reports", node.PlanAgent, in)
	if err != nil {
		return unseen(err)
	}
	row := p.waits(st, "waits for the agent's enrolment and a report that meets the SKU")
	row.Seen = f.Seen
	// Of an installation that will be replaced the agent proves nothing.
	replaced := p.would[contract.StageDeploy] == contract.WouldRun
	if !replaced {
		p.s.Agent = f.Agent
	}
	switch {
	case f.Failure != nil:
		return p.fails(row, *f.Failure)
	case f.Done && !replaced:
		row.Would, row.Why = contract.WouldBeDone, ""
	}
	return row
}
