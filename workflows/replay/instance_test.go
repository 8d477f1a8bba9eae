package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// instanceJobs are the jobs that make an instance and delete it.
func instanceJobs() []scriptedJob {
	made := contract.InstanceFacts{Status: lifecycle.InstanceBooting, Provider: "mock", Zone: "mock-1", ServerID: "mock-server-1", GrowsVolume: true, Done: true}
	ended := made
	ended.Status = lifecycle.InstanceTerminated
	return []scriptedJob{
		{
			kind: contract.KindInstanceCreate, last: "CheckHealth", start: startInstance,
			asks: [3]counts{{Activities: 18, Local: 20, Timers: 17, Upserts: 11}, {Activities: 19, Local: 23, Timers: 18, Upserts: 13, Updates: 1},
				{Activities: 22, Local: 22, Timers: 16, Upserts: 13, Updates: 1}},
			answers: answers{"CheckCloud": made, "CreateServer": made, "InstallWorker": contract.InstancePhases{Done: true, Phases: lifecycle.WorkerPhases()}},
		},
		{
			kind: contract.KindInstanceTerminate, last: "ProveDeleted", start: startTermination,
			asks: [3]counts{{Activities: 6, Local: 9, Timers: 6, Upserts: 3}, {Activities: 7, Local: 12, Timers: 7, Upserts: 5, Updates: 1},
				{Activities: 7, Local: 11, Timers: 6, Upserts: 5, Updates: 1}},
			answers: answers{"LoadInstance": ended},
		},
	}
}

func makeInstance(t *testing.T, p *play, then func(tx *db.Tx, i instancedb.Instance, job db.Job) error) {
	t.Helper()
	project := dbtest.Project(t, p.rig.Store)
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		i, job, err := instance.Make(t.Context(), tx, instance.Create{
			ProjectID: project.ID, Offers: []instance.Offer{{Provider: "mock", Zones: []string{"mock-1"}}},
			InstanceSpec: spec.InstanceSpec{Name: "one", Provider: "mock", Zone: "mock-1", Type: "MOCK-GPU", Model: "m"},
		}, admin)
		if err != nil {
			return err
		}
		return then(tx, i, job)
	}))
}

func startInstance(t *testing.T, p *play, _ answers) {
	t.Helper()
	makeInstance(t, p, func(tx *db.Tx, i instancedb.Instance, job db.Job) error {
		p.job = job.ID
		_, err := instancedb.MoveTo(t.Context(), tx, i, instancedb.Move{To: lifecycle.InstanceBoot, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "test"}})
		return err
	})
	p.started(t, contract.JobWorkflowID(contract.KindInstanceCreate, p.job))
}

// startTermination ends an instance whose creation was given up.
func startTermination(t *testing.T, p *play, _ answers) {
	t.Helper()
	makeInstance(t, p, func(tx *db.Tx, i instancedb.Instance, job db.Job) error {
		if _, err := tx.TransitionJob(t.Context(), job.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
			return err
		}
		if err := instance.EndUnstarted(t.Context(), tx, job, admin); err != nil {
			return err
		}
		r, err := instance.Terminate(t.Context(), tx, i.ID, "test", admin)
		if err == nil {
			p.job = r.Job.ID
		}
		return err
	})
	p.started(t, contract.JobWorkflowID(contract.KindInstanceTerminate, p.job))
}
