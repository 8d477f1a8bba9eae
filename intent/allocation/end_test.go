package allocation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestRelease_FromEveryStatus releases twice and reads the job and what it is asked.
func TestRelease_FromEveryStatus(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	twice := func(id string) allocation.Released {
		t.Helper()
		first := m.release(id)
		again := m.release(id)
		require.Equal(t, first.Allocation.Status, again.Allocation.Status)
		if first.Job != nil {
			require.Equal(t, first.Job.ID, again.Job.ID, "never a second job")
		}
		return first
	}
	r := m.request()
	r.WaitSeconds = 60
	requested := twice(m.create(r).Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleased, requested.Allocation.Status)
	require.Equal(t, lifecycle.OutcomeCancelled, requested.Allocation.Outcome)
	require.Equal(t, lifecycle.ActionCancel, requested.Action, "its job is asked to end")

	m.freeNode()
	a := m.create(m.request())
	stopping := twice(a.Allocation.ID)
	require.Equal(t, lifecycle.AllocationProvisioning, stopping.Allocation.Status, "until the next safe point")
	require.NotNil(t, stopping.Allocation.ReleaseRequestedAt)
	require.Equal(t, []string{a.Job.ID, string(lifecycle.ActionCancel)}, []string{stopping.Job.ID, string(stopping.Action)})
	m.endJob(a.Job.ID)
	m.tx(func(tx *db.Tx) error {
		c, err := allocation.Continue(t.Context(), tx, a.Allocation.ID)
		require.Equal(t, lifecycle.AllocationReleasing, c.Allocation.Status)
		require.Equal(t, "allocation_release", c.Job.Kind)
		require.Equal(t, *a.Allocation.NodeID, *c.Job.NodeID)
		return err
	})

	b := m.active()
	releasing := twice(b.Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleasing, releasing.Allocation.Status)
	require.Equal(t, []string{"allocation_release", *b.Allocation.NodeID}, []string{releasing.Job.Kind, *releasing.Job.NodeID})
	require.Empty(t, releasing.Action)
	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: b.Allocation.ID, To: lifecycle.AllocationFailRelease, Actor: engine})
		return err
	})
	retried := twice(b.Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleaseFailed, retried.Allocation.Status, "until its job goes on")
	require.Equal(t, []string{releasing.Job.ID, string(lifecycle.ActionRetryStage)}, []string{retried.Job.ID, string(retried.Action)})
	m.tx(func(tx *db.Tx) error {
		forced, err := allocation.ForceRelease(t.Context(), tx, b.Allocation.ID, "again", admin)
		require.Equal(t, releasing.Job.ID, forced.Job.ID)
		return err
	})
	m.endJob(releasing.Job.ID)
	next := m.release(b.Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleasing, next.Allocation.Status, "a job of its own goes on at once")
	require.NotEqual(t, releasing.Job.ID, next.Job.ID)
	ended := m.active()
	err := m.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := allocation.ForceRelease(t.Context(), tx, ended.Allocation.ID, "x", admin)
		return err
	})
	require.ErrorContains(t, err, "force-release is for one whose release failed")
}

// TestRelease_WhileAnotherJobHasTheNode is accepted: its job gets the node later.
func TestRelease_WhileAnotherJobHasTheNode(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.active()
	dbtest.Job(t, m.store, dbtest.On(*a.Allocation.NodeID), dbtest.Kind("decommission"))
	r := m.release(a.Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleasing, r.Allocation.Status)
	require.Nil(t, r.Job.NodeID)
}

// TestRemoveAssignment_NeedsProof takes the node only when nobody can be logged in.
func TestRemoveAssignment_NeedsProof(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	a := m.active().Allocation
	remove := func(version int64, power allocation.PowerProof) (out allocation.Released, err error) {
		err = m.store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			out, err = allocation.RemoveAssignment(t.Context(), tx, a.ID, "the node burned", version, power, admin)
			return err
		})
		return out, err
	}
	off := allocation.PowerProof{BMC: "off", MAAS: "off"}
	_, err := remove(m.read(a.ID).Version, off)
	require.ErrorContains(t, err, "release it first")
	job := m.release(a.ID).Job
	_, err = remove(1, off)
	require.ErrorIs(t, err, db.ErrStale)
	for _, p := range []allocation.PowerProof{{}, {BMC: "off"}, {MAAS: "off"}, {BMC: "off", MAAS: "on"}} {
		_, err = remove(m.read(a.ID).Version, p)
		require.ErrorContains(t, err, "somebody may still be logged in", "%+v", p)
	}
	version := m.read(a.ID).Version
	for range 2 {
		r, err := remove(version, off)
		require.NoError(t, err)
		require.Equal(t, []string{"released", "assignment_removed", "unconfirmed", job.ID, "cancel"},
			[]string{string(r.Allocation.Status), r.Allocation.Outcome, r.Allocation.Access, r.Job.ID, string(r.Action)})
	}
	n, err := m.store.Node(t.Context(), *a.NodeID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeQuarantined, n.Status)
	require.NotEmpty(t, db.SanitizeRequired(n))
}

// TestEndForNode_SaysWhatIsProven ends tenancies as the jobs of a node do.
func TestEndForNode_SaysWhatIsProven(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	ctx := t.Context()
	actor := db.Actor{Owner: lifecycle.OwnerDecommission}
	for _, c := range []struct {
		root    bool
		proof   allocation.AccessProof
		access  string
		outcome string
	}{
		{true, allocation.AccessProof{ByAgent: true}, "unconfirmed", "assignment_removed"},
		{true, allocation.AccessProof{PoweredOff: true}, "revoked", "released"},
		{false, allocation.AccessProof{ByAgent: true}, "revoked", "released"},
		{false, allocation.AccessProof{}, "unconfirmed", "assignment_removed"},
	} {
		require.NoError(t, dbtest.SetTenantRoot(ctx, m.store, c.root))
		a := m.active().Allocation
		for range 2 {
			m.tx(func(tx *db.Tx) error {
				return allocation.EndForNode(ctx, tx, *a.NodeID, "decommission", c.proof, actor)
			})
		}
		got := m.read(a.ID)
		require.Equal(t, []string{"released", c.access, c.outcome}, []string{string(got.Status), got.Access, got.Outcome}, "%+v", c)
		n, err := m.store.Node(ctx, *a.NodeID)
		require.NoError(t, err)
		require.Nil(t, n.AllocationID)
		require.NotEmpty(t, db.SanitizeRequired(n))
	}
	a := m.active().Allocation
	m.release(a.ID)
	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationFailRelease, Actor: engine})
		return err
	})
	m.tx(func(tx *db.Tx) error {
		return allocation.EndForNode(ctx, tx, *a.NodeID, "decommission", allocation.AccessProof{PoweredOff: true}, actor)
	})
	require.Equal(t, lifecycle.AllocationReleased, m.read(a.ID).Status)
	nobody := m.freeNode()
	m.tx(func(tx *db.Tx) error {
		return allocation.EndForNode(ctx, tx, nobody.ID, "x", allocation.AccessProof{}, actor)
	})
	n, err := m.store.Node(ctx, nobody.ID)
	require.NoError(t, err)
	require.Nil(t, n.TenantLeftAt, "nobody was on it")
}

// TestContinue_MovesWhatHasNoJob ends a request and a provisioning whose job was lost.
func TestContinue_MovesWhatHasNoJob(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	ctx := t.Context()
	r := m.request()
	r.WaitSeconds = 60
	waiting := m.create(r)
	m.freeNode()
	claimed := m.create(m.request())
	m.freeNode()
	given := m.create(m.request())
	require.NoError(t, allocationdb.GiveAccess(ctx, m.store, given.Allocation.ID))
	lost := func() []string {
		ids, err := allocationdb.ListWithoutJob(ctx, m.store, 0, 0)
		require.NoError(t, err)
		return ids
	}
	require.Empty(t, lost())
	for _, a := range []allocation.Accepted{waiting, claimed, given} {
		m.endJob(a.Job.ID)
	}
	require.Len(t, lost(), 3)
	want := map[string]lifecycle.AllocationStatus{
		waiting.Allocation.ID: lifecycle.AllocationFailed, claimed.Allocation.ID: lifecycle.AllocationReleasing, given.Allocation.ID: lifecycle.AllocationReleasing,
	}
	for id, status := range want {
		for range 2 {
			m.tx(func(tx *db.Tx) error { _, err := allocation.Continue(ctx, tx, id); return err })
			require.Equal(t, status, m.read(id).Status)
		}
	}
	require.Empty(t, lost())
	require.Zero(t, m.count("claimable_nodes"), "nobody knows what the job that ended has left on a node")
}

// TestEndings_ByExpiryAndByTheProject end what runs.
func TestEndings_ByExpiryAndByTheProject(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	ctx := t.Context()
	a, b := m.active().Allocation, m.active().Allocation
	_, err := m.store.DBTX().Exec(ctx, "UPDATE allocations SET expires_at = now() - interval '1 second' WHERE id = $1", a.ID)
	require.NoError(t, err)
	n, err := allocation.ReleaseExpired(ctx, m.store, time.Now().Add(-time.Hour), 10)
	require.NoError(t, err)
	require.Zero(t, n, "the database's clock alone says that it is past")
	n, err = allocation.ReleaseExpired(ctx, m.store, time.Now(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"releasing", "expired"}, []string{string(m.read(a.ID).Status), m.read(a.ID).ReleaseReason})
	closeProject := func() (p tenancydb.Project) {
		m.tx(func(tx *db.Tx) (err error) {
			p, err = tenancy.CloseProject(ctx, tx, m.project.ID, 0, allocation.EndProject(admin), admin)
			return err
		})
		return p
	}
	require.Equal(t, lifecycle.ProjectClosing, closeProject().Status)
	require.Equal(t, lifecycle.AllocationReleasing, m.read(b.ID).Status)
	m.refused(intent.Conflict, "the project is closing", m.request())
	for _, id := range []string{a.ID, b.ID} {
		dbtest.EndTenancy(t, m.store, id)
	}
	require.Equal(t, lifecycle.ProjectClosed, closeProject().Status)
}

// TestEndForNode_PointerThatDiffers: an allocation whose node points to nobody, or to somebody
// else, can be ended, and the node counts as one that a tenant left, whatever is proven.
func TestEndForNode_PointerThatDiffers(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	other := m.active().Allocation
	for _, pointer := range []*string{nil, &other.ID} {
		a := m.active().Allocation
		_, err := m.store.DBTX().Exec(t.Context(), "UPDATE nodes SET allocation_id = $2 WHERE id = $1", *a.NodeID, pointer)
		require.NoError(t, err)
		m.tx(func(tx *db.Tx) error {
			return allocation.EndForNode(t.Context(), tx, *a.NodeID, "decommission", allocation.AccessProof{PoweredOff: true}, db.Actor{Owner: lifecycle.OwnerDecommission})
		})
		require.Equal(t, lifecycle.AllocationReleased, m.read(a.ID).Status)
		n, err := m.store.Node(t.Context(), *a.NodeID)
		require.NoError(t, err)
		require.Nil(t, n.AllocationID)
		require.NotNil(t, n.TenantLeftAt)
	}
	require.Equal(t, lifecycle.AllocationActive, m.read(other.ID).Status)
	wrong, err := allocationdb.ListMismatches(t.Context(), m.store, "", 0)
	require.NoError(t, err)
	require.Empty(t, wrong)
}
