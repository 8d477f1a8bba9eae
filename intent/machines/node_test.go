package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// linked registers a machine that is linked to a node with a BMC, and returns the node.
func (w *world) linked(opts ...dbtest.Option) db.Node {
	w.t.Helper()
	node := dbtest.Node(w.t, w.store, opts...)
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "datacenter", SSHEndpoint: "10.0.0.1:22"}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.access("m-1", machines.Access{NodeID: node.ID}))
	_, err = w.store.CreateBMC(w.t.Context(), db.NewBMC{NodeID: &node.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
	require.NoError(w.t, err)
	return node
}

func (w *world) status(nodeID string) lifecycle.NodeStatus {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), nodeID)
	require.NoError(w.t, err)
	return n.Status
}

// plan stores a plan of one step.
func (w *world) plan(s runplan.Step, startableBy string) string {
	w.t.Helper()
	s.Name = "work"
	var p runplan.Plan
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) (err error) {
		p, err = machines.CreatePlan(w.t.Context(), tx, runplan.Plan{StartableBy: startableBy, Steps: []runplan.Step{s}}, false, admin)
		return err
	}))
	return p.ID
}

// A machine has what its node has: a BMC, and with a machine in MAAS an installation.
func TestStartRun_CapabilitiesOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.linked(dbtest.Active())
	netboot, repave := w.plan(runplan.Step{Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}}, ""), w.plan(runplan.Step{Repave: &runplan.RepaveImage{Image: "ubuntu-22.04"}}, "")
	_, err := w.start(machines.Start{RequestID: "a", MachineID: "m-1", Type: lifecycle.RunTypeRepave, PlanID: repave})
	var refused *runplan.StartRefusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, runplan.ReasonMissingCapability, refused.Reason, "MAAS does not manage the node")
	_, err = w.start(machines.Start{RequestID: "b", MachineID: "m-1", Type: lifecycle.RunTypeRepave, PlanID: netboot})
	require.NoError(t, err)
}

// TestStartRun_TakesTheNode: a run that has the machine leave takes the node out of service with
// its start, and a run that ends before it began gives it back.
func TestStartRun_TakesTheNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, during, after lifecycle.NodeStatus
	}{
		"active":      {lifecycle.NodeActive, lifecycle.NodeDraining, lifecycle.NodeOffline},
		"quarantined": {lifecycle.NodeQuarantined, lifecycle.NodeDraining, lifecycle.NodeQuarantined},
		"retired":     {lifecycle.NodeRetired, lifecycle.NodeRetired, lifecycle.NodeRetired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node := w.linked(dbtest.Active())
			if tc.from != lifecycle.NodeActive {
				dbtest.MoveNode(t, w.store, node.ID, tc.from)
			}
			run, err := w.start(machines.Start{RequestID: "a", MachineID: "m-1", Type: lifecycle.RunTypeRMA})
			require.NoError(t, err)
			require.Equal(t, tc.during, w.status(node.ID))
			w.endUnstarted(run)
			require.Equal(t, tc.after, w.status(node.ID))
		})
	}
}

// A customer may start what the plan says, and never takes a node out of service with it.
func TestStartRun_ACustomerTakesNoNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.linked(dbtest.Active())
	project := dbtest.Project(t, w.store).ID
	_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "datacenter", SSHEndpoint: "10.0.0.1:22"}})
	require.NoError(t, err)
	plan := w.plan(runplan.Step{RMA: &runplan.RMAAction{}}, runplan.StartableByCustomer)
	for _, kind := range []lifecycle.RunType{lifecycle.RunTypeRMA, lifecycle.RunTypeRepave} { // without the step that gives them their meaning
		_, err = w.start(machines.Start{RequestID: "b", MachineID: "m-1", Type: kind, PlanID: "default-reboot-v1", Project: project})
		require.ErrorContains(t, err, "needs a plan with a step")
	}
	_, err = w.start(machines.Start{RequestID: "a", MachineID: "m-1", Type: lifecycle.RunTypeRMA, PlanID: plan, Project: project})
	require.NotNil(t, intent.AsRefusal(err), "%v", err)
	require.Equal(t, lifecycle.NodeActive, w.status(node.ID))
	_, err = w.start(machines.Start{RequestID: "a", MachineID: "m-1", Type: lifecycle.RunTypeRMA, Project: project, CustomersTakeNodes: true})
	require.NoError(t, err, "the settings allow it")
	require.Equal(t, lifecycle.NodeDraining, w.status(node.ID))
}

// TestStartRun_DrainsForItsStarter: the history of a node that a run takes out of service names the
// customer, or the operator, who has started the run, and the run.
func TestStartRun_DrainsForItsStarter(t *testing.T) {
	t.Parallel()
	for _, owner := range []lifecycle.Owner{lifecycle.OwnerCustomer, lifecycle.OwnerAdmin} {
		t.Run(string(owner), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node := w.linked(dbtest.Active())
			project := dbtest.Project(t, w.store).ID
			_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "datacenter", SSHEndpoint: "10.0.0.1:22"}})
			require.NoError(t, err)
			in := machines.Start{RequestID: "a", MachineID: "m-1", Type: lifecycle.RunTypeRMA, CustomersTakeNodes: true}
			if owner == lifecycle.OwnerCustomer {
				in.Project = project
			}
			run, err := w.startAs(in, db.Actor{Owner: owner, ID: "user:ada"})
			require.NoError(t, err)
			require.Equal(t, lifecycle.NodeDraining, w.status(node.ID))
			rows, _, err := w.store.NodeHistory(t.Context(), node.ID, 1, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"draining", string(owner), string(owner), "user:ada", "run " + run.ID},
				[]string{rows[0].ToState, rows[0].TriggeredBy, rows[0].Owner, *rows[0].UserID, *rows[0].Comment})
			w.endUnstarted(run)
			require.Equal(t, lifecycle.NodeOffline, w.status(node.ID))
		})
	}
}

// TestStartRun_OfACustomer: a customer starts every type of run on a machine of the project, by the
// default plans, where the provider can.
func TestStartRun_OfACustomer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := dbtest.Project(t, w.store).ID
	_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "fake", Netplan: "network: {}"}})
	require.NoError(t, err)
	offers := func(string) []runplan.Capability { return runplan.Capabilities() }
	for _, kind := range lifecycle.RunTypes() {
		var run machinesdb.Run
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			run, err = machines.StartRun(t.Context(), tx, machines.Start{RequestID: string(kind), MachineID: "m-1", Type: kind, Project: project, Offers: offers}, admin)
			return err
		}), kind)
		w.endUnstarted(run)
	}
}
