package maas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// TestEveryActivityTwice walks the whole path and calls each activity twice:
// the second finds the work done, and nothing is done again.
func TestEveryActivityTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	load := maasact.LoadSiteIn{JobRef: w.ref, Request: contract.OnboardingInput{
		SiteID: w.ref.SiteID, Hostname: w.host, SKUID: dbtest.SKU(t, w.store).ID,
		ProfileID: dbtest.Profile(t, w.store, dbtest.At(w.ref.SiteID)).ID,
	}}
	for range 2 {
		require.NotEmpty(t, must(w, w.acts.LoadSiteConfig, load).MAASVersion)
	}
	for range 2 {
		f := must(w, w.acts.CreateOrFindMachine, w.createIn())
		require.True(t, f.Created)
		w.id = f.SystemID
	}
	for range 2 {
		must(w, w.acts.CommissionMachine, w.machine())
	}
	for range 2 {
		require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	}
	_, err := w.store.CreateRoCEAssignment(t.Context(), w.ref.SiteID, w.host, []spec.RoCEPort{
		{Interface: "ens1f0", MTU: 9000, SubnetCIDR: subnetOf(w, 2), IP: addressIn(w, 2), Tags: []string{"roce"}},
	})
	require.NoError(t, err)
	links := 0
	for i := range 2 {
		require.True(t, must(w, w.acts.ConfigureStorage, w.storageIn()).Done)
		must(w, w.acts.ApplyRoCE, w.networkIn())
		must(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
		if i == 0 {
			links = w.counts("links")
		}
	}
	require.Equal(t, links, w.counts("links"), "a link is made once")
	w.seal()
	for range 2 {
		must(w, w.acts.DeployMachine, w.deployIn(1))
	}
	var deployed maasact.DeployedFacts
	for range 2 {
		deployed = must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute))
		require.Equal(t, contract.DeployOK, deployed.Outcome)
	}
	require.NotEmpty(t, deployed.IPs)
	require.Equal(t, append([]string{"maas"}, deployed.IPs...), w.addresses())
	w.sim.SetHWSyncAgent(w.id, true) // what the vendor data installs on the node
	for range 2 {
		must(w, w.acts.EnsureHardwareSync, w.machine())
	}
	after := maasact.WaitSyncIn{MachineIn: w.machine(), After: deployed.LastSync, Until: time.Now().Add(30 * time.Second)}
	for range 2 {
		require.True(t, must(w, w.acts.WaitForHardwareSync, after).Done)
	}
	require.False(t, must(w, w.acts.ObserveMachine, w.machine()).Foreign)
	for range 2 {
		require.Contains(t, []string{"Ready", "absent"}, must(w, w.acts.ReturnToReady, w.releaseIn()).Status)
	}
	require.Equal(t, []string{""}, w.addresses(), "a machine that was released has none")
	for range 2 {
		require.Equal(t, "absent", must(w, w.acts.RemoveCreatedMachine, w.removeIn(true)).Status)
	}
	node, err := w.store.Node(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	require.Nil(t, node.MAASSystemID, "the node is not the machine that the job deleted, so no drift says that it is absent")
	for _, effect := range []string{"creates", "commissions", "boot_disks", "layouts", "allocations", "deploys", "releases", "deletes"} {
		require.Equal(t, 1, w.counts(effect), effect)
	}
}

// TestLostAnswers lets MAAS do what it was asked and lose the answer: the next
// look finds the effect, and it is not repeated.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := func(op string) { w.fault(maassim.Fault{Name: "504_but_continues", Op: op}) }
	lost("create")
	w.created()
	lost("commission")
	again(w, w.acts.CommissionMachine, w.machine())
	must(w, w.acts.WaitForReady, w.machine())
	lost("set_boot_disk")
	lost("set_storage_layout")
	again(w, w.acts.ConfigureStorage, w.storageIn())
	lost("link_subnet")
	again(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
	w.seal()
	lost("allocate")
	lost("deploy")
	again(w, w.acts.DeployMachine, w.deployIn(1))
	require.Equal(t, contract.DeployOK, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	lost("release")
	must(w, w.acts.ReturnToReady, w.releaseIn())
	for _, effect := range []string{"creates", "commissions", "allocations", "deploys", "releases"} {
		require.Equal(t, 1, w.counts(effect), effect)
	}
}

// TestLostRequestsAreSentAgain: a release or abort that never arrived must not
// be waited for.
func TestLostRequestsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).deploying()
	w.fault(maassim.Fault{Name: "connection_reset", Op: "abort"})
	require.Equal(t, contract.DeployTimeout, must(w, w.acts.WaitForDeployed, w.waitIn(0)).Outcome)
	require.Equal(t, 1, w.counts("aborts"))
	w.fault(maassim.Fault{Name: "connection_reset", Op: "release"})
	require.Equal(t, "Ready", must(w, w.acts.ReturnToReady, w.releaseIn()).Status)
	require.Equal(t, 1, w.counts("releases"))
}

// again repeats an activity as the runner does, a few times at most.
func again[I, O any](w *world, act activityOf[I, O], in I) {
	w.t.Helper()
	var err error
	for range 4 {
		if _, err = run(w, act, in); err == nil {
			return
		}
	}
	require.NoError(w.t, err)
}
