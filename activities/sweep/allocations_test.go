package sweep_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var byTenant = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "anna"}

// occupied is an active allocation of a node of its own.
func (w *world) occupied() allocationdb.Allocation {
	w.t.Helper()
	return dbtest.Occupy(w.t, w.Store, dbtest.Node(w.t, w.Store, dbtest.Active()).ID)
}

// provisioned has claimed a node, with a running provision whose start was sent.
func (w *world) provisioned() (allocationdb.Allocation, db.Job) {
	w.t.Helper()
	sku := dbtest.SKU(w.t, w.Store)
	dbtest.FreeNode(w.t, w.Store, dbtest.Of(sku.ID))
	project := dbtest.Project(w.t, w.Store)
	var a allocationdb.Allocation
	var job db.Job
	require.NoError(w.t, w.Store.Tx(w.t.Context(), func(tx *db.Tx) error {
		if _, _, err := dbtest.ProjectKey(w.t.Context(), tx, project.ID); err != nil {
			return err
		}
		created, err := allocationdb.Create(w.t.Context(), tx, allocationdb.New{
			ProjectID: project.ID, SKUID: sku.ID, RequestedBy: "anna", Actor: byTenant,
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		job, err = tx.CreateJob(w.t.Context(), db.NewJob{
			Kind: string(contract.KindAllocationProvision), ResourceKind: allocationdb.Resource, ResourceID: created.ID, Actor: byTenant,
		})
		if err != nil {
			return err
		}
		var claimed bool
		a, claimed, err = allocationdb.Claim(w.t.Context(), tx, created.ID, db.Actor{Owner: lifecycle.OwnerJob})
		require.True(w.t, claimed)
		return err
	}))
	w.begin(job.ID)
	return a, job
}

// begin has the start of a job sent, and the job running.
func (w *world) begin(jobID string) {
	w.t.Helper()
	require.NoError(w.t, w.Store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(w.t.Context(), jobID, lifecycle.JobStart, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	rows, err := w.Store.ClaimOutbox(w.t.Context(), "test", 100, time.Minute)
	require.NoError(w.t, err)
	for _, r := range rows {
		require.NoError(w.t, w.Store.CompleteOutbox(w.t.Context(), r.ID))
	}
}

func (w *world) allocation(id string) allocationdb.Allocation {
	w.t.Helper()
	a, err := allocationdb.Get(w.t.Context(), w.Store, id)
	require.NoError(w.t, err)
	return a
}

func (w *world) sql(statement string, args ...any) {
	w.t.Helper()
	_, err := w.Store.DBTX().Exec(w.t.Context(), statement, args...)
	require.NoError(w.t, err)
}

// TestKeys_ThatHaveEnded: a pass finds keys whose SSH key is gone, and starts the jobs that another
// job kept from being started.
func TestKeys_ThatHaveEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, stays := w.occupied(), w.occupied(), w.occupied()
	for _, each := range []allocationdb.Allocation{a, b, stays} {
		require.NoError(t, w.Store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: *each.NodeID, BootID: "boot-1", Generation: 1, ReceivedAt: time.Now()}}))
	}
	other := dbtest.Job(t, w.Store, dbtest.On(*b.NodeID))
	w.begin(other.ID)
	w.sql("DELETE FROM project_ssh_keys WHERE project_id = $1", a.ProjectID)
	w.sql("UPDATE allocation_keys SET withdrawn_at = NULL WHERE allocation_id = $1", a.ID) // as one whose allocation was written at that moment
	w.sql("DELETE FROM project_ssh_keys WHERE project_id = $1", b.ProjectID)
	r, err := w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{a.ID}, r.KeyJobs)
	require.NoError(t, w.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), other.ID, lifecycle.JobComplete, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	r, err = w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{b.ID}, r.KeyJobs)
	r, err = w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.KeyJobs, "each has its job")
}

// TestAllocations_ThatAreDueOrLackAJob: an expiry ends an allocation, and one whose job was lost
// goes on.
func TestAllocations_ThatAreDueOrLackAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stays, due := w.occupied(), w.occupied()
	asked, _ := w.provisioned()
	lacks, job := w.provisioned()
	w.sql("UPDATE allocations SET expires_at = now() + interval '1 hour' WHERE id = $1", stays.ID)
	w.sql("UPDATE allocations SET expires_at = now() - interval '1 second' WHERE id IN ($1, $2)", due.ID, asked.ID)
	for _, next := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobCompensate, lifecycle.JobCancel} {
		require.NoError(t, w.Store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionJob(t.Context(), job.ID, next, nil, db.Actor{Owner: lifecycle.OwnerSystem})
			return err
		}))
	}
	r, err := w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, r.Expired)
	require.Empty(t, r.Continued, "its job may be about to be written")
	w.sql("UPDATE allocations SET updated_at = updated_at - interval '1 minute'")
	r, err = w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Expired, "each is asked once")
	require.Equal(t, []string{lacks.ID}, r.Continued)

	require.Equal(t, lifecycle.AllocationActive, w.allocation(stays.ID).Status)
	require.NotNil(t, w.allocation(asked.ID).ReleaseRequestedAt)
	for _, id := range []string{due.ID, lacks.ID} {
		require.Equal(t, lifecycle.AllocationReleasing, w.allocation(id).Status)
		next, err := w.Store.LiveJobOfResource(t.Context(), allocationdb.Resource, id)
		require.NoError(t, err)
		require.Equal(t, string(contract.KindAllocationRelease), next.Kind)
	}
	require.Equal(t, lifecycle.ReleaseExpired, w.allocation(due.ID).ReleaseReason)
}

// TestLostJobs_OfAllocations: a release has failed, and an operator resumes it. A provision ends,
// and its node is cleaned.
func TestLostJobs_OfAllocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.occupied()
	var release db.Job
	require.NoError(t, w.Store.Tx(t.Context(), func(tx *db.Tx) error {
		r, err := allocation.Release(t.Context(), tx, a.ID, "done", byTenant)
		release = *r.Job
		return err
	}))
	w.begin(release.ID)
	b, provision := w.provisioned()
	w.runs(provision.WorkflowID, temporalx.Execution{})
	require.Equal(t, []string{release.ID}, w.sweep(20*time.Second).Lost)
	require.Equal(t, lifecycle.AllocationReleaseFailed, w.allocation(a.ID).Status)
	require.Equal(t, lifecycle.JobFailedRetryable, w.read(release.ID).Status)
	require.Equal(t, lifecycle.AllocationProvisioning, w.allocation(b.ID).Status)

	w.ended(provision.WorkflowID, 0)
	require.Equal(t, []string{provision.ID}, w.sweep(20*time.Second).Lost)
	require.Equal(t, lifecycle.JobCancelled, w.read(provision.ID).Status)
	require.Equal(t, lifecycle.AllocationReleasing, w.allocation(b.ID).Status)
	next, err := w.Store.LiveJobOfResource(t.Context(), allocationdb.Resource, b.ID)
	require.NoError(t, err)
	require.Equal(t, []string{string(contract.KindAllocationRelease), *b.NodeID}, []string{next.Kind, *next.NodeID})
	require.Equal(t, []string{db.AttentionParkedJob}, w.kinds(), "the release alone needs an operator")
}

// TestPrune_Allocations deletes what a customer wrote in an allocation that ended long ago, with
// its keys; usage, certificate and transitions still know it.
func TestPrune_Allocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, late, live := w.occupied(), w.occupied(), w.occupied()
	w.sql("UPDATE allocations SET name = 'secret-name', tags = '{\"team\": \"a\"}', image = '{\"id\": \"x\"}', network = '{}'")
	for _, id := range []string{old.ID, late.ID} {
		dbtest.EndTenancy(t, w.Store, id)
	}
	w.sql("INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key) SELECT project_id, id, 'SHA256:x', 'ssh-ed25519 x' FROM allocations")
	w.sql("UPDATE allocations SET released_at = now() - CASE id WHEN $1 THEN interval '91 days' ELSE interval '89 days' END WHERE id <> $2", old.ID, live.ID)
	keys := func(id string) int {
		list, err := allocationdb.ListKeys(t.Context(), w.Store, id)
		require.NoError(t, err)
		return len(list)
	}
	w.Keep.Allocations = 90 * 24 * time.Hour
	w.Ahead = func() time.Duration { return 48 * time.Hour } // a clock that is ahead alone
	for range 2 {
		require.NoError(t, w.SweepDone(t.Context(), sweep.Outcome{}))
		gone := w.allocation(old.ID)
		require.NotNil(t, gone.PrunedAt)
		require.Equal(t, []any{"", 0, 0}, []any{gone.Name, len(gone.Tags), keys(old.ID)})
		require.Nil(t, gone.Image)
		require.Equal(t, []any{old.NodeID, lifecycle.AllocationReleased}, []any{gone.NodeID, gone.Status})
		for _, id := range []string{late.ID, live.ID} {
			require.Equal(t, "secret-name", w.allocation(id).Name)
			require.NotZero(t, keys(id))
			require.NotNil(t, w.allocation(id).Image)
		}
	}
	audit, err := w.Store.ResourceTimeline(t.Context(), allocationdb.Resource, old.ID, 0, 100)
	require.NoError(t, err)
	require.NotEmpty(t, audit)
}
