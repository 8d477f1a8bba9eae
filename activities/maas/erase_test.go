package maas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// deployed is a machine in service.
func (w *world) deployed() *world {
	w.t.Helper()
	w.deploying()
	require.Equal(w.t, contract.DeployOK, must(w, w.acts.WaitForDeployed, w.waitIn(time.Minute)).Outcome)
	return w
}

// eraseIn is a release of the machine as it was just looked at.
func (w *world) eraseIn() maasact.EraseAndReleaseIn {
	w.t.Helper()
	f := must(w, w.acts.ReadMachineBeforeRelease, w.machine())
	return maasact.EraseAndReleaseIn{MachineIn: w.machine(), AfterEvent: f.LastEvent, ReleaseStarted: true, EraseUntil: time.Now().Add(time.Minute)}
}

func (w *world) removal() maasact.RemoveMachineIn {
	return maasact.RemoveMachineIn{MachineIn: w.machine(), MACs: w.bmc.MACs}
}

// A repetition at any moment finds the release that is under way, and its proof.
func TestEraseAndRelease_Repeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	require.Equal(t, "maas", w.addresses()[0])
	look := must(w, w.acts.ReadMachineBeforeRelease, w.machine())
	require.Len(t, look.Disks, len(w.hw.Spec().Disks))
	in := w.eraseIn()
	f := must(w, w.acts.EraseAndRelease, in)
	require.True(t, f.Erased)
	require.Equal(t, "Ready", f.Status)
	require.Nil(t, w.hw.InstalledOS())
	require.Equal(t, []string{""}, w.addresses())
	require.Equal(t, 1, w.counts("releases"))
	again := must(w, w.acts.EraseAndRelease, in)
	require.True(t, again.Erased, "the proof is in MAAS's events, not in this execution")
	require.Equal(t, 1, w.counts("releases"))
	in.ObserveOnly = true
	require.True(t, must(w, w.acts.EraseAndRelease, in).Erased)
}

// A job without its checkpoint finds the machine deployed by itself, and does not release it.
func TestEraseAndRelease_NotAfterDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	in := w.eraseIn()
	in.NextAttempt = 2
	require.True(t, must(w, w.acts.EraseAndRelease, in).Erased, "the deployment before is another attempt's")
	must(w, w.acts.ConfigureStorage, w.storageIn())
	must(w, w.acts.EnsurePXEInterfaceAuto, w.networkIn())
	must(w, w.acts.DeployMachine, w.deployIn(2))
	again := must(w, w.acts.EraseAndRelease, in)
	require.True(t, again.Done)
	require.True(t, again.Erased)
	require.Equal(t, 1, w.counts("releases"))
}

func TestEraseAndRelease_ReleasedBySomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	require.NoError(t, w.sim.External("release", w.id))
	require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	in := w.eraseIn()
	in.ReleaseStarted = false
	f := must(w, w.acts.EraseAndRelease, in)
	require.True(t, f.Done)
	require.False(t, f.Erased)
	require.Contains(t, f.Note, "somebody else")
}

// MAAS has no limit for erasing. The profile says what happens at the limit of the job.
func TestEraseAndRelease_EraseTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_erasing", Count: 2}).deployed()
	in := w.eraseIn()
	in.EraseUntil = time.Now().Add(300 * time.Millisecond)
	require.Contains(t, fails(w, lifecycle.FailScrubUnverified, w.acts.EraseAndRelease, in), "did not end in time")
	require.Equal(t, "Failed disk erasing", must(w, w.acts.ObserveMachine, w.machine()).Status)

	in.EraseUntil, in.Fallback = time.Now().Add(300*time.Millisecond), true
	f := must(w, w.acts.EraseAndRelease, in)
	require.False(t, f.Erased)
	require.Contains(t, f.Fallback, "as the profile allows")
	require.Equal(t, "Ready", f.Status)
}

func TestEraseAndRelease_RetriesFailedErase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_erasing"}).deployed()
	in := w.eraseIn()
	in.EraseUntil = time.Now().Add(300 * time.Millisecond)
	fails(w, lifecycle.FailScrubUnverified, w.acts.EraseAndRelease, in)
	in.EraseUntil = time.Now().Add(time.Minute)
	require.True(t, must(w, w.acts.EraseAndRelease, in).Erased)
}

func TestEraseAndRelease_PowerOffFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "release_power_fail", Count: 2}).deployed()
	in := w.eraseIn()
	fails(w, lifecycle.FailPowerNotConfirmed, w.acts.EraseAndRelease, in)
	require.True(t, must(w, w.acts.EraseAndRelease, in).Erased, "what is erased is not erased again")
}

// The machine is locked, belongs to another user, or is in a state without a release.
func TestEraseAndRelease_MachineOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	in := w.eraseIn()
	require.NoError(t, w.sim.External("lock", w.id))
	require.Contains(t, fails(w, lifecycle.FailMAASRejected, w.acts.ReadMachineBeforeRelease, w.machine()), "locked")
	require.Contains(t, fails(w, lifecycle.FailMAASRejected, w.acts.EraseAndRelease, in), "locked")
	require.NoError(t, w.sim.External("unlock", w.id))
	require.NoError(t, w.sim.External("release", w.id))
	require.Equal(t, "Ready", must(w, w.acts.WaitForReady, w.machine()).Status)
	require.NoError(t, w.sim.External("allocate", w.id))
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.EraseAndRelease, in), `"other"`)
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.RemoveMachine, w.removal()), "Allocated")
}

func TestPowerOffByMAAS_Confirms(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	in := w.machine()
	in.ObserveOnly = true
	require.Equal(t, "on", must(w, w.acts.PowerOffByMAAS, in).State)
	require.True(t, must(w, w.acts.PowerOffByMAAS, w.machine()).Done)
	require.Equal(t, simhw.Off, w.hw.Power())
	require.True(t, must(w, w.acts.PowerOffByMAAS, w.machine()).Done)
	require.True(t, must(w, w.acts.PowerOnByMAAS, w.machine()).Done)
	require.Equal(t, simhw.On, w.hw.Power())
	require.NoError(t, w.client().DeleteMachine(t.Context(), w.id))
	f := must(w, w.acts.PowerOffByMAAS, w.machine())
	require.False(t, f.Done)
	require.Contains(t, f.Note, "not in MAAS")
}

// A machine that was switched on since has enlisted itself under another id.
func TestRemoveMachine_AndWhatItEnlistedAs(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	require.True(t, must(w, w.acts.EraseAndRelease, w.eraseIn()).Done)
	must(w, w.acts.PowerOffByMAAS, w.machine())
	look := w.removal()
	look.ObserveOnly = true
	require.False(t, must(w, w.acts.RemoveMachine, look).Done)
	require.NoError(t, w.client().DeleteMachine(t.Context(), w.id))
	require.NoError(t, w.sim.External("enlist", w.bmc.MACs[0]))
	ghosts, err := w.client().FindMachines(t.Context(), providers.MAASQuery{MACs: w.bmc.MACs})
	require.NoError(t, err)
	require.Len(t, ghosts, 1)
	require.NotEqual(t, w.id, ghosts[0].SystemID)
	f := must(w, w.acts.RemoveMachine, w.removal())
	require.True(t, f.Done)
	require.Contains(t, f.Note, ghosts[0].SystemID)
	ghosts, err = w.client().FindMachines(t.Context(), providers.MAASQuery{MACs: w.bmc.MACs})
	require.NoError(t, err)
	require.Empty(t, ghosts)
	require.True(t, must(w, w.acts.RemoveMachine, w.removal()).Done, "absent is success")
}

// Two deliveries of the activity meet: the other one deletes the record between the steps of this
// one.
func TestRemoveMachine_DeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"query_power_state", "delete"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).deployed()
			require.True(t, must(w, w.acts.EraseAndRelease, w.eraseIn()).Done)
			must(w, w.acts.PowerOffByMAAS, w.machine())
			_, err := w.sim.AddFault(maassim.Fault{Name: "machine_deleted", Op: op})
			require.NoError(t, err)
			require.True(t, must(w, w.acts.RemoveMachine, w.removal()).Done)
			require.Equal(t, 1, w.sim.Faults()[0].Applied)
		})
	}
}

// The platform's keys are the site's login and those that MAAS gives to every machine.
func TestLoadNodeConfig_PlatformKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t).created()
	f := must(w, w.acts.LoadNodeConfig, maasact.NodeConfigIn{JobRef: w.ref, Keys: true})
	require.Equal(t, []string{"ubuntu"}, f.KeepUsers)
	require.NotEmpty(t, f.KeepKeys, "those of the MAAS user")
	for _, k := range f.KeepKeys {
		require.Regexp(t, `^[a-z0-9-]+ \S+$`, k, "without a comment")
	}
	require.Empty(t, must(w, w.acts.LoadNodeConfig, maasact.NodeConfigIn{JobRef: w.ref}).KeepKeys)
}

// The node gets the defaults and a shorter poll interval, because no region is polled.
func TestLoadNodeConfig_WithoutSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := dbtest.PXENode(t, w.store, "52:54:00:bb:00:01", lifecycle.NodeActive)
	ref := contract.JobRef{JobID: w.ref.JobID, NodeID: n.ID}
	f := must(w, w.acts.LoadNodeConfig, maasact.NodeConfigIn{JobRef: ref, Keys: true})
	require.Equal(t, []string{"ubuntu"}, f.KeepUsers)
	require.Empty(t, f.KeepKeys)
	require.Equal(t, 2*time.Second, f.Profile.PollInterval.D())
	require.NotEmpty(t, f.Profile.DistroSeries, "defaults")
	require.False(t, f.Profile.ScrubAllowOverwrite)
	eraser, err := w.store.CreateInstallWorkflow(t.Context(), "eraser", spec.InstallWorkflowSpec{
		Kernel: spec.BootImage{URL: "http://127.0.0.1/vmlinuz"}, Agent: &spec.InstallAgent{AllowOverwrite: true},
	})
	require.NoError(t, err)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.AssignEraseWorkflow(t.Context(), n.ID, n.Version, eraser.ID)
		return err
	}))
	require.True(t, must(w, w.acts.LoadNodeConfig, maasact.NodeConfigIn{JobRef: ref}).Profile.ScrubAllowOverwrite, "the erase workflow's word")
	p := must(w, w.acts.PlanMachineDecommission, maasact.DecommissionPlanIn{In: ref, Keys: true})
	require.Nil(t, p.ConfigFailure)
}

// A plan changes nothing, and names the failure of a run.
func TestPlanMachineDecommission(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	l := maasact.DecommissionPlanIn{In: w.ref, SystemID: w.id, Hostname: w.host, MACs: w.bmc.MACs, Keys: true}
	before := w.sim.Counters()
	p := must(w, w.acts.PlanMachineDecommission, l)
	require.Equal(t, []string{w.id}, p.Records)
	require.Len(t, p.Disks, len(w.hw.Spec().Disks))
	require.Nil(t, p.MachineFailure)
	require.Nil(t, p.Unreleasable())
	require.False(t, p.Released())
	require.NoError(t, w.sim.External("lock", w.id))
	p = must(w, w.acts.PlanMachineDecommission, l)
	require.Equal(t, lifecycle.FailMAASRejected, p.MachineFailure.Class)
	require.Equal(t, before.Total, w.sim.Counters().Total, "nothing was asked of MAAS but to look")
}
