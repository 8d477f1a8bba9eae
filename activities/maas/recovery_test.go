package maas_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestPowerOfADeployment: a BMC that MAAS does not reach is told apart, and the
// machine comes back.
func TestPowerOfADeployment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bmc_unreachable", "bmc_auth"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).prepared()
			w.fault(maassim.Fault{Name: name, Op: "deploy"})
			must(w, w.acts.DeployMachine, w.deployIn(1))
			got := classified(w, time.Minute, contract.DeployFailed)
			require.Equal(t, lifecycle.FailDeployPower, got.Class, "%s %v", got.Message, got.Evidence)
			require.Equal(t, lifecycle.ActionRerun, lifecycle.Failure(got.Class).Recommended)
			f := must(w, w.acts.CommissionMachine, w.machine()) // what a rerun does from Failed deployment
			require.NotEqual(t, "Failed deployment", must(w, w.acts.ObserveMachine, w.machine()).Status, f.Status)
			require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
		})
	}
}

// TestWhatOthersDidAfterADeployment is no failure of the deployment.
func TestWhatOthersDidAfterADeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "deploy_curtin_fail"}).deploying()
	require.Equal(t, contract.DeployFailed, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	require.NoError(t, w.client().Release(t.Context(), w.id, providers.MAASRelease{}))
	got := must(w, w.acts.ClassifyDeployFailure, maasact.ClassifyIn{MachineIn: w.machine(), Outcome: contract.DeployFailed})
	require.Equal(t, lifecycle.FailStateDisagreement, got.Class)
	require.Contains(t, got.Message, "released by someone else")
	require.NoError(t, w.client().DeleteMachine(t.Context(), w.id))
	fails(w, lifecycle.FailMAASMachineDeleted, w.acts.ClassifyDeployFailure, maasact.ClassifyIn{MachineIn: w.machine(), Outcome: contract.DeployFailed})
}

// TestAReleaseThatFailedIsStillOurs: MAAS has wiped the mark by then, and the
// second try must not take the machine for somebody else's.
func TestAReleaseThatFailedIsStillOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "deploy_curtin_fail"}, maassim.Fault{Name: "release_power_fail", Count: 2}).deploying()
	require.Equal(t, contract.DeployFailed, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	in := w.releaseIn()
	in.DeployStarted = true
	for range 2 {
		require.Contains(t, fails(w, lifecycle.FailPowerNotConfirmed, w.acts.ReturnToReady, in), "could not be powered off")
	}
	require.Equal(t, "Ready", must(w, w.acts.ReturnToReady, in).Status)
	require.Equal(t, 3, w.counts("releases"))
}

// TestAnErasureThatFailedIsStillOurs, and is waited for while it runs.
func TestAnErasureThatFailedIsStillOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "deploy_curtin_fail"}, maassim.Fault{Name: "stuck_erasing"}).deploying()
	require.Equal(t, contract.DeployFailed, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	w.config("enable_disk_erasing_on_release", true)
	in := w.releaseIn()
	in.DeployStarted = true
	failed := make(chan error, 1)
	go func() {
		_, err := run(w, w.acts.ReturnToReady, in)
		failed <- err
	}()
	require.Eventually(t, func() bool {
		v, ok := w.sim.Machine(w.id)
		return ok && v.Status == maassim.DiskErasing
	}, runenv.Patience(time.Minute), 10*time.Millisecond)
	require.NoError(t, w.client().Abort(t.Context(), w.id, "the wrong machine"))
	require.ErrorContains(t, <-failed, "failed to erase")
	w.config("enable_disk_erasing_on_release", false)
	require.Equal(t, "Ready", must(w, w.acts.ReturnToReady, in).Status)
}

// TestADiskThatWasPutInIsSeen when the machine is commissioned again, though it
// is Ready.
func TestADiskThatWasPutInIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "no_boss_disk"}).ready()
	fails(w, lifecycle.FailBootDiskNotFound, w.acts.ConfigureStorage, w.storageIn())
	seen := must(w, w.acts.CommissionMachine, w.machine())
	require.True(t, seen.Done, "what is Ready is left alone")
	again := w.machine()
	again.Commissioning = seen.Commissioning
	require.NotZero(t, again.Commissioning)
	require.Equal(t, "Commissioning", must(w, w.acts.CommissionAgain, again).Status)
	require.Contains(t, []string{"Commissioning", "Testing", "Ready"}, must(w, w.acts.CommissionAgain, again).Status, "a repetition starts nothing")
	require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	require.True(t, must(w, w.acts.CommissionAgain, again).Done, "repeated late, after a lost answer, it finds that it was done")
	require.True(t, must(w, w.acts.ConfigureStorage, w.storageIn()).Done)
	require.Equal(t, 2, w.counts("commissions"))
}

// TestTheMachineTokenIsForgotten: the stored copy lives as long as the repair.
func TestTheMachineTokenIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deploying()
	ref := must(w, w.acts.MachineCredentials, w.machine())
	_, err := w.secrets.Resolve(t.Context(), providers.SecretRef(ref), providers.OwnUse())
	require.NoError(t, err)
	for range 2 {
		must(w, w.acts.ForgetMachineCredentials, w.ref)
	}
	_, err = w.secrets.Resolve(t.Context(), providers.SecretRef(cloudinit.MachineTokenName(w.ref.NodeID)), providers.OwnUse())
	require.True(t, providers.IsKind(err, providers.KindNotFound), "%v", err)
}

// TestDeletedRecordsAreNamed: a request may outlive what it names.
func TestDeletedRecordsAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	profile := dbtest.Profile(t, w.store, dbtest.At(w.ref.SiteID))
	in := maasact.LoadSiteIn{JobRef: w.ref, Request: contract.OnboardingInput{
		SiteID: w.ref.SiteID, Hostname: w.host, SKUID: dbtest.SKU(t, w.store).ID, ProfileID: profile.ID,
	}}
	gone := in
	gone.Request.SKUID = "sku_gone"
	require.Contains(t, fails(w, lifecycle.FailConfiguration, w.acts.LoadSiteConfig, gone), "SKU sku_gone of the request was deleted")
	require.NoError(t, w.store.DeleteProfile(t.Context(), profile.ID, profile.Version))
	require.Contains(t, fails(w, lifecycle.FailConfiguration, w.acts.LoadSiteConfig, in), "profile "+profile.ID+" of the request was deleted")
	w.store.Close() // a database that is away is no deleted record
	require.Contains(t, fails(w, lifecycle.FailInternal, w.acts.LoadSiteConfig, in), "internal error")
}

// config changes a setting of the region.
func (w *world) config(name string, value any) {
	w.t.Helper()
	require.NoError(w.t, w.sim.SetConfig(name, value))
}

// post is a call that Slipway's own client has no use for.
func (w *world) post(path string, form url.Values) {
	w.t.Helper()
	site, err := w.store.Site(w.t.Context(), w.ref.SiteID)
	require.NoError(w.t, err)
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, site.Spec.MAASURL+"/api/2.0/"+path, strings.NewReader(form.Encode()))
	require.NoError(w.t, err)
	key := strings.Split(apiKey, ":")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", oauth_consumer_key="%s", `+
		`oauth_token="%s", oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d"`, key[0], key[1], key[2], time.Now().Unix(), time.Now().UnixNano()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	require.NoError(w.t, res.Body.Close())
	require.Equal(w.t, http.StatusOK, res.StatusCode)
}
