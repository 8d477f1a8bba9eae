package maas_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// untouched runs one look and proves that the region took no request that
// changes, and that the node's row is as it was.
func untouched[I any](w *world, act activityOf[maasact.DryRunIn[I], maasact.DryRunOut], l maasact.DryRunIn[I]) maasact.DryRunOut {
	w.t.Helper()
	before, node := w.changes(), w.node()
	out := must(w, act, l)
	require.Equal(w.t, before, w.changes(), "a look changed something")
	require.Equal(w.t, node, w.node(), "a look wrote to the node")
	return out
}

func look[I any](in I) maasact.DryRunIn[I] { return maasact.DryRunIn[I]{In: in} }

// changes counts effects that were asked for, and requests other than reads.
func (w *world) changes() string {
	c := w.sim.Counters()
	for _, op := range []string{
		"version", "whoami", "sshkeys", "get_config", "boot_resources", "list", "all_power_parameters", "read", "blockdevices", "interfaces",
		"subnets", "events", "results", "result",
	} {
		delete(c.Requests, op)
	}
	for _, byItself := range []string{"power_ons", "power_offs"} { // while the machine is deployed
		delete(c.Total, byItself)
	}
	return fmt.Sprint(c.Total, c.Requests)
}

func (w *world) node() string {
	n, err := w.store.Node(w.t.Context(), w.ref.NodeID)
	require.NoError(w.t, err)
	raw, err := json.Marshal(n)
	require.NoError(w.t, err)
	return string(raw)
}

func says(t *testing.T, f maasact.DryRunOut, texts ...string) {
	t.Helper()
	require.Nil(t, f.Failure, "%+v", f.Failure)
	said := strings.Join(append(f.Steps, f.Observed), "; ")
	for _, text := range texts {
		require.Contains(t, said, text)
	}
}

func parks(t *testing.T, f maasact.DryRunOut, class lifecycle.FailureClass, text string) {
	t.Helper()
	require.NotNil(t, f.Failure)
	require.Equal(t, class, f.Failure.Class, f.Failure.Message)
	require.Contains(t, f.Failure.Message, text)
}

// TestPlanFollowsTheRun plans each stage before it runs and after: before, the
// steps are what it then does; after, nothing is left to do.
func TestPlanFollowsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "auto_link_duplicate"})
	creation := untouched(w, w.acts.PlanCreateOrFind, look(w.createIn()))
	says(t, creation, "create gpu-1 in MAAS", "architecture amd64/generic", "power redfish at", "MAC "+w.bmc.MACs[0])
	require.False(t, creation.MachineKnown)
	absent := maasact.DryRunIn[maasact.StorageIn]{In: w.storageIn(), Absent: w.host, Ready: true}
	require.True(t, untouched(w, w.acts.PlanStorage, absent).Unknown)
	later := untouched(w, w.acts.PlanDeploy, maasact.DryRunIn[maasact.DeployIn]{In: w.plannedDeploy(), Absent: w.host, Ready: true})
	says(t, later, "allocate gpu-1", "deploy jammy")
	require.False(t, later.Unknown)

	w.created()
	found := untouched(w, w.acts.PlanCreateOrFind, look(w.createIn()))
	require.True(t, found.MachineKnown)
	require.True(t, found.Machine.Done, "the node has it")
	says(t, untouched(w, w.acts.PlanCommission, look(w.machine())), "commission gpu-1 ("+w.id+")", "MAAS New")
	early := untouched(w, w.acts.PlanStorage, maasact.DryRunIn[maasact.StorageIn]{In: w.storageIn(), Ready: true})
	require.True(t, early.Assumed)

	must(w, w.acts.CommissionMachine, w.machine())
	require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	says(t, untouched(w, w.acts.PlanCommission, look(w.machine())), "already Ready")
	require.True(t, untouched(w, w.acts.PlanReady, look(w.machine())).Machine.Done)
	says(t, untouched(w, w.acts.PlanRecommission, look(w.machine())), "commission gpu-1")

	says(t, untouched(w, w.acts.PlanStorage, look(w.storageIn())), "BOSS", "the boot disk", "apply storage layout flat", "disks: ")
	must(w, w.acts.ConfigureStorage, w.storageIn())
	require.Empty(t, untouched(w, w.acts.PlanStorage, look(w.storageIn())).Steps)

	before := w.counts("unlinks")
	pxe := untouched(w, w.acts.PlanPXE, look(w.networkIn()))
	says(t, pxe, "remove the auto", "links of")
	must(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
	require.Len(t, pxe.Steps, w.counts("unlinks")-before)
	require.Empty(t, untouched(w, w.acts.PlanPXE, look(w.networkIn())).Steps)

	deploy := untouched(w, w.acts.PlanDeploy, look(w.plannedDeploy()))
	says(t, deploy, "allocate gpu-1 ("+w.id+")", "attempt 1", "deploy jammy, hardware sync on to gpu-1")
	require.Len(t, deploy.Steps, 3)
	w.seal()
	must(w, w.acts.DeployMachine, w.deployIn(1))
	under := untouched(w, w.acts.PlanDeploy, look(w.deployIn(1)))
	require.Empty(t, under.Steps)
	require.True(t, under.Machine.Done)
	require.Eventually(t, func() bool {
		f := untouched(w, w.acts.PlanDeployed, look(w.waitIn(time.Minute)))
		require.True(t, f.Waits || f.Outcome == contract.DeployOK)
		return !f.Waits
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
	says(t, untouched(w, w.acts.PlanSyncOn, look(w.machine())), "hardware sync is on")
	after := must(w, w.acts.ObserveMachine, w.machine()).LastSync
	synced := untouched(w, w.acts.PlanSynced, look(maasact.WaitSyncIn{MachineIn: w.machine(), After: after}))
	require.True(t, synced.Waits || synced.Machine.Done)
}

func (w *world) plannedDeploy() maasact.DeployIn {
	in := w.deployIn(1)
	in.UserDataRef = maasact.PlannedUserData
	return in
}

// TestPlanRoCE: every port is in the plan, and a port that is not there is the
// failure it would be.
func TestPlanRoCE(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	parks(t, untouched(w, w.acts.PlanRoCE, look(w.networkIn())), lifecycle.FailConfiguration, "no RoCE assignment")
	card := w.hw.Spec().NICs[slices.IndexFunc(w.hw.Spec().NICs, func(n simhw.NIC) bool { return n.VLAN == 2 })]
	ports := []spec.RoCEPort{{Interface: card.Name, MTU: 9000, SubnetCIDR: subnetOf(w, 2), IP: addressIn(w, 2), Tags: []string{"roce"}}}
	_, err := w.store.CreateRoCEAssignment(t.Context(), w.ref.SiteID, w.host, ports)
	require.NoError(t, err)
	f := untouched(w, w.acts.PlanRoCE, look(w.networkIn()))
	says(t, f, "set MTU 9000 and tags roce on "+card.Name, "give "+card.Name+" the address "+ports[0].IP)
	must(w, w.acts.ApplyRoCE, w.networkIn())
	require.Empty(t, untouched(w, w.acts.PlanRoCE, look(w.networkIn())).Steps)
}

// TestPlanFailures: what a stage would park with is what the plan says.
func TestPlanFailures(t *testing.T) {
	t.Parallel()
	t.Run("no disk fits", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		in := w.storageIn()
		in.Rule.ModelContains = "NOSUCH"
		parks(t, untouched(w, w.acts.PlanStorage, look(in)), lifecycle.FailBootDiskNotFound, fails(w, lifecycle.FailBootDiskNotFound, w.acts.ConfigureStorage, in))
	})
	t.Run("no VLAN", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, maassim.Fault{Name: "boot_nic_no_vlan"}).ready()
		parks(t, untouched(w, w.acts.PlanPXE, look(w.networkIn())), lifecycle.FailPXEUnfixable, "no VLAN")
	})
	t.Run("deployed by somebody else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		require.NoError(t, w.sim.External("deploy", w.host))
		in := w.createIn()
		parks(t, untouched(w, w.acts.PlanCreateOrFind, look(in)), lifecycle.FailStateDisagreement, "by someone else")
		parks(t, untouched(w, w.acts.PlanDeploy, look(w.plannedDeploy())), lifecycle.FailStateDisagreement, "can be deployed only from Ready")
	})
	t.Run("another node's machine", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		other := dbtest.Node(t, w.store, dbtest.At(w.ref.SiteID), dbtest.Hostname("gpu-2"))
		in := w.createIn()
		in.NodeID = other.ID
		parks(t, untouched(w, w.acts.PlanCreateOrFind, look(in)), lifecycle.FailConflictingCandidates, w.ref.NodeID)
	})
	t.Run("a dry run has no node", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		in := w.createIn()
		in.JobRef = contract.JobRef{JobID: contract.PlannedJobID, SiteID: w.ref.SiteID}
		parks(t, untouched(w, w.acts.PlanCreateOrFind, look(in)), lifecycle.FailConflictingCandidates, "another node")
	})
	t.Run("two candidates", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.NoError(t, w.sim.External("enlist", w.hw.Spec().ID))
		_, err := w.client().CreateMachine(t.Context(), providers.MAASCreate{
			Hostname: w.host, Architecture: "amd64/generic", MACs: []string{"52:54:00:00:0f:01"},
			PowerType: "redfish", PowerAddress: "127.0.0.9", PowerUser: "u", PowerPassword: providers.NewSecret("p"),
		})
		require.True(t, err == nil || providers.IsKind(err, providers.KindUncertain), "%v", err)
		parks(t, untouched(w, w.acts.PlanCreateOrFind, look(w.createIn())), lifecycle.FailConflictingCandidates, "2 MAAS machines match")
	})
	t.Run("machine gone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		require.NoError(t, w.sim.External("delete", w.host))
		parks(t, untouched(w, w.acts.PlanStorage, look(w.storageIn())), lifecycle.FailMAASMachineDeleted, "no longer in MAAS")
	})
	t.Run("region away", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t).ready()
		w.fault(maassim.Fault{Name: "connection_reset", Count: 100})
		parks(t, untouched(w, w.acts.PlanStorage, look(w.storageIn())), lifecycle.FailMAASUnavailable, "")
		got := must(w, w.acts.PlanSite, look(w.loadIn()))
		require.Equal(t, lifecycle.FailMAASUnavailable, got.Failure.Class)
		require.NotEmpty(t, got.Facts.Site.MAASURL, "what the database has is told all the same")
		require.Equal(t, "jammy", got.Facts.Profile.DistroSeries)
	})
}

// TestPlanAfterAFailedDeployment: cause and recovery stand in the plan.
func TestPlanAfterAFailedDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "deploy_curtin_fail"}).deploying()
	require.Eventually(t, func() bool {
		return untouched(w, w.acts.PlanDeployed, look(w.waitIn(time.Minute))).Outcome == contract.DeployFailed
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
	why := untouched(w, w.acts.PlanClassify, look(maasact.ClassifyIn{MachineIn: w.machine(), Outcome: contract.DeployFailed}))
	parks(t, why, lifecycle.FailDeploy, "Failed deployment")
	says(t, untouched(w, w.acts.PlanRecover, look(w.releaseIn())), "release gpu-1 ("+w.id+")")
	says(t, untouched(w, w.acts.PlanCommission, look(w.machine())), "release gpu-1")
	other := w.machine()
	other.JobID = contract.PlannedJobID
	parks(t, untouched(w, w.acts.PlanCommission, look(other)), lifecycle.FailStateDisagreement, "cannot be commissioned")
}

// TestPlanSite proves what a site can do, as load_site_config does.
func TestPlanSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := must(w, w.acts.PlanSite, look(w.loadIn()))
	require.Nil(t, got.Failure)
	require.NotEmpty(t, got.Facts.MAASVersion)
}

func (w *world) loadIn() maasact.LoadSiteIn {
	w.t.Helper()
	spec := spec.ProfileSpec{}.WithDefaults()
	p, err := w.store.CreateProfile(w.t.Context(), w.ref.SiteID, "planned-"+fmt.Sprint(time.Now().UnixNano()), spec)
	require.NoError(w.t, err)
	sku := dbtest.SKU(w.t, w.store)
	return maasact.LoadSiteIn{JobRef: w.ref, Request: contract.OnboardingInput{SiteID: w.ref.SiteID, ProfileID: p.ID, SKUID: sku.ID, Hostname: w.host}}
}

// TestLooksAreNoTimelineEntries: the timeline takes inputs that name a job's
// node; a look must not be one.
func TestLooksAreNoTimelineEntries(t *testing.T) {
	t.Parallel()
	type named interface{ Ref() contract.JobRef }
	var in any = maasact.DryRunIn[maasact.MachineIn]{}
	_, isNamed := in.(named)
	require.False(t, isNamed)
	_, isNamed = any(maasact.MachineIn{}).(named)
	require.True(t, isNamed, "or this test proves nothing")
}
