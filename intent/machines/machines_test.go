package machines_test

import (
	"context"
	"errors"
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

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:test"}

type world struct {
	t     *testing.T
	store *db.Store
}

func newWorld(t *testing.T) *world { return &world{t, dbtest.Store(t)} }

func (w *world) register(in machines.Registration) (m machinesdb.Machine, err error) {
	w.t.Helper()
	err = w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		m, err = machines.Register(w.t.Context(), tx, in, admin)
		return err
	})
	return m, err
}

func (w *world) start(in machines.Start) (machinesdb.Run, error) {
	w.t.Helper()
	return w.startAs(in, admin)
}

func (w *world) startAs(in machines.Start, actor db.Actor) (run machinesdb.Run, err error) {
	w.t.Helper()
	in.Offers = func(string) []runplan.Capability {
		return []runplan.Capability{runplan.CapPowerControl, runplan.CapRemoteExec}
	}
	err = w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		run, err = machines.StartRun(w.t.Context(), tx, in, actor)
		return err
	})
	return run, err
}

func (w *world) access(id string, a machines.Access) error {
	return w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := machines.SetAccess(w.t.Context(), tx, id, a, admin)
		return err
	})
}

// endUnstarted cancels the job of a run before it begins.
func (w *world) endUnstarted(run machinesdb.Run) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		job, err := tx.TransitionJob(w.t.Context(), run.JobID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		if err != nil {
			return err
		}
		return machines.EndUnstarted(w.t.Context(), tx, job, admin)
	}))
}

func reboot(request string) machines.Start {
	return machines.Start{RequestID: request, MachineID: "m-1", Type: lifecycle.RunTypeReboot}
}

// TestRegister_FindsMachines registers again by the id and by the MAC addresses.
func TestRegister_FindsMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	macs := []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}
	first, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{MACAddresses: macs, SSHEndpoint: "10.0.0.1:22"}})
	require.NoError(t, err)
	require.NoError(t, w.access("m-1", machines.Access{SiteID: dbtest.Site(t, w.store).ID, HostKey: dbtest.Key}))
	again, err := w.register(machines.Registration{Labels: map[string]string{"a": "b"}, Spec: spec.MachineSpec{MACAddresses: macs[:1], SSHEndpoint: "10.0.0.1:22"}})
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, dbtest.Key, again.HostKey)
	moved, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{MACAddresses: macs, SSHEndpoint: "10.0.0.2:22"}})
	require.NoError(t, err)
	require.Empty(t, moved.HostKey, "another machine may answer at another address")
	_, err = w.register(machines.Registration{ID: "m-2", Spec: spec.MachineSpec{MACAddresses: []string{"02:00:00:00:00:03"}}})
	require.NoError(t, err)
	for name, in := range map[string]machines.Registration{
		"of two machines":    {Spec: spec.MachineSpec{MACAddresses: []string{macs[0], "02:00:00:00:00:03"}}},
		"of another machine": {ID: "m-3", Spec: spec.MachineSpec{MACAddresses: macs[:1]}},
	} {
		_, err := w.register(in)
		require.Equal(t, intent.Conflict, intent.AsRefusal(err).Kind, name)
	}
	var audited int
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE resource_kind = 'machine' AND resource_id = 'm-1'").Scan(&audited))
	require.Equal(t, 4, audited, "created, access, two updates")
}

// A registration that states no project leaves the machine in its own.
func TestRegister_KeepsTheProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := dbtest.Project(t, w.store).ID
	_, err := w.register(machines.Registration{ID: "m-1", ProjectID: p})
	require.NoError(t, err)
	again, err := w.register(machines.Registration{ID: "m-1", Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	require.Equal(t, p, *again.ProjectID)
}

// TestStartRun_OneOperationForAMachineAndItsNode: whoever comes second is refused, by the machine
// or by the node.
func TestStartRun_OneOperationForAMachineAndItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	require.NoError(t, w.access("m-1", machines.Access{NodeID: node.ID}))
	job := dbtest.Job(t, w.store, dbtest.On(node.ID))
	_, err = w.start(reboot("a"))
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, job.ID, conflict.Existing)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	run, err := w.start(reboot("a"))
	require.NoError(t, err)
	require.ErrorAs(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.RequireNoLiveJob(t.Context(), node.ID) }), &conflict)
	require.Equal(t, run.JobID, conflict.Existing)
	_, err = w.start(reboot("b"))
	var refused *runplan.StartRefusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, run.ID, refused.Existing)
	require.Equal(t, intent.Conflict, intent.AsRefusal(w.access("m-1", machines.Access{})).Kind)
}

// TestStartRun_ProtectsTenants: nobody but its tenant touches the node of a tenant, and the tenant
// only reboots it.
func TestStartRun_ProtectsTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	require.NoError(t, w.access("m-1", machines.Access{NodeID: node.ID}))
	a := dbtest.Occupy(t, w.store, node.ID)
	for _, in := range []machines.Start{reboot("a"), {RequestID: "b", MachineID: "m-1", Type: lifecycle.RunTypeUpgrade}} {
		_, err := w.start(in)
		require.NotNil(t, intent.AsRefusal(err), "%v", err)
		require.Equal(t, intent.ActionRefused, intent.AsRefusal(err).Kind)
	}
	own := reboot("c")
	own.Project = a.ProjectID
	_, err = w.start(own)
	require.ErrorIs(t, err, db.ErrNotFound, "the machine is not of the project")
	_, err = w.register(machines.Registration{ID: "m-1", ProjectID: a.ProjectID, Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	_, err = w.start(own)
	require.NoError(t, err)
}

// A request of a run from before a machine came to its project shows that run to nobody else.
func TestStartRun_ReturnsNoRunOfAnotherProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(project string) error {
		_, err := w.register(machines.Registration{ID: "m-1", ProjectID: project, Spec: spec.MachineSpec{Provider: "any"}})
		return err
	}
	before, after := dbtest.Project(t, w.store).ID, dbtest.Project(t, w.store).ID
	require.NoError(t, register(before))
	in := reboot("a")
	in.Project = before
	first, err := w.start(in)
	require.NoError(t, err)
	again, err := w.start(in)
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, intent.Conflict, intent.AsRefusal(register(after)).Kind, "its run is active")
	w.endUnstarted(first)
	require.NoError(t, register(after))
	in.Project = after
	run, err := w.start(in)
	require.Equal(t, intent.Invalid, intent.AsRefusal(err).Kind)
	require.NotContains(t, err.Error(), first.ID)
	require.Empty(t, run.ID)
}

// TestEndUnstarted ends a run whose job was cancelled before it began.
func TestEndUnstarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any"}})
	require.NoError(t, err)
	run, err := w.start(reboot("a"))
	require.NoError(t, err)
	w.endUnstarted(run)
	ended, err := machinesdb.GetRun(t.Context(), w.store, run.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.RunCanceled, ended.Status)
	m, err := machinesdb.Get(t.Context(), w.store, "m-1")
	require.NoError(t, err)
	require.Equal(t, lifecycle.MachineMaintenance, m.Status)
}

// TestCreatePlan_NeverChangesAPlan refuses a used id, that of a default plan too, and stores
// nothing when the plan is only to be checked.
func TestCreatePlan_NeverChangesAPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	steps := []runplan.Step{{Name: "a", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}}
	create := func(id string, only bool) error {
		return w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := machines.CreatePlan(t.Context(), tx, runplan.Plan{ID: id, Steps: steps}, only, admin)
			return err
		})
	}
	find := func(id string) error { _, err := machines.FindPlan(context.Background(), w.store, id); return err }
	require.NoError(t, create("p-1", true))
	require.ErrorIs(t, find("p-1"), db.ErrNotFound)
	require.NoError(t, create("p-1", false))
	require.NoError(t, find("p-1"))
	require.Equal(t, intent.Conflict, intent.AsRefusal(create("p-1", false)).Kind)
	for _, id := range []string{"default-reboot-v1", "default-of-later"} {
		require.Equal(t, intent.Invalid, intent.AsRefusal(create(id, false)).Kind, id)
	}
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE plans SET steps = '[]'")
	require.Error(t, err)
	var invalid *spec.InvalidError
	steps = append(steps, steps[0])
	require.True(t, errors.As(create("p-2", false), &invalid), "two steps of one name")
}

// TestDefaultPlan_IsStoredAtItsFirstUse: from then on the stored plan holds, also where the program
// brings another one under its id.
func TestDefaultPlan_IsStoredAtItsFirstUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const id = "default-reboot-v1"
	_, err := w.register(machines.Registration{ID: "m-1", Spec: spec.MachineSpec{Provider: "any", TargetClusterRef: ""}})
	require.NoError(t, err)
	_, err = machinesdb.GetPlan(t.Context(), w.store, id)
	require.ErrorIs(t, err, db.ErrNotFound)
	brought, err := machines.FindPlan(t.Context(), w.store, id)
	require.NoError(t, err)
	run, err := w.start(reboot("a"))
	require.NoError(t, err)
	w.endUnstarted(run)
	stored, err := machinesdb.GetPlan(t.Context(), w.store, id)
	require.NoError(t, err)
	require.Equal(t, brought, stored, "the whole plan, and not what the machine made of it")

	older := stored // as an earlier version of the program brought it
	older.ID, older.Steps = "default-upgrade-v1", []runplan.Step{{Name: "older", SSH: &runplan.SSHCommand{Command: "true"}}}
	_, err = machinesdb.StoreDefaultPlan(t.Context(), w.store, older)
	require.NoError(t, err)
	run, err = w.start(machines.Start{RequestID: "b", MachineID: "m-1", Type: lifecycle.RunTypeUpgrade})
	require.NoError(t, err)
	require.Equal(t, []string{"older"}, names(run.Steps))
	var reported []string
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT array_agg(resource_id) FROM audit_log WHERE name = 'default_plan_differs'").Scan(&reported))
	require.Equal(t, []string{older.ID}, reported)
	page, more, err := machines.ListPlans(t.Context(), w.store, false, "", 100)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, page, len(lifecycle.RunTypes()), "each once")
	require.Contains(t, page, older)
}
