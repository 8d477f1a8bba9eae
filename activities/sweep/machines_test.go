package sweep_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var byAdmin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "anna"}

// linked registers a machine that is linked to a node.
func (w *world) linked(nodeID string) {
	w.t.Helper()
	w.change(func(ctx context.Context, tx *db.Tx) error {
		if _, err := machines.Register(ctx, tx, machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}}, byAdmin); err != nil {
			return err
		}
		_, err := machines.SetAccess(ctx, tx, "m-1", machines.Access{NodeID: nodeID}, byAdmin)
		return err
	})
}

func (w *world) change(fn func(context.Context, *db.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.Store.Tx(w.t.Context(), func(tx *db.Tx) error { return fn(w.t.Context(), tx) }))
}

// swept makes a pass and returns the machine after it, with the report.
func (w *world) swept() (machinesdb.Machine, sweep.StartsReport) {
	w.t.Helper()
	r, err := w.SweepStarts(w.t.Context())
	require.NoError(w.t, err)
	m, err := machinesdb.Get(w.t.Context(), w.Store, "m-1")
	require.NoError(w.t, err)
	return m, r
}

// moveNode moves the node of the machine, whoever may.
func (w *world) moveNode(id string, t lifecycle.Transition[lifecycle.NodeStatus]) {
	w.t.Helper()
	w.change(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.TransitionNode(ctx, id, t, t.Needs, db.Actor{Owner: t.Owners[0], ID: "test", Comment: "test"})
		return err
	})
}

// TestMachines_FollowTheirNodes moves a node: its machine gets the phase and the conditions that
// follow, and keeps what an operator sets until the node moves again.
func TestMachines_FollowTheirNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.Store, dbtest.Active())
	w.linked(node.ID)
	m, r := w.swept()
	require.Equal(t, 1, r.Machines)
	require.Equal(t, lifecycle.MachineReady, m.Status)
	require.True(t, m.Conditions.Holds(lifecycle.ReachableCondition))
	require.True(t, m.Conditions.Holds(lifecycle.ProvisionedCondition))
	require.False(t, m.Conditions.Known(lifecycle.BMCReachableCondition), "no BMC was asked")
	require.False(t, m.Conditions.Known(lifecycle.InCustomerClusterCondition), "no cluster was asked")
	_, r = w.swept()
	require.Zero(t, r.Machines, "nothing has changed")

	w.change(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetPhase(ctx, tx, "m-1", lifecycle.MachineMaintenance, "new fans", byAdmin)
		return err
	})
	m, _ = w.swept()
	require.Equal(t, lifecycle.MachineMaintenance, m.Status, "what an operator set stays")

	w.moveNode(node.ID, lifecycle.NodeQuarantine)
	m, _ = w.swept()
	require.Equal(t, lifecycle.MachineMaintenance, m.Status)
	require.Equal(t, []lifecycle.ConditionType{lifecycle.NeedsInterventionCondition}, lifecycle.Banners(m.Conditions))
	reachable, _ := m.Conditions.Find(lifecycle.ReachableCondition)
	require.Equal(t, lifecycle.Condition{Type: lifecycle.ReachableCondition, Status: true, Reason: lifecycle.ReasonUnknown, LastTransition: reachable.LastTransition}, reachable)

	w.moveNode(node.ID, lifecycle.NodeUnquarantine)
	m, _ = w.swept()
	require.Equal(t, lifecycle.MachineReady, m.Status)
	require.Empty(t, lifecycle.Banners(m.Conditions))

	w.change(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetPhase(ctx, tx, "m-1", lifecycle.MachineRMA, "it goes back", byAdmin)
		return err
	})
	w.moveNode(node.ID, lifecycle.NodeQuarantine)
	m, _ = w.swept()
	require.Equal(t, lifecycle.MachineRMA, m.Status, "an operator takes it out of RMA")
}

// TestMachines_KeepTheirPhaseDuringARun: the phase that the node gives comes when the run has
// ended.
func TestMachines_KeepTheirPhaseDuringARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.Store, dbtest.Active())
	w.linked(node.ID)
	w.swept()
	var run machinesdb.Run
	w.change(func(ctx context.Context, tx *db.Tx) (err error) {
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, byAdmin)
		return err
	})
	w.moveNode(node.ID, lifecycle.NodeQuarantine)
	m, _ := w.swept()
	require.Equal(t, lifecycle.MachineProvisioning, m.Status)
	require.True(t, m.Conditions.Holds(lifecycle.NeedsInterventionCondition))
	_, r := w.swept()
	require.Zero(t, r.Machines)
	w.change(func(ctx context.Context, tx *db.Tx) error {
		job, err := tx.TransitionJob(ctx, run.JobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		if err != nil {
			return err
		}
		return machines.EndUnstarted(ctx, tx, job, byAdmin)
	})
	w.swept()
	w.moveNode(node.ID, lifecycle.NodeUnquarantine)
	m, _ = w.swept()
	require.Equal(t, lifecycle.MachineReady, m.Status)
}

// A BMC that was asked long ago says nothing about now.
func TestMachines_BMCReachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.Store, dbtest.Active())
	bmc, err := w.Store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "127.0.0.9", Protocol: "redfish", CredentialRef: "bmc/x"})
	require.NoError(t, err)
	w.linked(node.ID)
	looked := func(answered any, failures int, age time.Duration) lifecycle.Condition {
		_, err := w.Store.DBTX().Exec(t.Context(), `INSERT INTO drift_bmcs (bmc_id, address, probed_at, answered_at, failures)
			VALUES ($1, '127.0.0.9', now() - $2::interval, $3::timestamptz, $4)
			ON CONFLICT (bmc_id) DO UPDATE SET probed_at = excluded.probed_at, answered_at = excluded.answered_at, failures = excluded.failures`, bmc.ID, age, answered, failures)
		require.NoError(t, err)
		m, _ := w.swept()
		c, _ := m.Conditions.Find(lifecycle.BMCReachableCondition)
		c.LastTransition = time.Time{}
		return c
	}
	of := func(status bool, reason string) lifecycle.Condition {
		return lifecycle.Condition{Type: lifecycle.BMCReachableCondition, Status: status, Reason: reason}
	}
	require.Equal(t, of(true, lifecycle.ReasonBMCAnswers), looked(time.Now(), 0, 0))
	require.Equal(t, of(false, lifecycle.ReasonBMCSilent), looked(time.Now(), 2, 0))
	require.Equal(t, of(false, lifecycle.ReasonUnknown), looked(time.Now(), 0, 3*time.Hour))
}

// TestLostJobs_OfRuns: a run whose workflow is gone says that an operator is needed.
func TestLostJobs_OfRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.linked(dbtest.Node(t, w.Store, dbtest.Active()).ID)
	var run machinesdb.Run
	w.change(func(ctx context.Context, tx *db.Tx) (err error) {
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: "r", MachineID: "m-1", Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, byAdmin)
		return err
	})
	w.begin(run.JobID)
	require.Equal(t, []string{run.JobID}, w.sweep(20*time.Second).Lost)
	run, err := machinesdb.GetRun(t.Context(), w.Store, run.ID)
	require.NoError(t, err)
	require.True(t, run.NeedsIntervention)
	require.Equal(t, lifecycle.RunRunning, run.Status)
}

// A machine keeps the phase that a run gave it before its node was looked at for the first time.
func TestMachines_FirstLookKeepsThePhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.Store, dbtest.Active())
	w.linked(node.ID)
	w.change(func(ctx context.Context, tx *db.Tx) error {
		_, err := machines.SetPhase(ctx, tx, "m-1", lifecycle.MachineMaintenance, "a run failed", byAdmin)
		return err
	})
	m, _ := w.swept()
	require.Equal(t, lifecycle.MachineMaintenance, m.Status)
	require.Equal(t, lifecycle.MachineReady, m.NodePhase)
}
