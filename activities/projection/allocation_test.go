package projection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var customer = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "anna"}

// tenancy is an allocation on a node, with the job that works on it.
type tenancy struct {
	t     *testing.T
	store *db.Store
	id    string
	node  db.Node
	tries int // of the stage
	job   db.Job
	seq   int64
}

// provisioned has claimed a node for an allocation, as the intent and the first stage do.
func provisioned(t *testing.T) *tenancy {
	t.Helper()
	w := &tenancy{t: t, store: dbtest.Store(t)}
	sku := dbtest.SKU(t, w.store)
	w.node = dbtest.FreeNode(t, w.store, dbtest.Of(sku.ID))
	project := dbtest.Project(t, w.store)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		a, err := allocationdb.Create(t.Context(), tx, allocationdb.New{
			ProjectID: project.ID, SKUID: sku.ID, RequestedBy: "anna", Actor: customer,
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		w.id = a.ID
		w.job, err = tx.CreateJob(t.Context(), db.NewJob{
			Kind: string(contract.KindAllocationProvision), ResourceKind: allocationdb.Resource, ResourceID: a.ID, Actor: customer,
		})
		return err
	}))
	acts := &allocationact.Activities{Store: w.store, Poll: time.Millisecond}
	f, err := acts.ClaimNode(t.Context(), w.ref())
	require.NoError(t, err)
	require.Equal(t, w.node.ID, f.NodeID)
	require.True(t, f.TenantRoot)
	again, err := acts.ClaimNode(t.Context(), w.ref())
	require.NoError(t, err)
	require.Equal(t, f, again, "a claim whose answer was lost finds its node")
	w.job.NodeID = &w.node.ID
	return w
}

// TestClaimNode_HoldsNoSlot: requests that wait for a node look once each and say when they look
// again; no attempt of theirs lasts longer than its look.
func TestClaimNode_HoldsNoSlot(t *testing.T) {
	t.Parallel()
	w := provisioned(t) // has the one node
	a, err := allocationdb.Get(t.Context(), w.store, w.id)
	require.NoError(t, err)
	acts := &allocationact.Activities{Store: w.store}
	waiting := func(until time.Time) contract.AllocationRef {
		var b allocationdb.Allocation
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			b, err = allocationdb.Create(t.Context(), tx, allocationdb.New{ProjectID: a.ProjectID, SKUID: a.SKUID, RequestedBy: "anna", Actor: customer, QueueDeadline: &until})
			return err
		}))
		return contract.AllocationRef{JobRef: contract.JobRef{JobID: "job_1"}, AllocationID: b.ID}
	}
	delays := map[time.Duration]bool{}
	for range 20 {
		_, err := acts.ClaimNode(t.Context(), waiting(time.Now().Add(24*time.Hour)))
		var again *temporal.ApplicationError
		require.ErrorAs(t, err, &again)
		require.False(t, again.NonRetryable())
		require.GreaterOrEqual(t, again.NextRetryDelay(), 3*time.Second)
		require.LessOrEqual(t, again.NextRetryDelay(), time.Minute)
		delays[again.NextRetryDelay()] = true
	}
	require.Greater(t, len(delays), 1, "they do not all look at one moment")
	_, err = acts.ClaimNode(t.Context(), waiting(time.Now().Add(-time.Minute)))
	var late *temporal.ApplicationError
	require.ErrorAs(t, err, &late)
	require.True(t, late.NonRetryable(), "its deadline is over")
	require.Equal(t, string(lifecycle.FailCapacity), late.Type())
}

func (w *tenancy) ref() contract.AllocationRef {
	return contract.AllocationRef{JobRef: contract.JobRef{JobID: w.job.ID, NodeID: w.node.ID}, AllocationID: w.id}
}

// project stores a step of the job with a move of the allocation.
func (w *tenancy) project(status lifecycle.JobStatus, m *contract.AllocationMove) error {
	w.t.Helper()
	w.seq++
	p := contract.Projection{
		JobID: w.job.ID, Kind: contract.JobKind(w.job.Kind), NodeID: w.node.ID, Seq: w.seq, RunID: "run", Status: status, Stage: "stage", Attempt: w.tries,
	}
	if m != nil {
		p.Moves = []contract.Move{*m.Move(w.id)}
	}
	if status.Parked() {
		p.Failure = &contract.Failure{Class: lifecycle.FailScrubUnverified, Stage: "stage", Message: "sda"}
	}
	res, err := projection.NewDatabase(w.store).ProjectJob(w.t.Context(), p)
	if err == nil {
		require.True(w.t, res.Applied)
		again, err := projection.NewDatabase(w.store).ProjectJob(w.t.Context(), p)
		require.NoError(w.t, err)
		require.True(w.t, again.Applied, "a repeated step is done")
	}
	return err
}

func (w *tenancy) allocation() allocationdb.Allocation {
	w.t.Helper()
	a, err := allocationdb.Get(w.t.Context(), w.store, w.id)
	require.NoError(w.t, err)
	return a
}

// release asks for the end of the allocation, as the tenant does.
func (w *tenancy) release(reason string) (r allocation.Released) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) (err error) {
		r, err = allocation.Release(w.t.Context(), tx, w.id, reason, customer)
		return err
	}))
	return r
}

// beginRelease is release by a tenant who is done; the steps that follow are those of the release.
func (w *tenancy) beginRelease() { w.t.Helper(); w.job, w.seq = *w.release("done").Job, 0 }

// freed reports whether nobody occupies the node, and whether it may hold something of a tenant.
func (w *tenancy) freed() (free, dirty bool) {
	w.t.Helper()
	n, err := w.store.Node(w.t.Context(), w.node.ID)
	require.NoError(w.t, err)
	return n.AllocationID == nil, n.TenantLeftAt != nil
}

// TestProvision_EndsAsTheTenantsAccessSays: what is stored decides, whatever the job believes.
func TestProvision_EndsAsTheTenantsAccessSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		access, asked, clean bool
		want                 lifecycle.AllocationStatus
		message              string
	}{
		"nothing of the tenant":            {clean: true, want: lifecycle.AllocationFailed, message: "node_task_failed at prove_login"},
		"an account may be left":           {want: lifecycle.AllocationReleasing},
		"keys were on it, the job forgot":  {access: true, clean: true, want: lifecycle.AllocationReleasing},
		"the tenant gave it back unused":   {asked: true, clean: true, want: lifecycle.AllocationReleased},
		"given back with an account on it": {asked: true, want: lifecycle.AllocationReleasing},
		"given back with keys on it":       {asked: true, access: true, clean: true, want: lifecycle.AllocationReleasing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := provisioned(t)
			require.NoError(t, w.project(lifecycle.JobRunning, nil))
			if c.access {
				_, err := (&allocationact.Activities{Store: w.store}).GiveAccess(t.Context(), w.ref())
				require.NoError(t, err)
			}
			if c.asked {
				w.release("enough")
			}
			require.NoError(t, w.project(lifecycle.JobCompensating, nil))
			move := &contract.AllocationMove{To: lifecycle.AllocationFailed, Clean: c.clean, FailureClass: lifecycle.FailNodeTask, FailureStage: "prove_login"}
			require.NoError(t, w.project(lifecycle.JobCancelled, move))
			require.Equal(t, c.want, w.allocation().Status)
			free, dirty := w.freed()
			require.False(t, dirty)
			require.Equal(t, lifecycle.Allocation.Terminal(c.want), free)
			next, err := w.store.LiveJobOfResource(t.Context(), allocationdb.Resource, w.id)
			if free {
				require.ErrorIs(t, err, db.ErrNotFound)
				require.Equal(t, c.message, w.allocation().FailureMessage, "a tenant reads nothing of the node")
				return
			}
			require.NoError(t, err)
			require.Equal(t, string(contract.KindAllocationRelease), next.Kind)
			require.Equal(t, w.node.ID, *next.NodeID, "the release has the node at once")
			require.Equal(t, c.asked, w.allocation().FailureCode == "", "a tenant who gave the node back met no failure")
		})
	}
}

// completed gives the tenant access, lets others act and completes the provision.
func (w *tenancy) completed(meanwhile func()) {
	w.t.Helper()
	require.NoError(w.t, w.project(lifecycle.JobRunning, nil))
	done := &contract.AllocationMove{
		To: lifecycle.AllocationActive, Connection: &contract.AllocationConnection{Host: "127.0.0.1", Port: 22, User: "t"}, Image: &contract.AllocationImage{ID: "i", Name: "i"},
	}
	_, err := (&allocationact.Activities{Store: w.store}).GiveAccess(w.t.Context(), w.ref())
	require.NoError(w.t, err)
	meanwhile()
	require.NoError(w.t, w.project(lifecycle.JobCompleted, done))
}

// active gives the tenant access and completes the provision.
func (w *tenancy) active() {
	w.t.Helper()
	w.completed(func() {})
	require.NotNil(w.t, w.allocation().StartTime)
}

// TestProvision_ReleasedBeforeItsLastStep: the last stage has looked, and then the tenant gives the
// node back.
func TestProvision_ReleasedBeforeItsLastStep(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.completed(func() {
		w.release("enough")
	})
	got := w.allocation()
	require.Equal(t, lifecycle.AllocationReleasing, got.Status)
	require.Equal(t, "enough", got.ReleaseReason)
	require.Equal(t, got.AccessGivenAt, got.StartTime, "he had access, so the least charge applies")
	next, err := w.store.LiveJobOfResource(t.Context(), allocationdb.Resource, w.id)
	require.NoError(t, err)
	require.Equal(t, []string{string(contract.KindAllocationRelease), w.node.ID}, []string{next.Kind, *next.NodeID})
}

// liveJob returns the live job of the allocation, "" where it has none.
func (w *tenancy) liveJob() string {
	w.t.Helper()
	job, err := w.store.LiveJobOfResource(w.t.Context(), allocationdb.Resource, w.id)
	if errors.Is(err, db.ErrNotFound) {
		return ""
	}
	require.NoError(w.t, err)
	w.job, w.seq = job, 0
	return job.Kind
}

// endKey withdraws the key of the allocation, as the end of its SSH key does.
func (w *tenancy) endKey() {
	w.t.Helper()
	_, err := w.store.DBTX().Exec(w.t.Context(), "UPDATE allocation_keys SET withdrawn_at = now(), tried_at = NULL, refused_at = NULL")
	require.NoError(w.t, err)
}

// TestProvision_KeyEndsBeforeItsLastStep: the key went onto the node and ended before the
// allocation was active, so that a job takes it off with the very step.
func TestProvision_KeyEndsBeforeItsLastStep(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.completed(w.endKey)
	require.Equal(t, lifecycle.AllocationActive, w.allocation().Status)
	require.Equal(t, string(contract.KindAllocationKeys), w.liveJob())
	require.Equal(t, w.node.ID, *w.job.NodeID)
}

// TestKeys_EndOfTheJob: the project is told what was proven, once. The work that the job kept
// waiting begins with its last step: a release, or another change of keys.
func TestKeys_EndOfTheJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(*tenancy)
		proven    bool
		next      string
	}{
		"proven": {meanwhile: func(w *tenancy) {
			require.NoError(t, allocationdb.RecordKey(t.Context(), w.store, w.id, dbtest.KeyFingerprint, false))
		}, proven: true},
		"not proven": {meanwhile: func(*tenancy) {}},
		"the keys changed again": {meanwhile: func(w *tenancy) {
			require.NoError(t, allocationdb.RecordKey(t.Context(), w.store, w.id, dbtest.KeyFingerprint, false))
			w.endKey()
		}, proven: true, next: string(contract.KindAllocationKeys)},
		"the tenant gave the node back": {meanwhile: func(w *tenancy) {
			require.Equal(t, lifecycle.ActionCancel, w.release("enough").Action)
		}, next: string(contract.KindAllocationRelease)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := provisioned(t)
			w.completed(w.endKey)
			require.Equal(t, string(contract.KindAllocationKeys), w.liveJob())
			require.NoError(t, w.project(lifecycle.JobRunning, nil))
			c.meanwhile(w)
			if c.proven {
				require.NoError(t, w.project(lifecycle.JobCompleted, &contract.AllocationMove{KeysProven: true}))
			} else {
				require.NoError(t, w.project(lifecycle.JobCompensating, nil))
				require.NoError(t, w.project(lifecycle.JobCancelled, &contract.AllocationMove{}))
			}
			require.Equal(t, c.next, w.liveJob())
			var told int
			require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'allocation.keys_changed' AND event_project IS NOT NULL").Scan(&told))
			require.Equal(t, map[bool]int{true: 1}[c.proven], told)
		})
	}
}

// TestKeys_AnotherConnectionIsTold: the node accepted the keys at another address than the project
// knows. Its members read the new one, and an event says so, once.
func TestKeys_AnotherConnectionIsTold(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.completed(w.endKey)
	require.Equal(t, string(contract.KindAllocationKeys), w.liveJob())
	before := *w.allocation().Connection
	now := contract.AllocationConnection(before)
	now.Host = "127.0.0.77"
	require.NoError(t, w.project(lifecycle.JobRunning, nil))
	require.NoError(t, allocationdb.RecordKey(t.Context(), w.store, w.id, dbtest.KeyFingerprint, false))
	require.NoError(t, w.project(lifecycle.JobCompleted, &contract.AllocationMove{KeysProven: true, Connection: &now}))
	after := *w.allocation().Connection
	require.Equal(t, "127.0.0.77", after.Host)
	require.True(t, after.Since.After(before.Since))
	var told int
	require.NoError(t, w.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'allocation.connection_changed' AND event_project IS NOT NULL").Scan(&told))
	require.Equal(t, 1, told)
}

// TestTakeNode_OfAnotherJob: the wait for the node has an end that the tenant's access shows, and a
// node that the allocation has let go of meanwhile is not taken.
func TestTakeNode_OfAnotherJob(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.active()
	other := dbtest.Job(t, w.store, dbtest.On(w.node.ID))
	w.beginRelease()
	acts := &allocationact.Activities{Store: w.store, Poll: time.Millisecond, RevokeDeadline: 20 * time.Millisecond}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment() // it sends heartbeats while it waits
	env.RegisterActivity(acts)
	_, err := env.ExecuteActivity(acts.TakeNode, w.ref())
	require.ErrorContains(t, err, "another job has the node")
	require.Equal(t, lifecycle.AccessUnconfirmed, w.allocation().Access)
	job, err := w.store.Job(t.Context(), w.job.ID)
	require.NoError(t, err)
	require.Nil(t, job.NodeID)
	require.NotEqual(t, other.ID, job.ID)

	acts.RevokeDeadline = time.Hour
	go func() {
		<-time.After(20 * time.Millisecond) // either order is right: mostly it waits already
		_, _ = dbtest.EndTenancyOf(context.WithoutCancel(t.Context()), w.store, w.id)
	}()
	answer, err := env.ExecuteActivity(acts.TakeNode, w.ref())
	require.NoError(t, err)
	var f contract.AllocationFacts
	require.NoError(t, answer.Get(&f))
	require.Empty(t, f.NodeID, "it is not its own any more")
	require.Equal(t, lifecycle.AllocationReleased, f.Status)
}

// TestRelease_FollowsItsJob: parked is release_failed, going on is releasing, and the node is free
// with the step that completes the job, once the access is proven to have ended.
func TestRelease_FollowsItsJob(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.active()
	w.beginRelease()
	acts := &allocationact.Activities{Store: w.store, Poll: time.Millisecond}
	_, err := acts.TakeNode(t.Context(), w.ref())
	require.NoError(t, err)
	releasing := func() *contract.AllocationMove { return &contract.AllocationMove{To: lifecycle.AllocationReleasing} }
	require.NoError(t, w.project(lifecycle.JobRunning, releasing()))
	_, err = acts.StopUsage(t.Context(), w.ref())
	require.ErrorContains(t, err, "nothing proves")
	_, err = acts.EndAccess(t.Context(), allocationact.EndAccessIn{AllocationRef: w.ref(), Access: lifecycle.AccessUnconfirmed})
	require.NoError(t, err)

	w.tries = 5
	failed := &contract.AllocationMove{To: lifecycle.AllocationReleaseFailed, FailureClass: lifecycle.FailScrubUnverified, FailureStage: "certify"}
	require.NoError(t, w.project(lifecycle.JobFailedManual, failed))
	require.Equal(t, lifecycle.AllocationReleaseFailed, w.allocation().Status)
	require.Equal(t, 5, w.allocation().ReleaseAttempts)
	require.Equal(t, lifecycle.AccessUnconfirmed, w.allocation().Access)

	again := w.release("again")
	require.Equal(t, w.job.ID, again.Job.ID, "one more attempt of the same job")
	require.Equal(t, lifecycle.ActionRetryStage, again.Action)
	require.NoError(t, w.project(lifecycle.JobRunning, releasing()))
	ended := func(certificate string) *contract.AllocationMove {
		return &contract.AllocationMove{To: lifecycle.AllocationReleased, CertificateID: certificate}
	}
	require.Error(t, w.project(lifecycle.JobCompleted, ended("")), "the access is not proven to have ended")
	require.Equal(t, lifecycle.AllocationReleasing, w.allocation().Status)

	f, err := acts.EndAccess(t.Context(), allocationact.EndAccessIn{AllocationRef: w.ref(), Access: lifecycle.AccessRevoked, Proof: "the BMC reads it off"})
	require.NoError(t, err)
	require.Equal(t, "access revoked: the BMC reads it off", f.Note)
	_, err = acts.StopUsage(t.Context(), w.ref())
	require.NoError(t, err)
	certificate := dbtest.Certificate(t, w.store, w.node.ID, "clean", time.Now().Add(time.Minute))
	require.NoError(t, w.project(lifecycle.JobCompleted, ended(certificate)))
	require.Equal(t, lifecycle.AllocationReleased, w.allocation().Status)
	free, dirty := w.freed()
	require.True(t, free)
	require.False(t, dirty)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.RequireNoLiveJob(t.Context(), w.node.ID) }), "the next tenant's job finds no other")
}

// TestRelease_OutOfTimeIsUnconfirmed: a release that parks because nothing proves the end of the
// access says so of the access, although its stage had no time left to.
func TestRelease_OutOfTimeIsUnconfirmed(t *testing.T) {
	t.Parallel()
	for class, want := range map[lifecycle.FailureClass]string{lifecycle.FailAccessUnconfirmed: lifecycle.AccessUnconfirmed, lifecycle.FailMAASUnavailable: ""} {
		w := provisioned(t)
		w.active()
		w.beginRelease()
		require.NoError(t, w.project(lifecycle.JobRunning, nil))
		require.NoError(t, w.project(lifecycle.JobFailedManual, &contract.AllocationMove{To: lifecycle.AllocationReleaseFailed, FailureClass: class}))
		require.Equal(t, want, w.allocation().Access)
	}
}

// TestRelease_WithoutCertificate: an end without a proof leaves a node that must be sanitized.
func TestRelease_WithoutCertificate(t *testing.T) {
	t.Parallel()
	w := provisioned(t)
	w.active()
	w.beginRelease()
	require.NoError(t, w.project(lifecycle.JobRunning, nil))
	_, err := (&allocationact.Activities{Store: w.store}).EndAccess(t.Context(), allocationact.EndAccessIn{AllocationRef: w.ref(), Access: lifecycle.AccessRevoked})
	require.NoError(t, err)
	require.NoError(t, w.project(lifecycle.JobCompleted, &contract.AllocationMove{To: lifecycle.AllocationReleased}))
	free, dirty := w.freed()
	require.True(t, free)
	require.True(t, dirty, "nobody claims it before it is clean")
}
