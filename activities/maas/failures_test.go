package maas_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// classified waits for a deployment and says why it failed.
func classified(w *world, patience time.Duration, want contract.DeployOutcome) maasact.Classified {
	w.t.Helper()
	f := must(w, w.acts.WaitForDeployed, w.waitIn(patience))
	require.Equal(w.t, want, f.Outcome)
	return must(w, w.acts.ClassifyDeployFailure, maasact.ClassifyIn{MachineIn: w.machine(), Outcome: f.Outcome})
}

func TestDeploymentFailuresAreToldApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault    string
		patience time.Duration
		outcome  contract.DeployOutcome
		class    lifecycle.FailureClass
	}{
		{"deploy_curtin_fail", time.Minute, contract.DeployFailed, lifecycle.FailDeploy},
		{"deploy_datasource_none", time.Minute, contract.DeployFailed, lifecycle.FailDatasource},
		{"stuck_deploying", 500 * time.Millisecond, contract.DeployTimeout, lifecycle.FailDeployTimeout},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, maassim.Fault{Name: c.fault}).deploying()
			// MAAS notes each power query; that says nothing about the BMC.
			_, err := w.client().QueryPower(t.Context(), w.id)
			require.NoError(t, err)
			got := classified(w, c.patience, c.outcome)
			require.Equal(t, c.class, got.Class, got.Message)
			require.Equal(t, "Ready", must(w, w.acts.ReturnToReady, w.releaseIn()).Status)
		})
	}
}

// TestADeploymentPastItsDeadlineIsAbortedWhenMAASIsBack: nobody could abort it at
// the deadline. While MAAS is away nothing is concluded; then the abort is sent,
// once, and the cause is the deadline.
func TestADeploymentPastItsDeadlineIsAbortedWhenMAASIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).deploying()
	in := maasact.ClassifyIn{MachineIn: w.machine(), Outcome: contract.DeployTimeout}
	w.fault(maassim.Fault{Name: "connection_reset", Count: -1})
	fails(w, lifecycle.FailMAASUnavailable, w.acts.ClassifyDeployFailure, in)
	require.Zero(t, w.counts("aborts"))
	w.sim.ClearFaults(0)
	w.fault(maassim.Fault{Name: "stuck_deploying"})
	w.fault(maassim.Fault{Name: "connection_reset", Op: "abort"}) // the first is lost on the way
	for range 2 {
		got := must(w, w.acts.ClassifyDeployFailure, in)
		require.Equal(t, lifecycle.FailDeployTimeout, got.Class)
		require.Equal(t, "Allocated", got.Status)
		require.Contains(t, got.Message, "did not end by its deadline and was aborted")
	}
	require.Equal(t, 1, w.counts("aborts"))
}

// TestADeploymentOfSomebodyElseIsNotAborted.
func TestADeploymentOfSomebodyElseIsNotAborted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).deploying()
	require.NoError(t, w.client().SetWorkloadAnnotations(t.Context(), w.id, map[string]string{"slipway-job": "job_other"}))
	got := must(w, w.acts.ClassifyDeployFailure, maasact.ClassifyIn{MachineIn: w.machine(), Outcome: contract.DeployTimeout})
	require.Equal(t, lifecycle.FailStateDisagreement, got.Class)
	require.Zero(t, w.counts("aborts"))
}

func TestConflictingCandidates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "conflicting_candidates"})
	require.Contains(t, fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, w.createIn()), "2 MAAS machines match")
	require.Zero(t, w.counts("creates"))
}

// TestAdopt_LoginThatNoLongerWorks: the second enlistment changed the BMC login that the first
// record holds.
func TestAdopt_LoginThatNoLongerWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "conflicting_candidates"})
	fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, w.createIn())
	require.NoError(t, w.sim.External("delete", w.bmc.MACs[len(w.bmc.MACs)-1]))
	w.id = w.record()
	_, err := w.client().Commission(t.Context(), w.id, providers.MAASCommission{})
	require.ErrorContains(t, err, "UNAUTHORIZED", "the record's own login")
	require.Equal(t, w.id, must(w, w.acts.CreateOrFindMachine, w.createIn()).SystemID)
	must(w, w.acts.CommissionMachine, w.machine())
	require.Zero(t, w.counts("creates"))
}

// TestAdopt_NewLogin: a machine that MAAS has as Ready gets the login when the job has changed it.
func TestAdopt_NewLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	password := providers.NewSecret(w.hw.Spec().BMCPassword)
	require.NoError(t, w.client().SetPowerLogin(t.Context(), w.id, w.hw.Spec().BMCUser, providers.NewSecret("of before")))
	in := w.createIn()
	in.JobID = "job_later" // the job that created a machine gave it the login
	for _, in.NewLogin = range []bool{false, true} {
		must(w, w.acts.CreateOrFindMachine, in)
		now, err := w.client().PowerLogin(t.Context(), w.id, w.bmc.Address, password)
		require.NoError(t, err)
		require.Equal(t, in.NewLogin, now.SamePassword)
	}
}

func TestMachineOfAnotherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t).created()
	other := w.createIn()
	other.NodeID = dbtest.Node(t, w.store, dbtest.At(w.ref.SiteID)).ID
	require.Contains(t, fails(w, lifecycle.FailConflictingCandidates, w.acts.CreateOrFindMachine, other), "belongs to another node")
}

func TestBootDiskNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "no_boss_disk"}).ready()
	require.Contains(t, fails(w, lifecycle.FailBootDiskNotFound, w.acts.ConfigureStorage, w.storageIn()), `model contains "BOSS"`)
}

func TestPXEUnfixable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "boot_nic_no_vlan"}).ready()
	fails(w, lifecycle.FailPXEUnfixable, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
}

func TestDuplicateLinkIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "auto_link_duplicate"}).ready()
	for range 2 {
		must(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
	}
	require.Equal(t, 1, w.counts("unlinks"))
}

func TestRoCEWithoutRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	fails(w, lifecycle.FailConfiguration, w.acts.ApplyRoCE, w.networkIn())
	w.store.Close() // a database that is away is no missing record
	_, err := run(w, w.acts.ApplyRoCE, w.networkIn())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "RoCE assignment")
}

// TestRoCEAddressChanges: the address of an earlier record does not stay.
func TestRoCEAddressChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	port := spec.RoCEPort{Interface: "ens1f0", SubnetCIDR: subnetOf(w, 2), IP: addressIn(w, 2)}
	rec, err := w.store.CreateRoCEAssignment(t.Context(), w.ref.SiteID, w.host, []spec.RoCEPort{port})
	require.NoError(t, err)
	must(w, w.acts.ApplyRoCE, w.networkIn())
	port.IP = netip.MustParseAddr(port.IP).Next().String()
	_, err = w.store.UpdateRoCEAssignment(t.Context(), rec.ID, rec.Version, []spec.RoCEPort{port})
	require.NoError(t, err)
	must(w, w.acts.ApplyRoCE, w.networkIn())
	ifaces, err := w.client().Interfaces(t.Context(), w.id)
	require.NoError(t, err)
	for _, f := range ifaces {
		if f.Name == port.Interface {
			require.Len(t, f.Links, 1)
			require.Equal(t, port.IP, f.Links[0].IP)
		}
	}
}

func TestMachineDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	require.NoError(t, w.client().DeleteMachine(t.Context(), w.id))
	fails(w, lifecycle.FailMAASMachineDeleted, w.acts.WaitForReady, w.machine())
	fails(w, lifecycle.FailMAASMachineDeleted, w.acts.ConfigureStorage, w.storageIn())
	fails(w, lifecycle.FailMAASMachineDeleted, w.acts.DeployMachine, w.deployIn(1))
	require.Equal(t, "absent", must(w, w.acts.ObserveMachine, w.machine()).Status)
	require.Equal(t, "absent", must(w, w.acts.ReturnToReady, w.releaseIn()).Status)
	require.Equal(t, "absent", must(w, w.acts.RemoveCreatedMachine, w.removeIn(true)).Status)
}

func TestCommissioningFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "commission_fail"}).created()
	must(w, w.acts.CommissionMachine, w.machine())
	require.Contains(t, fails(w, lifecycle.FailCommissioning, w.acts.WaitForReady, w.machine()), "failed scripts")
	must(w, w.acts.CommissionMachine, w.machine())
	require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
}

// TestFailedTestsAreAPersonsDecision: MAAS refuses to commission from there,
// and an override would hide a broken machine.
func TestFailedTestsAreAPersonsDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "test_fail"}).created()
	must(w, w.acts.CommissionMachine, w.machine())
	fails(w, lifecycle.FailCommissioning, w.acts.WaitForReady, w.machine())
	require.Contains(t, fails(w, lifecycle.FailCommissioning, w.acts.CommissionMachine, w.machine()), "override the failed tests")
	require.NoError(t, w.client().OverrideFailedTesting(t.Context(), w.id, "seen to"))
	require.True(t, must(w, w.acts.CommissionMachine, w.machine()).Done)
}

func TestReleasedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).deploying()
	require.NoError(t, w.client().Release(t.Context(), w.id, providers.MAASRelease{}))
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.WaitForDeployed, w.waitIn(time.Minute)), "released by someone else")
}

// TestDeploymentOfAnotherIsLeftAlone: neither awaited as ours, nor aborted at
// the deadline, nor released, nor deleted in compensation.
func TestDeploymentOfAnotherIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).prepared()
	_, err := w.client().Deploy(t.Context(), w.id, providers.MAASDeploy{DistroSeries: "jammy"})
	require.NoError(t, err)
	fails(w, lifecycle.FailStateDisagreement, w.acts.DeployMachine, w.deployIn(1))
	fails(w, lifecycle.FailStateDisagreement, w.acts.WaitForDeployed, w.waitIn(0))
	require.True(t, must(w, w.acts.ObserveMachine, w.machine()).Foreign)
	require.Contains(t, must(w, w.acts.ReturnToReady, w.releaseIn()).Note, "left alone")
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.RemoveCreatedMachine, w.removeIn(true)), "not deleted")
	for _, effect := range []string{"aborts", "releases", "deletes"} {
		require.Zero(t, w.counts(effect), effect)
	}
}

// TestAllocationWithoutAMark: a job that allocated the machine and could not
// mark it gives it back all the same.
func TestAllocationWithoutAMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t).prepared()
	w.fault(maassim.Fault{Name: "http_403", Op: "set_workload_annotations", Count: -1})
	_, err := run(w, w.acts.DeployMachine, w.deployIn(1))
	require.Error(t, err)
	require.Equal(t, "Allocated", must(w, w.acts.ObserveMachine, w.machine()).Status)
	in := w.releaseIn()
	require.Equal(t, "Allocated", must(w, w.acts.ReturnToReady, in).Status)
	in.DeployStarted = true
	require.Equal(t, "Ready", must(w, w.acts.ReturnToReady, in).Status)
}

// TestRecordOfALostCreateIsRemoved: MAAS made the record, no answer and no
// later look came through, and the job was cancelled.
func TestRecordOfALostCreateIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.store.SetMAASCreateIntent(t.Context(), w.ref.NodeID, w.ref.JobID))
	w.created()
	w.id = ""
	require.NotEmpty(t, must(w, w.acts.RemoveCreatedMachine, w.removeIn(false)).SystemID)
	require.Equal(t, 1, w.counts("deletes"))
}

// TestRecordOfAnOperatorIsKept: MAAS refused this job's create, and an operator made
// the record by hand.
func TestRecordOfAnOperatorIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "http_403", Op: "create"})
	fails(w, lifecycle.FailMAASRejected, w.acts.CreateOrFindMachine, w.createIn())
	spec := w.hw.Spec()
	_, err := w.client().CreateMachine(t.Context(), providers.MAASCreate{
		Hostname: w.host, Architecture: spec.Architecture, MACs: w.bmc.MACs, PowerType: "redfish", PowerAddress: spec.BMCAddress,
		PowerUser: spec.BMCUser, PowerPassword: providers.NewSecret(spec.BMCPassword),
	})
	require.NoError(t, err)
	f := must(w, w.acts.CreateOrFindMachine, w.createIn())
	require.False(t, f.Created)
	w.id = f.SystemID
	must(w, w.acts.RemoveCreatedMachine, w.removeIn(f.Created))
	require.Zero(t, w.counts("deletes"))
}

func TestHardwareSyncNever(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "hw_sync_never", Count: -1}).deploying()
	f := must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute))
	in := maasact.WaitSyncIn{MachineIn: w.machine(), After: f.LastSync, Until: time.Now().Add(600 * time.Millisecond)}
	require.False(t, must(w, w.acts.WaitForHardwareSync, in).Done)
}

func TestAbortCommissioning(t *testing.T) {
	t.Parallel()
	w := newWorld(t).created()
	must(w, w.acts.CommissionMachine, w.machine())
	for range 2 {
		must(w, w.acts.AbortCommissioning, w.machine())
	}
	require.LessOrEqual(t, w.counts("aborts"), 1)
}
