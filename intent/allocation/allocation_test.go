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
		_, err = tenancydb.AddMember(t.Context(), tx, m.project.ID, tenancydb.NewMember{Subject: customer.ID, Name: "Ada", Role: lifecycle.RoleProjectOwner})
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
		"site_id is no site":           with(func(r *allocation.Request) { r.SiteID = "site_none" }),
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
	r.Policy = allocation.Policy{MaxLaunches: 2, LaunchWindow: time.Hour, MaxReleasing: 1, MaxUnpaid: 1}
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

// TestCreate_StopsUnpaidNodes: who gives nodes back before they are active, or stops the proof of
// his keys from inside, pays nothing and takes a node out of service each time. It does not count
// what failed by itself, what was paid, or what was given back before it had a node.
func TestCreate_StopsUnpaidNodes(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	r := m.request()
	r.Policy = allocation.Policy{MaxLaunches: 100, LaunchWindow: time.Hour, MaxReleasing: 100, MaxUnpaid: 4}
	m.tx(func(tx *db.Tx) error { return tenancydb.PutQuota(t.Context(), tx, m.project.ID, m.sku.ID, 100) })
	provision := func(access bool) string {
		m.freeNode()
		id := m.create(r).Allocation.ID
		if access {
			require.NoError(t, allocationdb.GiveAccess(t.Context(), m.store, id))
		}
		return id
	}
	move := func(id string, to lifecycle.Transition[lifecycle.AllocationStatus], failure string) {
		m.tx(func(tx *db.Tx) error {
			_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: id, To: to, FailureCode: failure, Actor: engine})
			return err
		})
	}
	move(provision(false), lifecycle.AllocationAbort, lifecycle.FailureProvision)
	move(provision(true), lifecycle.AllocationAbort, "")
	for range 3 { // he is charged for them
		id := provision(true)
		m.release(id)
		move(id, lifecycle.AllocationAbort, "")
	}
	wait := r
	wait.WaitSeconds = 60
	for range 5 {
		m.release(m.create(wait).Allocation.ID)
	}
	move(provision(true), lifecycle.AllocationAbort, lifecycle.FailureProvision)
	endsItsKeys := provision(false) // he has the provision fail by deleting its keys
	m.tx(func(tx *db.Tx) error {
		_, err := tx.DBTX().Exec(t.Context(), "UPDATE allocation_keys SET withdrawn_at = now() WHERE allocation_id = $1", endsItsKeys)
		return err
	})
	move(endsItsKeys, lifecycle.AllocationAbort, lifecycle.FailureProvision)
	m.release(provision(false))
	m.release(provision(false))
	m.refused(intent.RateLimited, "4 nodes of the billing account were given back within 1h0m0s", r)
	r.Policy.MaxUnpaid = 5
	provision(false)
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
