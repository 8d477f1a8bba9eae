package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// planFresh: MAAS knows nothing of the machine; without a login only its
// hostname and BMC address are looked for.
func planFresh(t *testing.T, p *planner) {
	got := p.dry(t, p.request(p.fresh), false).
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
	again := p.dry(t, p.request(p.fresh), false)
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
	p.dry(t, p.request(p.enlisted), false).
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine", "MAAS New").
		is(lifecycle.StageCommission, contract.PlannedRun, "commission").
		is(lifecycle.StageWaitReady, contract.PlannedWait).
		is(lifecycle.StageDeploy, contract.PlannedRun, "deploy jammy")
}

// planForeign: somebody else's machine is left alone.
func planForeign(t *testing.T, p *planner) {
	p.dry(t, p.request(p.foreign), false).
		parks(lifecycle.StageCreateOrFind, lifecycle.FailStateDisagreement).
		is(lifecycle.StageCreateOrFind, contract.PlannedFail, "already Deployed by someone else", "MAAS Deployed").
		is(lifecycle.StageConfigureStorage, contract.PlannedUnknown, "not settled").
		is(lifecycle.StageDeploy, contract.PlannedUnknown)
}

// planPicky: a machine that is Ready is taken up; under a profile whose rule no
// disk meets the job would park.
func planPicky(t *testing.T, p *planner) {
	request := p.request(p.ready)
	good := p.dry(t, request, false).
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine").
		is(lifecycle.StageCommission, contract.PlannedDone, "already Ready").
		is(lifecycle.StageWaitReady, contract.PlannedDone).
		is(lifecycle.StageConfigureStorage, contract.PlannedRun, "the boot disk", "BOSS", "storage layout flat").
		is(lifecycle.StageEnsurePXE, contract.PlannedRun, "remove the auto", "links of").
		is(lifecycle.StageDeploy, contract.PlannedRun, "allocate", "mark", "deploy jammy")
	require.False(t, good.NeedsHuman)
	request.ProfileID = p.pickyProfile.ID
	bad := p.dry(t, request, false).
		parks(lifecycle.StageConfigureStorage, lifecycle.FailBootDiskNotFound).
		is(lifecycle.StageConfigureStorage, contract.PlannedFail, "NOSUCH").
		is(lifecycle.StageEnsurePXE, contract.PlannedRun)
	require.NotEqual(t, good.PlanHash, bad.PlanHash)
}

// planTwofold: two records in MAAS could be the machine.
func planTwofold(t *testing.T, p *planner) {
	p.dry(t, p.request(p.twofold), false).
		parks(lifecycle.StageCreateOrFind, lifecycle.FailConflictingCandidates).
		is(lifecycle.StageCreateOrFind, contract.PlannedFail, "2 MAAS machines match").
		is(lifecycle.StageConfigureStorage, contract.PlannedUnknown, "not settled")
}

// planParked: what is behind the job is shown as done; where it stands it would
// park again.
func planParked(t *testing.T, p *planner) {
	got := p.planOf(t, p.parked.ID).
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
	request.SiteID, request.ProfileID = p.away.ID, p.awayProfile.ID
	p.dry(t, request, false).
		parks(lifecycle.StageLoadSiteConfig, lifecycle.FailMAASUnavailable).
		is(lifecycle.StageCreateOrFind, contract.PlannedUnknown).
		is(lifecycle.StageDeploy, contract.PlannedUnknown).
		is(lifecycle.StageResolvePower, contract.PlannedRun).
		is(lifecycle.StageRenderCloudInit, contract.PlannedRun)
}

// planRefused: a dry run is refused by what refuses the real request.
func planRefused(t *testing.T, p *planner) {
	for name, c := range map[string]struct {
		change func(*client.OnboardingRequest)
		status int
		says   string
	}{
		"unknown site":     {func(r *client.OnboardingRequest) { r.SiteID = "site_00000000-0000-7000-8000-000000000000" }, 422, "no such site"},
		"other's profile":  {func(r *client.OnboardingRequest) { r.ProfileID = p.awayProfile.ID }, 422, "another site"},
		"unknown SKU":      {func(r *client.OnboardingRequest) { r.SkuID = "sku_00000000-0000-7000-8000-000000000000" }, 422, "no such SKU"},
		"bad hostname":     {func(r *client.OnboardingRequest) { r.Hostname = "No Host" }, 422, "DNS label"},
		"live job of host": {func(r *client.OnboardingRequest) { r.Hostname = host(p.diskless) }, 409, p.parked.ID},
	} {
		request := p.request(p.fresh)
		c.change(&request)
		_, planErr := p.api.PlanNewOnboarding(t.Context(), nil, request)
		_, startErr := p.api.CreateOnboarding(t.Context(), request)
		for _, err := range []error{planErr, startErr} {
			var refused *client.Refusal
			require.ErrorAs(t, err, &refused, name)
			require.Equal(t, c.status, refused.Status, "%s: %v", name, err)
			require.Contains(t, fmt.Sprintf("%+v", refused.Problem), c.says, name)
		}
	}
	_, err := p.api.PlanOnboarding(t.Context(), "job_00000000-0000-7000-8000-000000000000", nil)
	require.Equal(t, http.StatusNotFound, client.StatusOf(err), "%v", err)
}

// planWithLogin: one login tells serial and MAC addresses.
func planWithLogin(t *testing.T, p *planner) {
	b := p.Sims.BMCs[p.enlisted.Spec().ID]
	before := b.Counters()
	p.dry(t, p.request(p.enlisted), true).
		is(lifecycle.StageResolvePower, contract.PlannedRun, p.enlisted.Spec().Serial).
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "take up machine").
		is(lifecycle.StageCommission, contract.PlannedRun, "commission")
	after := b.Counters()
	require.Equal(t, before.FailedLogins, after.FailedLogins)
	require.Equal(t, before.Patches, after.Patches)
	require.LessOrEqual(t, after.Logins-before.Logins, 1, "one login")
	p.dry(t, p.request(p.fresh), true).
		is(lifecycle.StageCreateOrFind, contract.PlannedRun, "create "+host(p.fresh), "MAC "+p.fresh.Spec().NICs[0].MAC)
}

// planKept: the job that follows does what its plan said, and when it has ended
// there is nothing left to plan.
func planKept(t *testing.T, p *planner) {
	plan := p.dry(t, p.request(p.ready), false)
	before := p.Sims.MAAS.Counters().Total
	started, err := client.Value(p.api.CreateOnboarding(t.Context(), p.request(p.ready)))
	require.NoError(t, err)
	j := p.ends(t, started.ID, 2*time.Minute)
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
	ended := p.planOf(t, started.ID).is(lifecycle.StageDeploy, contract.PlannedDone).is(lifecycle.StageWaitAgent, contract.PlannedDone)
	require.Contains(t, ended.Summary, "nothing is left to do")
}
