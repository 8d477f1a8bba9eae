package maas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// TestWhatIsLeftIsNamed: each proof says before its compensation what is there,
// and nothing after it; it changes nothing itself.
func TestWhatIsLeftIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).deploying()
	release, remove := w.releaseIn(), w.removeIn(true)
	for range 2 {
		left := must(w, w.acts.CheckReleased, release)
		require.False(t, left.Done)
		require.Equal(t, "machine "+w.id+" is still Deploying for this job", left.Note)
		left = must(w, w.acts.CheckRecordRemoved, remove)
		require.False(t, left.Done)
		require.Equal(t, "the record "+w.id+" that this job created is still in MAAS, Deploying", left.Note)
	}
	require.Zero(t, w.counts("releases"))
	require.Zero(t, w.counts("deletes"))
	must(w, w.acts.ReturnToReady, release)
	require.True(t, must(w, w.acts.CheckReleased, release).Done)
	require.False(t, must(w, w.acts.CheckRecordRemoved, remove).Done)
	must(w, w.acts.RemoveCreatedMachine, remove)
	require.True(t, must(w, w.acts.CheckRecordRemoved, remove).Done)
	require.True(t, must(w, w.acts.CheckReleased, release).Done, "a machine that is gone is not deployed")
	require.True(t, must(w, w.acts.CheckNotCommissioning, w.machine()).Done)
}

func TestACommissioningThatRunsIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t).created()
	require.True(t, must(w, w.acts.CheckNotCommissioning, w.machine()).Done)
	must(w, w.acts.CommissionMachine, w.machine())
	left := must(w, w.acts.CheckNotCommissioning, w.machine())
	require.False(t, left.Done)
	require.Equal(t, "machine "+w.id+" is still Commissioning", left.Note)
	must(w, w.acts.AbortCommissioning, w.machine())
	require.True(t, must(w, w.acts.CheckNotCommissioning, w.machine()).Done)
}

// TestWhatIsAnothersIsClean: neither a deployment nor a record that this job did
// not make is its own to clean up.
func TestWhatIsAnothersIsClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t, maassim.Fault{Name: "stuck_deploying"}).prepared()
	_, err := w.client().Deploy(t.Context(), w.id, providers.MAASDeploy{DistroSeries: "jammy"})
	require.NoError(t, err)
	require.True(t, must(w, w.acts.CheckReleased, w.releaseIn()).Done)
	require.True(t, must(w, w.acts.CheckRecordRemoved, w.removeIn(false)).Done)
}

// TestAnAllocationWithoutAMarkIsLeft: the job allocated the machine and could
// not mark it.
func TestAnAllocationWithoutAMarkIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t).prepared()
	w.fault(maassim.Fault{Name: "http_403", Op: "set_workload_annotations", Count: -1})
	_, err := run(w, w.acts.DeployMachine, w.deployIn(1))
	require.Error(t, err)
	in := w.releaseIn()
	require.True(t, must(w, w.acts.CheckReleased, in).Done)
	in.DeployStarted = true
	require.Contains(t, must(w, w.acts.CheckReleased, in).Note, "still Allocated for this job")
}

// TestTheRecordOfALostCreateIsLeft: the job never learned its id.
func TestTheRecordOfALostCreateIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.store.SetMAASCreateIntent(t.Context(), w.ref.NodeID, w.ref.JobID))
	w.created()
	id := w.id
	w.id = ""
	require.Contains(t, must(w, w.acts.CheckRecordRemoved, w.removeIn(false)).Note, id)
	must(w, w.acts.RemoveCreatedMachine, w.removeIn(false))
	require.True(t, must(w, w.acts.CheckRecordRemoved, w.removeIn(false)).Done)
}

// TestAProofThatCannotBeReadFails: not knowing is not clean.
func TestAProofThatCannotBeReadFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	w.fault(maassim.Fault{Name: "connection_reset", Op: "read", Count: -1})
	fails(w, lifecycle.FailMAASUnavailable, w.acts.CheckReleased, w.releaseIn())
	fails(w, lifecycle.FailMAASUnavailable, w.acts.CheckRecordRemoved, w.removeIn(true))
	fails(w, lifecycle.FailMAASUnavailable, w.acts.CheckNotCommissioning, w.machine())
}
