package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// planFresh: MAAS knows nothing of the machine; without a login only its
// hostname and BMC address are looked for.
func planFresh(t *testing.T, p *planner) {
	got := p.dry(t, p.request(p.fresh), "").
		is(contract.StageLoadSiteConfig, contract.WouldRun, "MAAS").
		is(contract.StageResolvePower, contract.WouldRun, "approve the certificate pin", "log in to the BMC", "is not tried").
		is(contract.StageCreateOrFind, contract.WouldRun, "create "+host(p.fresh), "power redfish", "ask with login").
		is(contract.StageCommission, contract.WouldRun, "commission "+host(p.fresh)).
		is(contract.StageWaitReady, contract.WouldWait, "1h30m").
		is(contract.StageConfigureStorage, contract.WouldUnknown, "model contains BOSS", "layout flat").
		is(contract.StageApplyRoCE, contract.WouldUnknown).
		is(contract.StageEnsurePXE, contract.WouldUnknown).
		is(contract.StageRenderCloudInit, contract.WouldRun, "one-time enrolment token for 1h0m0s").
		is(contract.StageDeploy, contract.WouldRun, "allocate "+host(p.fresh), "deploy jammy", "hardware sync on").
		is(contract.StageWaitDeployed, contract.WouldWait).
		is(contract.StageClassifyFailure, contract.WouldSkip).
		is(contract.StageRecoverDatasource, contract.WouldSkip).
		is(contract.StageEnsureHWSync, contract.WouldRun, "SSH").
		is(contract.StageWaitHWSync, contract.WouldWait).
		is(contract.StageWaitAgent, contract.WouldWait, "no agent has reported")
	require.False(t, got.NeedsHuman)
	require.Empty(t, got.JobID)
	require.Empty(t, got.NodeID)
	again := p.dry(t, p.request(p.fresh), "")
	require.Equal(t, got.PlanHash, again.PlanHash, "nothing has changed")
	out := p.cliAnswer(t, p.token, "node", "onboard", "--dry-run", "--site", p.site.Name, "--profile", p.profile.Name, "--sku", p.sku.Name,
		"--hostname", host(p.fresh), "--bmc", p.fresh.Spec().BMCAddress, "--credential", "sim/bmc/"+p.fresh.Spec().ID)
	require.Contains(t, out, "dry run")
	require.Contains(t, out, "deploy jammy")
	require.Contains(t, out, got.PlanHash)
}

// planEnlisted: a machine that enlisted itself has a name of MAAS's own and is
// found by its BMC; what it has is known only as far as enlisting read it.
func planEnlisted(t *testing.T, p *planner) {
	p.dry(t, p.request(p.enlisted), "").
		is(contract.StageCreateOrFind, contract.WouldRun, "take up machine", "MAAS New").
		is(contract.StageCommission, contract.WouldRun, "commission").
		is(contract.StageWaitReady, contract.WouldWait).
		is(contract.StageDeploy, contract.WouldRun, "deploy jammy")
}

// planForeign: somebody else's machine is left alone.
func planForeign(t *testing.T, p *planner) {
	p.dry(t, p.request(p.foreign), "").
		parks(contract.StageCreateOrFind, lifecycle.FailStateDisagreement).
		is(contract.StageCreateOrFind, contract.WouldFail, "already Deployed by someone else", "MAAS Deployed").
		is(contract.StageConfigureStorage, contract.WouldUnknown, "not settled").
		is(contract.StageDeploy, contract.WouldUnknown)
}

// planPicky: a machine that is Ready is taken up; under a profile whose rule no
// disk meets the job would park.
func planPicky(t *testing.T, p *planner) {
	request := p.request(p.ready)
	good := p.dry(t, request, "").
		is(contract.StageCreateOrFind, contract.WouldRun, "take up machine").
		is(contract.StageCommission, contract.WouldBeDone, "already Ready").
		is(contract.StageWaitReady, contract.WouldBeDone).
		is(contract.StageConfigureStorage, contract.WouldRun, "the boot disk", "BOSS", "storage layout flat").
		is(contract.StageEnsurePXE, contract.WouldRun, "remove the auto", "links of").
		is(contract.StageDeploy, contract.WouldRun, "allocate", "mark", "deploy jammy")
	require.False(t, good.NeedsHuman)
	request["profile_id"] = p.pickyProfile.ID
	bad := p.dry(t, request, "").
		parks(contract.StageConfigureStorage, lifecycle.FailBootDiskNotFound).
		is(contract.StageConfigureStorage, contract.WouldFail, "NOSUCH").
		is(contract.StageEnsurePXE, contract.WouldRun)
	require.NotEqual(t, good.PlanHash, bad.PlanHash)
}

// planTwofold: two records in MAAS could be the machine.
func planTwofold(t *testing.T, p *planner) {
	p.dry(t, p.request(p.twofold), "").
		parks(contract.StageCreateOrFind, lifecycle.FailConflictingCandidates).
		is(contract.StageCreateOrFind, contract.WouldFail, "2 MAAS machines match").
		is(contract.StageConfigureStorage, contract.WouldUnknown, "not settled")
}

// planParked: what is behind the job is shown as done; where it stands it would
// park again.
func planParked(t *testing.T, p *planner) {
	status, raw := p.ask(t, http.MethodGet, "/onboardings/"+p.parked.ID+"/plan", nil)
	got := readPlan(t, status, raw).
		is(contract.StageLoadSiteConfig, contract.WouldBeDone, "this job has done it").
		is(contract.StageCreateOrFind, contract.WouldBeDone).
		is(contract.StageWaitReady, contract.WouldBeDone).
		parks(contract.StageConfigureStorage, lifecycle.FailBootDiskNotFound).
		is(contract.StageDeploy, contract.WouldRun)
	require.Equal(t, p.parked.ID, got.JobID)
	require.Equal(t, "Ready", got.Observed.MAAS)
	out := p.cliAnswer(t, p.token, "job", "plan", p.parked.ID)
	require.Contains(t, out, "boot_disk_not_found")
	require.Contains(t, out, "would park as failed_manual_intervention")
}

// planAway: the region does not answer, and that is all that can be told.
func planAway(t *testing.T, p *planner) {
	request := p.request(p.fresh)
	request["site_id"], request["profile_id"] = p.away.ID, p.awayProfile.ID
	p.dry(t, request, "").
		parks(contract.StageLoadSiteConfig, lifecycle.FailMAASUnavailable).
		is(contract.StageCreateOrFind, contract.WouldUnknown).
		is(contract.StageDeploy, contract.WouldUnknown).
		is(contract.StageResolvePower, contract.WouldRun).
		is(contract.StageRenderCloudInit, contract.WouldRun)
}

// planRefused: a dry run is refused by what refuses the real request.
func planRefused(t *testing.T, p *planner) {
	for name, c := range map[string]struct {
		change func(map[string]any)
		status int
		says   string
	}{
		"unknown site":     {func(r map[string]any) { r["site_id"] = "site_00000000-0000-7000-8000-000000000000" }, 422, "no such site"},
		"other's profile":  {func(r map[string]any) { r["profile_id"] = p.awayProfile.ID }, 422, "another site"},
		"unknown SKU":      {func(r map[string]any) { r["sku_id"] = "sku_00000000-0000-7000-8000-000000000000" }, 422, "no such SKU"},
		"bad hostname":     {func(r map[string]any) { r["hostname"] = "No Host" }, 422, "DNS label"},
		"live job of host": {func(r map[string]any) { r["hostname"] = host(p.diskless) }, 409, p.parked.ID},
	} {
		request := p.request(p.fresh)
		c.change(request)
		for _, path := range []string{"/onboardings/plan", "/onboardings"} {
			status, raw := p.ask(t, http.MethodPost, path, request)
			require.Equal(t, c.status, status, "%s %s: %s", name, path, raw)
			require.Contains(t, string(raw), c.says, name)
		}
	}
	status, raw := p.ask(t, http.MethodGet, "/onboardings/job_00000000-0000-7000-8000-000000000000/plan", nil)
	require.Equal(t, http.StatusNotFound, status, string(raw))
}

// planWithLogin: one login tells serial and MAC addresses.
func planWithLogin(t *testing.T, p *planner) {
	b := p.Sims.BMCs[p.enlisted.Spec().ID]
	before := b.Counters()
	p.dry(t, p.request(p.enlisted), "?login=true").
		is(contract.StageResolvePower, contract.WouldRun, p.enlisted.Spec().Serial).
		is(contract.StageCreateOrFind, contract.WouldRun, "take up machine").
		is(contract.StageCommission, contract.WouldRun, "commission")
	after := b.Counters()
	require.Equal(t, before.FailedLogins, after.FailedLogins)
	require.Equal(t, before.Patches, after.Patches)
	require.LessOrEqual(t, after.Logins-before.Logins, 1, "one login")
	p.dry(t, p.request(p.fresh), "?login=true").
		is(contract.StageCreateOrFind, contract.WouldRun, "create "+host(p.fresh), "MAC "+p.fresh.Spec().NICs[0].MAC)
}

// planKept: the job that follows does what its plan said, and when it has ended
// there is nothing left to plan.
func planKept(t *testing.T, p *planner) {
	plan := p.dry(t, p.request(p.ready), "")
	before := p.Sims.MAAS.Counters().Total
	status, raw := p.ask(t, http.MethodPost, "/onboardings", p.request(p.ready))
	require.Equal(t, http.StatusAccepted, status, string(raw))
	id := strings.Split(strings.SplitAfter(string(raw), `"id":"`)[1], `"`)[0]
	j := p.ends(t, id, 2*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	after := p.Sims.MAAS.Counters().Total
	did := func(what string) bool { return after[what] > before[what] }
	promised := func(stage, what string) bool {
		return strings.Contains(strings.Join(plan.row(stage).Steps, "; "), what)
	}
	require.Equal(t, promised(contract.StageCreateOrFind, "create "), did("creates"))
	require.Equal(t, promised(contract.StageCommission, "commission "), did("commissions"))
	require.Equal(t, promised(contract.StageConfigureStorage, "the boot disk"), did("boot_disks"))
	require.Equal(t, promised(contract.StageConfigureStorage, "storage layout"), did("layouts"))
	require.Equal(t, promised(contract.StageEnsurePXE, "remove the auto"), did("unlinks"))
	require.Equal(t, promised(contract.StageDeploy, "allocate"), did("allocations"))
	require.Equal(t, promised(contract.StageDeploy, "deploy jammy"), did("deploys"))
	status, raw = p.ask(t, http.MethodGet, "/onboardings/"+id+"/plan", nil)
	ended := readPlan(t, status, raw).is(contract.StageDeploy, contract.WouldBeDone).is(contract.StageWaitAgent, contract.WouldBeDone)
	require.Contains(t, ended.Summary, "nothing is left to do")
}
