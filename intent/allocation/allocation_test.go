package allocation_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// market is a project that may have nodes of a SKU that is offered.
type market struct {
	*testing.T
	store   *db.Store
	sku     db.SKU
	site    db.Site
	project tenancydb.Project
	keys    []tenancydb.SSHKey
}

var (
	customer = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}
	admin    = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"}
	engine   = db.Actor{Owner: lifecycle.OwnerJob}
)

func newMarket(t *testing.T) *market {
	t.Helper()
	m := &market{T: t, store: dbtest.Store(t)}
	m.sku, m.site, m.project = dbtest.SKU(t, m.store), dbtest.Site(t, m.store), dbtest.Project(t, m.store)
	profile := dbtest.Profile(t, m.store, dbtest.At(m.site.ID))
	m.tx(func(tx *db.Tx) error {
		_, err := tenancydb.PutOffer(t.Context(), tx, tenancydb.Offer{SKUID: m.sku.ID, ProfileID: profile.ID, Title: "Eight GPUs", Isolation: "shared_network"})
		if err != nil {
			return err
		}
		_, err = tenancydb.AddMember(t.Context(), tx, m.project.ID, customer.ID, "Ada", lifecycle.RoleProjectOwner)
		return err
	})
	m.addKey("one")
	m.addKey("two")
	return m
}

func (m *market) tx(do func(*db.Tx) error) {
	m.Helper()
	require.NoError(m, m.store.Tx(m.Context(), do))
}

func (m *market) addKey(name string) {
	m.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(m, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(m, err)
	parsed, err := tenancy.ParseSSHKey(string(ssh.MarshalAuthorizedKey(key)))
	require.NoError(m, err)
	require.NoError(m, m.store.ForProject(m.Context(), m.project.ID, func(tx *db.ProjectTx) error {
		members, err := tenancydb.ListMembers(m.Context(), tx, "", 1)
		if err != nil {
			return err
		}
		k, err := tenancydb.AddSSHKey(m.Context(), tx, tenancydb.SSHKey{
			MemberID: members[0].ID, Name: name, Type: parsed.Type, PublicKey: parsed.PublicKey, Fingerprint: parsed.Fingerprint,
		})
		m.keys = append(m.keys, k)
		return err
	}))
}

func (m *market) freeNode() db.Node {
	return dbtest.FreeNode(m.T, m.store, dbtest.Of(m.sku.ID), dbtest.At(m.site.ID))
}

func (m *market) request() allocation.Request {
	return allocation.Request{ProjectID: m.project.ID, SKUID: m.sku.ID, Name: "train", Tags: map[string]string{"Team": "a"}, Actor: customer}
}

func (m *market) ask(r allocation.Request) (out allocation.Accepted, err error) {
	err = m.store.Tx(m.Context(), func(tx *db.Tx) (err error) {
		out, err = allocation.Create(m.Context(), tx, r)
		return err
	})
	return out, err
}

func (m *market) create(r allocation.Request) allocation.Accepted {
	m.Helper()
	out, err := m.ask(r)
	require.NoError(m, err)
	return out
}

func (m *market) refused(kind intent.Kind, text string, r allocation.Request) {
	m.Helper()
	_, err := m.ask(r)
	refusal := intent.AsRefusal(err)
	require.NotNil(m, refusal, "%v", err)
	require.Equal(m, kind, refusal.Kind, err)
	require.ErrorContains(m, err, text)
}

func (m *market) release(id string) (out allocation.Released) {
	m.Helper()
	m.tx(func(tx *db.Tx) (err error) {
		out, err = allocation.Release(m.Context(), tx, id, "done with it", customer)
		return err
	})
	return out
}

func (m *market) activate(id string) {
	m.Helper()
	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.Activate(m.Context(), tx, id, allocationdb.Connection{Host: "127.0.0.1"}, allocationdb.Image{ID: "i"}, engine)
		return err
	})
}

// active makes an allocation whose provision job has ended well.
func (m *market) active() allocation.Accepted {
	m.Helper()
	m.freeNode()
	a := m.create(m.request())
	m.activate(a.Allocation.ID)
	m.endJob(a.Job.ID)
	return a
}

func (m *market) endJob(id string) {
	m.Helper()
	m.tx(func(tx *db.Tx) error {
		for _, t := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobStart, lifecycle.JobComplete} {
			if _, err := tx.TransitionJob(m.Context(), id, t, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *market) read(id string) allocationdb.Allocation {
	m.Helper()
	a, err := allocationdb.Get(m.Context(), m.store, id)
	require.NoError(m, err)
	return a
}

func (m *market) count(sql string) (n int) {
	m.Helper()
	require.NoError(m, m.store.DBTX().QueryRow(m.Context(), "SELECT count(*) FROM "+sql).Scan(&n))
	return n
}

// TestCreate_ClaimsANodeAtOnce reads all that an accepted request has written.
func TestCreate_ClaimsANodeAtOnce(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	n := m.freeNode()
	r := m.request()
	r.KeyIDs = []string{m.keys[1].ID}
	a := m.create(r)
	require.Equal(t, lifecycle.AllocationProvisioning, a.Allocation.Status)
	require.Equal(t, n.ID, *a.Allocation.NodeID)
	require.Equal(t, []string{"allocation_provision", allocationdb.Resource, a.Allocation.ID, n.ID, m.site.ID},
		[]string{a.Job.Kind, a.Job.ResourceKind, a.Job.ResourceID, *a.Job.NodeID, *a.Job.SiteID})
	keys, err := allocationdb.ListKeys(t.Context(), m.store, a.Allocation.ID)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, m.keys[1].PublicKey, keys[0].PublicKey)
	require.Equal(t, 1, m.count("outbox WHERE kind = 'start_workflow' AND job_id = '"+a.Job.ID+"'"))
	require.Equal(t, "oidc:ada", a.Allocation.RequestedBy)
}

// TestCreate_WithoutCapacity refuses at once and writes nothing, or waits.
func TestCreate_WithoutCapacity(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	r := m.request()
	m.refused(intent.NoCapacity, "asks for 1 node of Eight GPUs", r)
	require.Zero(t, m.count("allocations"))
	r.WaitSeconds = 60
	a := m.create(r)
	require.Equal(t, lifecycle.AllocationRequested, a.Allocation.Status)
	require.WithinDuration(t, time.Now().Add(time.Minute), *a.Allocation.QueueDeadlineAt, 30*time.Second)
	require.Nil(t, a.Job.NodeID)
	n := m.freeNode()
	m.tx(func(tx *db.Tx) error {
		got, found, err := allocationdb.Claim(t.Context(), tx, a.Allocation.ID, engine)
		require.True(t, found)
		require.Equal(t, n.ID, *got.NodeID)
		return err
	})
	job, err := m.store.LiveJobOfNode(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, a.Job.ID, job.ID, "the job of the allocation is the node's one live job")
}

// TestCreate_Refusals sends requests that each have one thing wrong.
func TestCreate_Refusals(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	with := func(change func(*allocation.Request)) allocation.Request {
		r := m.request()
		change(&r)
		return r
	}
	past := time.Now().Add(-time.Hour)
	for text, r := range map[string]allocation.Request{
		"name must be at most":         with(func(r *allocation.Request) { r.Name = string(make([]rune, 101)) }),
		"tags must have keys":          with(func(r *allocation.Request) { r.Tags = map[string]string{"a b": ""} }),
		"wait_seconds must be 0":       with(func(r *allocation.Request) { r.WaitSeconds = allocation.MaxWaitSeconds + 1 }),
		"sku_id is not offered":        with(func(r *allocation.Request) { r.SKUID = dbtest.SKU(t, m.store).ID }),
		"site_id there is no such":     with(func(r *allocation.Request) { r.SiteID = "site_none" }),
		"names a key that the project": with(func(r *allocation.Request) { r.KeyIDs = []string{m.keys[0].ID, "key_none"} }),
		"expires_at must be in":        with(func(r *allocation.Request) { r.ExpiresAt = &past }),
	} {
		m.refused(intent.Invalid, text, r)
	}
	require.Zero(t, m.count("allocations"))
	require.Zero(t, m.count("nodes WHERE allocation_id IS NOT NULL"))
}

// TestCreate_Limits asks for more than the quota, the rate and the releasing nodes allow.
func TestCreate_Limits(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	for range 3 {
		m.freeNode()
	}
	r := m.request()
	r.Policy = allocation.Policy{MaxLaunches: 2, LaunchWindow: time.Hour, MaxReleasing: 1}
	first := m.create(r)
	m.tx(func(tx *db.Tx) error { return tenancydb.PutQuota(t.Context(), tx, m.project.ID, m.sku.ID, 1) })
	m.refused(intent.Conflict, "it has 1 of 1 nodes and asks for 1", r)
	m.tx(func(tx *db.Tx) error { return tenancydb.PutQuota(t.Context(), tx, m.project.ID, m.sku.ID, 9) })
	m.activate(first.Allocation.ID)
	m.endJob(first.Job.ID)
	m.release(first.Allocation.ID)
	m.refused(intent.Conflict, "1 nodes of the billing account are being released", r)
	r.Policy.MaxReleasing = 2
	m.create(r)
	m.refused(intent.RateLimited, "has requested 2 nodes within 1h0m0s", r)
	r.ProjectID = dbtest.Project(t, m.store).ID
	m.refused(intent.Conflict, "has no SSH key", r)
}

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
	retried := m.release(b.Allocation.ID)
	require.Equal(t, lifecycle.AllocationReleasing, retried.Allocation.Status)
	require.Equal(t, []string{releasing.Job.ID, string(lifecycle.ActionRetryStage)}, []string{retried.Job.ID, string(retried.Action)})
	m.tx(func(tx *db.Tx) error {
		forced, err := allocation.ForceRelease(t.Context(), tx, b.Allocation.ID, "again", admin)
		require.Equal(t, releasing.Job.ID, forced.Job.ID)
		return err
	})
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
		_, err := m.store.DBTX().Exec(ctx, "UPDATE skus SET tenant_root = $1", c.root)
		require.NoError(t, err)
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
		waiting.Allocation.ID: lifecycle.AllocationFailed, claimed.Allocation.ID: lifecycle.AllocationFailed, given.Allocation.ID: lifecycle.AllocationReleasing,
	}
	for id, status := range want {
		for range 2 {
			m.tx(func(tx *db.Tx) error { _, err := allocation.Continue(ctx, tx, id); return err })
			require.Equal(t, status, m.read(id).Status)
		}
	}
	require.Empty(t, lost())
	require.Equal(t, 1, m.count("claimable_nodes"), "the node to which nobody had access is free, the other is not")
}

// TestEndings_ByExpiryAndByTheProject end what runs.
func TestEndings_ByExpiryAndByTheProject(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	ctx := t.Context()
	a, b := m.active().Allocation, m.active().Allocation
	_, err := m.store.DBTX().Exec(ctx, "UPDATE allocations SET expires_at = now() - interval '1 second' WHERE id = $1", a.ID)
	require.NoError(t, err)
	n, err := allocation.ReleaseExpired(ctx, m.store, 10)
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
		dbtest.Vacate(t, m.store, id)
	}
	require.Equal(t, lifecycle.ProjectClosed, closeProject().Status)
}

// TestCreate_AtOnceTakesDifferentNodes makes all requests of one project at once.
func TestCreate_AtOnceTakesDifferentNodes(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	for range 6 {
		m.freeNode()
	}
	type answer struct {
		a   allocation.Accepted
		err error
	}
	answers := make(chan answer)
	for range 6 {
		go func() {
			a, err := m.ask(m.request())
			answers <- answer{a, err}
		}()
	}
	nodes := map[string]bool{}
	for range 6 {
		got := <-answers
		require.NoError(t, got.err)
		nodes[*got.a.Allocation.NodeID] = true
	}
	require.Len(t, nodes, 6, fmt.Sprint(nodes))
}
