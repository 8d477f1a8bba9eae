package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	intent "github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/stack"
)

// datacenter is what the provider of that name has without a node.
func datacenter(string) []runplan.Capability {
	return []runplan.Capability{runplan.CapInspect, runplan.CapRemoteExec, runplan.CapNetworkConfig}
}

// repavePlan is the default plan without a cluster.
func repavePlan() runplan.Plan {
	return runplan.Plan{Steps: []runplan.Step{
		{Name: "set-netboot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}},
		{Name: "repave-os", Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}},
		{Name: "reboot", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}},
	}}
}

// startRun starts a run on the machine of a node; "" is the default plan of the type.
func (w *world) startRun(t *testing.T, machine, request, plan string, kind lifecycle.RunType, risk bool) (run machinesdb.Run, err error) {
	t.Helper()
	err = w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		run, err = intent.StartRun(t.Context(), tx, intent.Start{RequestID: request, MachineID: machine, Type: kind, PlanID: plan, AcceptRisk: risk, Offers: datacenter, LogsIn: func(string) bool { return true }}, admin)
		return err
	})
	return run, err
}

// registered is a machine of the data center that is linked to a node, with a plan that installs it
// again.
func (w *world) registered(t *testing.T, id, nodeID string, s spec.MachineSpec) (plan string) {
	t.Helper()
	s.Provider = "datacenter"
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := intent.Register(t.Context(), tx, intent.Registration{ID: id, Spec: s}, admin); err != nil {
			return err
		}
		if _, err := intent.SetAccess(t.Context(), tx, id, intent.Access{NodeID: nodeID}, admin); err != nil {
			return err
		}
		p, err := intent.CreatePlan(t.Context(), tx, repavePlan(), false, admin)
		plan = p.ID
		return err
	}))
	return plan
}

func (w *world) machine(t *testing.T, id string) machinesdb.Machine {
	t.Helper()
	m, err := machinesdb.Get(context.WithoutCancel(t.Context()), w.App.Store, id)
	require.NoError(t, err)
	return m
}

// whyRun says where and why a run has failed.
func (w *world) whyRun(t *testing.T, id string) string {
	t.Helper()
	run, err := machinesdb.GetRun(context.WithoutCancel(t.Context()), w.App.Store, id)
	require.NoError(t, err)
	return run.CurrentStep + ": " + string(run.FailureClass) + ": " + run.Message
}

// TestMachineRun_RebootsAnOnboardedNode: a machine that states no address is reached where MAAS put
// its node: the record has the address, with its source, and a run restarts the node there.
func TestMachineRun_RebootsAnOnboardedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	for m, node := range w.activeNodes(t) {
		address, err := w.Sims.Address(t.Context(), m)
		require.NoError(t, err)
		n := w.node(t, node)
		require.NotEmpty(t, n.IPAddresses)
		require.Equal(t, address, n.IPAddresses[0], "those of its RoCE ports follow")
		require.Equal(t, lifecycle.AddressesOfMAAS, n.IPAddressesSource)
		require.NotNil(t, n.IPAddressesAt)
		id := "m-" + w.site.Name
		w.registered(t, id, node, spec.MachineSpec{Serial: m.Spec().Serial})
		run, err := w.startRun(t, id, "r1", "", lifecycle.RunTypeReboot, false)
		require.NoError(t, err)
		require.Equal(t, lifecycle.JobCompleted, w.ends(t, run.JobID, 4*time.Minute).Status, w.whyRun(t, run.ID))
		require.Equal(t, lifecycle.MachineReady, w.machine(t, id).Status)
		require.Equal(t, lifecycle.NodeActive, w.node(t, node).Status)
		require.Equal(t, 1, m.Counters().Installs, "it was restarted, and not installed")
	}
}

// TestMachineRun_Repave installs a machine again through the BMC and the MAAS of its node, and
// restarts it. The node is proven clean, returns to service, and its machine may then leave for its
// vendor.
func TestMachineRun_Repave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	for m, node := range w.activeNodes(t) {
		id := "m-" + w.site.Name
		plan := w.registered(t, id, node, spec.MachineSpec{Serial: m.Spec().Serial})
		run, err := w.startRun(t, id, "r1", plan, lifecycle.RunTypeRepave, false)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeDraining, w.node(t, node).Status, "the node takes no new work")
		job := w.ends(t, run.JobID, 6*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, job.Status, w.whyRun(t, run.ID))
		require.Equal(t, 2, m.Counters().Installs)
		c := w.certificate(t, node)
		require.Equal(t, []string{job.ID, string(contract.KindMachineRun)}, []string{c.Run.ID, c.Run.Kind})
		require.Equal(t, evidence.VerdictClean, c.Verdict, "%v", c.Failures)
		require.Len(t, disks(c)[true], len(m.Spec().Disks))
		require.Equal(t, lifecycle.MachineReady, w.machine(t, id).Status)
		w.activeAgain(t, node)

		leaves, err := w.startRun(t, id, "r2", "", lifecycle.RunTypeRMA, false)
		require.NoError(t, err)
		job = w.ends(t, leaves.JobID, 2*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, job.Status, w.whyRun(t, leaves.ID))
		require.Equal(t, lifecycle.MachineRMA, w.machine(t, id).Status)
		require.Equal(t, lifecycle.NodeQuarantined, w.node(t, node).Status, "nothing is scheduled on a machine that leaves")
		require.Equal(t, c.ID, w.certificate(t, node).ID, "the evidence is kept")
	}
}

// TestMachineRun_OfAnotherMachine: where the BMC says that another machine than the recorded one is
// there, nothing is set and nothing erased, and the node goes on as before.
func TestMachineRun_OfAnotherMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	for m, node := range w.activeNodes(t) {
		id := "m-" + w.site.Name
		plan := w.registered(t, id, node, spec.MachineSpec{Serial: "SWAPPED-1"})
		boots := m.Counters().Boots
		run, err := w.startRun(t, id, "r1", plan, lifecycle.RunTypeRepave, false)
		require.NoError(t, err)
		job := w.ends(t, run.JobID, 2*time.Minute)
		require.Equal(t, lifecycle.JobCancelled, job.Status)
		got, err := machinesdb.GetRun(t.Context(), w.App.Store, run.ID)
		require.NoError(t, err)
		require.Equal(t, []string{string(lifecycle.RunFailed), string(lifecycle.FailOtherMachine)}, []string{string(got.Status), string(got.FailureClass)})
		require.Equal(t, []int{1, boots}, []int{m.Counters().Installs, m.Counters().Boots})
		require.Equal(t, lifecycle.MachineMaintenance, w.machine(t, id).Status)
		require.Equal(t, simhw.On, m.Power())
		w.activeAgain(t, node)
	}
}
