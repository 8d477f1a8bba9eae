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
		is(lifecycle.StageLoadSiteConfig, contract.PlannedRun, "MAAS").
		is(lifecycle.StageResolvePower, contract.PlannedRun, "approve the certificate pin", "log in to the BMC", "is not tried").
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "create "+host(p.fresh), "power redfish", "ask with login").
		is(lifecycle.StageCommission, contract.PlannedRun, "commission "+host(p.fresh)).
		is(lifecycle.StageWaitReady, contract.PlannedWait, "1h30m").
		is(lifecycle.StageConfigureStorage, contract.PlannedUnknown, "model contains BOSS", "layout flat").
		is(lifecycle.StageApplyRoCE, contract.PlannedUnknown).
		is(lifecycle.StageEnsurePXE, contract.PlannedUnknown).
		is(lifecycle.StageRenderCloudInit, contract.PlannedRun, "one-time enrolment token for 1h0m0s").
		is(lifecycle.StageDeploy, contract.PlannedRun, "allocate "+host(p.fresh), "deploy jammy", "hardware sync on").
		is(lifecycle.StageWaitDeployed, contract.PlannedWait).
		is(lifecycle.StageClassifyFailure, contract.PlannedSkip).
		is(lifecycle.StageRecoverDatasource, contract.PlannedSkip).
		is(lifecycle.StageEnsureHWSync, contract.PlannedRun, "SSH").
		is(lifecycle.StageWaitHWSync, contract.PlannedWait).
		is(lifecycle.StageWaitAgent, contract.PlannedWait, "no agent has reported")
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
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine", "MAAS New").
		is(lifecycle.StageCommission, contract.PlannedRun, "commission").
		is(lifecycle.StageWaitReady, contract.PlannedWait).
		is(lifecycle.StageDeploy, contract.PlannedRun, "deploy jammy")
}

// planForeign: somebody else's machine is left alone.
func planForeign(t *testing.T, p *planner) {
	p.dry(t, p.request(p.foreign), "").
		parks(lifecycle.StageCreateOrFind, lifecycle.FailStateDisagreement).
		is(lifecycle.StageCreateOrFind, contract.PlannedFail, "already Deployed by someone else", "MAAS Deployed").
		is(lifecycle.StageConfigureStorage, contract.PlannedUnknown, "not settled").
		is(lifecycle.StageDeploy, contract.PlannedUnknown)
}

// planPicky: a machine that is Ready is taken up; under a profile whose rule no
// disk meets the job would park.
func planPicky(t *testing.T, p *planner) {
	request := p.request(p.ready)
	good := p.dry(t, request, "").
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine").
		is(lifecycle.StageCommission, contract.PlannedDone, "already Ready").
		is(lifecycle.StageWaitReady, contract.PlannedDone).
		is(lifecycle.StageConfigureStorage, contract.PlannedRun, "the boot disk", "BOSS", "storage layout flat").
		is(lifecycle.StageEnsurePXE, contract.PlannedRun, "remove the auto", "links of").
		is(lifecycle.StageDeploy, contract.PlannedRun, "allocate", "mark", "deploy jammy")
	require.False(t, good.NeedsHuman)
	request["profile_id"] = p.pickyProfile.ID
	bad := p.dry(t, request, "").
		parks(lifecycle.StageConfigureStorage, lifecycle.FailBootDiskNotFound).
		is(lifecycle.StageConfigureStorage, contract.PlannedFail, "NOSUCH").
		is(lifecycle.StageEnsurePXE, contract.PlannedRun)
	require.NotEqual(t, good.PlanHash, bad.PlanHash)
}

// planTwofold: two records in MAAS could be the machine.
func planTwofold(t *testing.T, p *planner) {
	p.dry(t, p.request(p.twofold), "").
		parks(lifecycle.StageCreateOrFind, lifecycle.FailConflictingCandidates).
		is(lifecycle.StageCreateOrFind, contract.PlannedFail, "2 MAAS machines match").
		is(lifecycle.StageConfigureStorage, contract.PlannedUnknown, "not settled")
}

// planParked: what is behind the job is shown as done; where it stands it would
// park again.
func planParked(t *testing.T, p *planner) {
	status, raw := p.ask(t, http.MethodGet, "/onboardings/"+p.parked.ID+"/plan", nil)
	got := readPlan(t, status, raw).
		is(lifecycle.StageLoadSiteConfig, contract.PlannedDone, "this job has done it").
		is(lifecycle.StageCreateOrFind, contract.PlannedDone).
		is(lifecycle.StageWaitReady, contract.PlannedDone).
		parks(lifecycle.StageConfigureStorage, lifecycle.FailBootDiskNotFound).
		is(lifecycle.StageDeploy, contract.PlannedRun)
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
		parks(lifecycle.StageLoadSiteConfig, lifecycle.FailMAASUnavailable).
		is(lifecycle.StageCreateOrFind, contract.PlannedUnknown).
		is(lifecycle.StageDeploy, contract.PlannedUnknown).
		is(lifecycle.StageResolvePower, contract.PlannedRun).
		is(lifecycle.StageRenderCloudInit, contract.PlannedRun)
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
		is(lifecycle.StageResolvePower, contract.PlannedRun, p.enlisted.Spec().Serial).
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine").
		is(lifecycle.StageCommission, contract.PlannedRun, "commission")
	after := b.Counters()
	require.Equal(t, before.FailedLogins, after.FailedLogins)
	require.Equal(t, before.Patches, after.Patches)
	require.LessOrEqual(t, after.Logins-before.Logins, 1, "one login")
	p.dry(t, p.request(p.fresh), "?login=true").
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "create "+host(p.fresh), "MAC "+p.fresh.Spec().NICs[0].MAC)
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
	require.Equal(t, promised(lifecycle.StageCreateOrFind, "create "), did("creates"))
	require.Equal(t, promised(lifecycle.StageCommission, "commission "), did("commissions"))
	require.Equal(t, promised(lifecycle.StageConfigureStorage, "the boot disk"), did("boot_disks"))
	require.Equal(t, promised(lifecycle.StageConfigureStorage, "storage layout"), did("layouts"))
	require.Equal(t, promised(lifecycle.StageEnsurePXE, "remove the auto"), did("unlinks"))
	require.Equal(t, promised(lifecycle.StageDeploy, "allocate"), did("allocations"))
	require.Equal(t, promised(lifecycle.StageDeploy, "deploy jammy"), did("deploys"))
	status, raw = p.ask(t, http.MethodGet, "/onboardings/"+id+"/plan", nil)
	ended := readPlan(t, status, raw).is(lifecycle.StageDeploy, contract.PlannedDone).is(lifecycle.StageWaitAgent, contract.PlannedDone)
	require.Contains(t, ended.Summary, "nothing is left to do")
}
