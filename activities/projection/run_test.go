package projection_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// newRunFixture is the running job of a run on a machine of a new project.
func newRunFixture(t *testing.T, ring *signing.Ring) (f *proofFixture, project string) {
	t.Helper()
	store, admin := ring.Store, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:anna"}
	project = dbtest.Project(t, store).ID
	var run machinesdb.Run
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		m, err := machines.Register(t.Context(), tx, machines.Registration{ProjectID: project, Spec: spec.MachineSpec{Provider: "fake"}}, admin)
		if err != nil {
			return err
		}
		run, err = machines.StartRun(t.Context(), tx, machines.Start{
			RequestID: "a", MachineID: m.ID, Type: lifecycle.RunTypeReboot, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		return err
	}))
	job, err := store.Job(t.Context(), run.JobID)
	require.NoError(t, err)
	f = newProofFixture(t, ring)
	f.job, f.seq = job, job.Seq
	f.seq++
	_, err = f.to.ProjectJob(t.Context(), f.runStep(lifecycle.JobRunning))
	require.NoError(t, err)
	return f, project
}

// runStep is a step of the job of a run.
func (f *proofFixture) runStep(status lifecycle.JobStatus, actions ...contract.ActionEntry) contract.Projection {
	return contract.Projection{
		JobID: f.job.ID, Kind: contract.KindMachineRun, RunID: "run", Seq: f.seq, Status: status, Actions: actions,
		Moves: []contract.Move{*contract.RunProgress{}.Move()},
	}
}

// cancelsOf returns the cancellations in the audit log of a project, and what they name.
func (f *proofFixture) cancelsOf(project string) (out []string) {
	f.Helper()
	rows, err := f.store.ResourceTimeline(f.Context(), lifecycle.Project.Resource, project, 0, 100)
	require.NoError(f, err)
	for _, r := range rows {
		var about struct{ Run, Machine string }
		require.NoError(f, json.Unmarshal(r.Metadata, &about))
		if r.Name == "cancel_run" {
			require.NotEmpty(f, about.Run)
			require.NotEmpty(f, about.Machine)
			out = append(out, r.Owner+" "+*r.ActorID+" "+*r.Comment)
		}
	}
	return out
}

// TestProjectJob_CancelIsInTheProject: the step that stores the cancellation of a run writes it
// into the audit log of the run's project too, for the actor who has asked for it.
func TestProjectJob_CancelIsInTheProject(t *testing.T) {
	t.Parallel()
	ring := newRing(t, dbtest.Store(t))
	ask := contract.ActionEntry{Action: lifecycle.ActionCancel, Actor: "user:ada", Reason: "wrong machine", Via: "update", Effect: lifecycle.EffectCancel}
	customer, refused, other := ask, ask, ask
	customer.Customer, refused.Effect, other.Action = true, lifecycle.EffectRefuse, lifecycle.ActionResume
	for name, c := range map[string]struct {
		ask    contract.ActionEntry
		forged bool
		want   []string
	}{
		"a customer":           {customer, false, []string{"customer user:ada wrong machine"}},
		"an operator":          {ask, false, []string{"admin user:ada wrong machine"}},
		"nobody that is known": {customer, true, []string{"engine engine wrong machine"}},
		"refused":              {refused, false, nil},
		"another action":       {other, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, project := newRunFixture(t, ring)
			e := c.ask
			if !c.forged {
				e = f.signed(e)
			}
			f.seq++
			for range 2 { // a repeated step writes nothing again
				_, err := f.to.ProjectJob(t.Context(), f.runStep(lifecycle.JobCompensating, e))
				require.NoError(t, err)
			}
			require.Equal(t, c.want, f.cancelsOf(project))
			rows, err := f.store.ResourceTimeline(t.Context(), "job", f.job.ID, 0, 1)
			require.NoError(t, err)
			if c.want != nil {
				require.Equal(t, c.want[0], rows[0].Owner+" "+*rows[0].ActorID+" "+*rows[0].Comment, "the job says the same")
			}
		})
	}
}

// TestProjectJob_CancelNeedsItsAudit has the audit log of the project refuse a cancellation: the
// job has not taken it either.
func TestProjectJob_CancelNeedsItsAudit(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	f, project := newRunFixture(t, newRing(t, dbtest.Open(t, dsn)))
	_, err := dbtest.Owner(t, dsn).Exec(t.Context(), "ALTER TABLE audit_log ADD CONSTRAINT no_cancel CHECK (name <> 'cancel_run') NOT VALID")
	require.NoError(t, err)
	e := f.signed(contract.ActionEntry{Action: lifecycle.ActionCancel, Actor: "user:ada", Customer: true, Reason: "wrong machine", Via: "update", Effect: lifecycle.EffectCancel})
	f.seq++
	_, err = f.to.ProjectJob(t.Context(), f.runStep(lifecycle.JobCompensating, e))
	require.Error(t, err)
	require.Empty(t, f.cancelsOf(project))
	job, err := f.store.Job(t.Context(), f.job.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobRunning, job.Status)
}
