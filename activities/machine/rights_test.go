package machine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
)

// occupied links the machine to a node that a tenant has, and starts a reboot of the tenant.
func (w *world) occupied(mode string) (machine.StepIn, allocationdb.Allocation) {
	w.t.Helper()
	old, err := machinesdb.Get(w.t.Context(), w.store, "m-1")
	require.NoError(w.t, err)
	opts := []dbtest.Option{dbtest.Active()}
	if old.SiteID != nil {
		opts = append(opts, dbtest.At(*old.SiteID))
	}
	node := dbtest.Node(w.t, w.store, opts...)
	_, err = w.store.DBTX().Exec(w.t.Context(), "UPDATE nodes SET ssh_host_key = $2 WHERE id = $1", node.ID, old.HostKey)
	require.NoError(w.t, err)
	a := dbtest.Occupy(w.t, w.store, node.ID)
	var run machinesdb.Run
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{NodeID: node.ID}, admin); err != nil {
			return err
		}
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", ProjectID: a.ProjectID, Spec: old.Spec}, admin); err != nil {
			return err
		}
		plan, err := machines.CreatePlan(ctx, tx, runplan.Plan{
			StartableBy: runplan.StartableByCustomer, Steps: []runplan.Step{{Name: "work", Reboot: &runplan.Reboot{Mode: mode}}},
		}, false, admin)
		if err != nil {
			return err
		}
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: "tenant", MachineID: "m-1", Type: lifecycle.RunTypeReboot, PlanID: plan.ID, Project: a.ProjectID,
			Offers: func(p string) []runplan.Capability { return w.acts.Adapters[p].Offers() },
		}, admin)
		return err
	})
	return machine.StepIn{JobRef: contract.JobRef{JobID: run.JobID, Stage: "work"}, RunID: run.ID, Step: "work", Attempt: 1}, a
}

// fence fences the release of an allocation.
func (w *world) fence(a allocationdb.Allocation) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationRelease, Actor: admin})
		return err
	})
}

// TestReboot_OfAFormerTenant has the release of a node fenced after the tenant's reboot was
// accepted. Nothing is done with the machine then.
func TestReboot_OfAFormerTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fake")
	in, a := w.occupied(runplan.RebootBMC)
	before, err := w.acts.ReadBootID(t.Context(), in)
	require.NoError(t, err)
	w.fence(a)
	_, err = w.acts.ReadBootID(t.Context(), in)
	require.Equal(t, lifecycle.FailStateDisagreement, classOf(err), "%v", err)
	_, err = w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Before: before.BootID})
	require.Equal(t, lifecycle.FailStateDisagreement, classOf(err), "%v", err)
	require.True(t, lifecycle.IsStepFailure(classOf(err)), "the run ends, and gives the node to the release")
	facts, err := w.acts.Adapters["fake"].Inspect.Inspect(t.Context(), providers.MachineTarget{ID: "m-1"})
	require.NoError(t, err)
	require.Equal(t, before.BootID, facts.BootID, "the machine was not restarted")
}

// TestReboot_EndsWithTheRight fences the release while the tenant's reboot waits for the machine to
// come back.
func TestReboot_EndsWithTheRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ssh")
	reboots := filepath.Join(w.dir, "ordered")
	w.acts.RebootScript = "echo r >> " + reboots // it never comes back
	in, a := w.occupied(runplan.RebootInBand)
	before, err := w.acts.ReadBootID(t.Context(), in)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := w.acts.Reboot(t.Context(), machine.RebootIn{StepIn: in, Before: before.BootID})
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(reboots); return err == nil }, time.Minute, 10*time.Millisecond)
	w.fence(a)
	select {
	case err := <-ended:
		require.Equal(t, lifecycle.FailStateDisagreement, classOf(err), "%v", err)
	case <-time.After(time.Minute):
		t.Fatal("the reboot goes on after the fence")
	}
}
