package tenancy_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// addAllocation gives a tenant an allocation that waits for a node.
func (w *world) addAllocation(v tenant) {
	w.t.Helper()
	sku := dbtest.SKU(w.t, w.store)
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		a, err := allocationdb.Create(w.t.Context(), tx, allocationdb.New{
			ProjectID: v.project, SKUID: sku.ID, Name: v.name + "-allocation", RequestedBy: "test", Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:" + v.name},
		})
		v.ids["allocation_id"] = a.ID
		return err
	}))
}

// market is a world with a tenant, a SKU that is offered, and its site.
type market struct {
	*world
	tenant
	sku  db.SKU
	site db.Site
	base string
}

func newMarket(t *testing.T) *market {
	t.Helper()
	w := newWorld(t)
	m := &market{world: w, tenant: w.newTenant("alpha"), sku: dbtest.SKU(t, w.store, dbtest.Named("h100x8")), site: dbtest.Site(t, w.store, dbtest.Named("south"))}
	m.base = "/projects/" + m.project + "/allocations"
	profile := dbtest.Profile(t, w.store, dbtest.At(m.site.ID))
	w.do(w.admin, "PUT", "/admin/catalogue/"+m.sku.ID, map[string]any{"profile_id": profile.ID, "title": "Eight GPUs", "isolation": "shared_network"}).want(http.StatusOK)
	return m
}

func (m *market) freeNode() db.Node {
	m.t.Helper()
	return dbtest.FreeNode(m.t, m.store, dbtest.Of(m.sku.ID), dbtest.At(m.site.ID))
}

func (m *market) request(more map[string]any) map[string]any {
	body := map[string]any{"sku_id": m.sku.ID, "name": "train", "tags": map[string]string{"Team": "a"}}
	for k, v := range more {
		body[k] = v
	}
	return body
}

func (m *market) create(more map[string]any) string {
	m.t.Helper()
	return m.do(m.owner, "POST", m.base, m.request(more)).want(http.StatusAccepted).field("id")
}

func (m *market) tx(do func(*db.Tx) error) {
	m.t.Helper()
	require.NoError(m.t, m.store.Tx(m.t.Context(), do))
}

var job = db.Actor{Owner: lifecycle.OwnerJob}

// activate does what the end of the provision job does.
func (m *market) activate(id string) {
	m.t.Helper()
	m.tx(func(tx *db.Tx) error {
		at := allocationdb.Connection{Host: "127.0.0.9", Port: 22, User: lifecycle.TenantAccount(id), HostKey: dbtest.Key, HostKeySHA256: "SHA256:x"}
		if _, err := allocationdb.Activate(m.t.Context(), tx, id, at, allocationdb.Image{ID: "img", Name: "ubuntu"}, job); err != nil {
			return err
		}
		live, err := tx.LiveJobOfResource(m.t.Context(), allocationdb.Resource, id)
		if err != nil {
			return err
		}
		for _, t := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobStart, lifecycle.JobComplete} {
			if _, err := tx.TransitionJob(m.t.Context(), live.ID, t, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
				return err
			}
		}
		return nil
	})
}

// failRelease parks the release job, with the allocation in release_failed.
func (m *market) failRelease(id string) {
	m.t.Helper()
	m.tx(func(tx *db.Tx) error {
		live, err := tx.LiveJobOfResource(m.t.Context(), allocationdb.Resource, id)
		if err != nil {
			return err
		}
		f := lifecycle.Failure(lifecycle.FailFrozen)
		if _, err := tx.ProjectJob(m.t.Context(), db.Projection{
			JobID: live.ID, Seq: live.Seq + 1, Status: f.ParkStatus(), FailureClass: f.Class, Message: "the BMC is silent", RecommendedAction: f.Recommended,
			NextStep: f.Next, Actor: job,
		}); err != nil {
			return err
		}
		_, err = allocationdb.MoveTo(m.t.Context(), tx, allocationdb.Move{ID: id, To: lifecycle.AllocationFailRelease, Actor: job})
		return err
	})
}

func (a answer) at(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.raw, into), string(a.raw))
}

// shown is what the tests read of an allocation.
type shown struct {
	ID, Status, State, Outcome, SKU string
	Connection                      *struct {
		Host, User string
		HostKey    string `json:"host_key"`
	}
	Network        struct{ ID, Kind string }
	Topology       struct{ Site string }
	Tags           map[string]string
	Progress       *struct{ Stages int }
	AllowedActions []string                       `json:"allowed_actions"`
	SSHKeys        []struct{ Fingerprint string } `json:"ssh_keys"`
}

func (m *market) read(id string) (s shown) {
	m.t.Helper()
	m.do(m.owner, "GET", m.base+"/"+id, nil).want(http.StatusOK).at(m.t, &s)
	return s
}

// TestAllocation_FromCreateToRelease follows one allocation as its members see it.
func TestAllocation_FromCreateToRelease(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	node := m.freeNode()
	key := header{"Idempotency-Key": "once"}
	made := m.do(m.owner, "POST", m.base, m.request(nil), key).want(http.StatusAccepted)
	again := m.do(m.owner, "POST", m.base, m.request(nil), key).want(http.StatusAccepted)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.JSONEq(t, string(made.raw), string(again.raw))
	require.NotContains(t, string(made.raw), node.ID, "members see no node")
	id := made.field("id")
	require.Equal(t, "/api/v1"+m.base+"/"+id, made.header.Get("Location"))
	m.do(m.owner, "POST", m.base, m.request(map[string]any{"name": "other"}), key).want(http.StatusUnprocessableEntity)

	got := m.read(id)
	require.Equal(t, []string{"provisioning", "pending", "h100x8", m.site.ID, "shared_network", "south"},
		[]string{got.Status, got.State, got.SKU, got.Network.ID, got.Network.Kind, got.Topology.Site})
	require.Nil(t, got.Connection)
	require.Len(t, got.SSHKeys, 1)
	require.Equal(t, len(lifecycle.AllocationProvisionStages()), got.Progress.Stages)
	list := func(query string) (found []shown) {
		var out struct{ Data []shown }
		m.do(m.owner, "GET", m.base+query, nil).want(http.StatusOK).at(t, &out)
		return out.Data
	}
	listed := list("?tag=Team=a&status=provisioning")
	require.Len(t, listed, 1)
	require.Equal(t, got.Progress, listed[0].Progress, "a list says how far it is too")
	require.Equal(t, []string{"update", "release"}, got.AllowedActions)
	require.Empty(t, list("?tag=team=a"), "keys keep their case")
	require.Empty(t, list("?status=active&status=released"))
	require.Contains(t, string(m.do(m.owner, "GET", m.base+"?status=gone", nil).want(http.StatusUnprocessableEntity).raw), "must be one of requested, provisioning")
	m.do(m.owner, "GET", m.base+"?tag=Team", nil).want(http.StatusUnprocessableEntity)

	m.activate(id)
	got = m.read(id)
	require.Equal(t, []string{"active", "running", "127.0.0.9"}, []string{got.Status, got.State, got.Connection.Host})
	require.Equal(t, "127.0.0.9 "+dbtest.Key, got.Connection.HostKey, "a whole line of known_hosts")
	require.Nil(t, got.Progress)
	one := m.base + "/" + id
	m.do(m.owner, "PATCH", one, map[string]any{"tags": map[string]string{"A": "1"}}, header{"If-Match": `"1"`}).want(http.StatusPreconditionFailed)
	m.do(m.owner, "PATCH", one, map[string]any{"tags": map[string]string{"A": "1"}}, header{"If-Match": ""}).want(http.StatusPreconditionRequired)
	m.do(m.owner, "PATCH", one, map[string]any{"tags": map[string]string{"a b": "1"}}).want(http.StatusUnprocessableEntity)
	m.do(m.owner, "PATCH", one, map[string]any{"tags": map[string]string{"A": "1", "a": "2"}}).want(http.StatusOK)
	require.Equal(t, map[string]string{"A": "1", "a": "2"}, m.read(id).Tags)

	for range 2 {
		released := m.do(m.owner, "POST", one+"/release", map[string]any{"reason": "trained"}).want(http.StatusAccepted)
		require.Equal(t, []string{"releasing", "terminating"}, []string{released.field("status"), released.field("state")})
	}
	require.Empty(t, m.engine.taken(), "a release that is under way needs no action")
	log := string(m.do(m.owner, "GET", "/projects/"+m.project+"/audit-log", nil).want(http.StatusOK).raw)
	for _, name := range []string{"create_allocation", "update_allocation", "release_allocation"} {
		require.Equal(t, 1, strings.Count(log, `"`+name+`"`), name)
	}
}

// TestAllocation_KeysBelongToAProject sends one user's key and body to two projects.
func TestAllocation_KeysBelongToAProject(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	beta := m.newTenant("beta")
	m.do(beta.owner, "POST", "/projects/"+beta.project+"/invitations", map[string]any{"subject": "oidc:alpha-owner", "role": "member"}).want(http.StatusCreated)
	m.accept(m.owner)
	body, key := m.request(map[string]any{"wait_seconds": 60}), header{"Idempotency-Key": "same"}
	first := m.do(m.owner, "POST", m.base, body, key).want(http.StatusAccepted)
	second := m.do(m.owner, "POST", "/allocations?project_id="+beta.project, body, key).want(http.StatusAccepted)
	require.Empty(t, second.header.Get("Idempotency-Replayed"))
	require.NotEqual(t, first.field("id"), second.field("id"))
	require.Equal(t, beta.project, second.field("project_id"))
	m.do(m.owner, "POST", "/allocations", body).want(http.StatusUnprocessableEntity) // two projects: which?
}

// TestAllocation_Refusals asks for what cannot be had.
func TestAllocation_Refusals(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	refused := m.do(m.owner, "POST", m.base, m.request(nil)).want(http.StatusConflict)
	require.Contains(t, string(refused.raw), "no-capacity")
	require.Contains(t, string(refused.raw), "asks for 1 node of Eight GPUs")
	m.do(m.admin, "PUT", "/admin/projects/"+m.project+"/quotas/"+m.sku.ID, map[string]any{"max_nodes": 1, "reason": "a small customer"}).want(http.StatusOK)
	m.freeNode()
	m.freeNode()
	m.create(nil)
	require.Contains(t, string(m.do(m.owner, "POST", m.base, m.request(nil)).want(http.StatusConflict).raw), "it has 1 of 1 nodes and asks for 1")
	m.do(m.owner, "POST", m.base, m.request(map[string]any{"sku_id": "sku_none"})).want(http.StatusUnprocessableEntity)
	m.do(m.owner, "POST", m.base, m.request(map[string]any{"wait_seconds": 86401})).want(http.StatusUnprocessableEntity)
	m.do(m.owner, "POST", m.base, m.request(nil), header{"Idempotency-Key": ""}).want(http.StatusBadRequest)
	billing, _ := m.addMember(m.tenant, "bill", "billing")
	m.do(billing, "GET", m.base, nil).want(http.StatusOK)
	m.do(billing, "POST", "/allocations", m.request(nil)).want(http.StatusForbidden)
}

// TestAllocation_WrongInputs sends what is refused, and reads whether the answer says what to do.
func TestAllocation_WrongInputs(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	one := m.base + "/" + m.create(nil)
	long := strings.Repeat("x", 101)
	reason := map[string]any{"reason": "ticket 4711"}
	for _, wrong := range []struct {
		bearer, method, path string
		body                 map[string]any
		status               int
		says                 string
	}{
		{m.owner, "POST", m.base, map[string]any{"name": "train"}, 422, "sku_id"},
		{m.owner, "POST", m.base, m.request(map[string]any{"sku_id": "h100x8"}), 422, "choose one of the catalogue"},
		{m.owner, "POST", m.base, m.request(map[string]any{"site_id": "south"}), 422, "is no site; give the id"},
		{m.owner, "POST", m.base, m.request(map[string]any{"name": long}), 422, "body.name"},
		{m.owner, "POST", m.base, m.request(map[string]any{"wait_seconds": -1}), 422, "body.wait_seconds"},
		{m.owner, "POST", m.base, m.request(map[string]any{"wait_seconds": "1h"}), 422, "body.wait_seconds"},
		{m.owner, "POST", m.base, m.request(map[string]any{"expires_at": "2020-01-01T00:00:00Z"}), 422, "must be in the future"},
		{m.owner, "POST", m.base, m.request(map[string]any{"expires_at": "tomorrow"}), 422, "body.expires_at"},
		{m.owner, "POST", m.base, m.request(map[string]any{"tags": map[string]string{"a b": "1"}}), 422, "must have keys of 1 to 63"},
		{m.owner, "POST", m.base, m.request(map[string]any{"ssh_key_ids": []string{"key_none"}}), 422, "a key that the project does not have"},
		{m.owner, "POST", m.base, m.request(map[string]any{"node_id": "node_1"}), 422, "node_id"},
		{m.owner, "GET", m.base + "?status=Active", nil, 422, "must be one of requested"},
		{m.owner, "GET", m.base + "?tag=team", nil, 422, "must be KEY=VALUE"},
		{m.owner, "GET", m.base + "/alc_none", nil, 404, "Allocation alc_none was not found"},
		{m.owner, "PATCH", one, map[string]any{"name": long}, 422, "body.name"},
		{m.owner, "POST", one + "/release", map[string]any{"reason": strings.Repeat("x", 501)}, 422, "body.reason"},
		{m.admin, "POST", "/admin/allocations/alc_none/force-release", reason, 404, "Allocation alc_none was not found"},
		{m.admin, "POST", strings.Replace(one, m.base, "/admin/allocations", 1) + "/force-release", map[string]any{}, 422, "reason"},
		{m.admin, "GET", "/admin/allocations?status=broken", nil, 422, "must be one of requested"},
	} {
		var body any
		if wrong.body != nil {
			body = wrong.body
		}
		got := m.do(wrong.bearer, wrong.method, wrong.path, body).want(wrong.status)
		require.Contains(t, string(got.raw), wrong.says, "%s %s %v", wrong.method, wrong.path, wrong.body)
	}
	require.Len(t, m.engine.taken(), 0)
	require.Equal(t, "provisioning", m.read(strings.TrimPrefix(one, m.base+"/")).Status, "none of them changed anything")
}

// TestAllocation_CancelOfRequested releases what has no node yet.
func TestAllocation_CancelOfRequested(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	id := m.create(map[string]any{"wait_seconds": 60})
	require.Equal(t, "pending", m.read(id).Network.ID)
	m.engine.err = serviceerror.NewUnavailable("away")
	for range 2 { // the job finds out by itself when it is not reached
		m.do(m.owner, "POST", m.base+"/"+id+"/release", nil).want(http.StatusAccepted)
		got := m.read(id)
		require.Equal(t, []string{"released", "cancelled", "terminated"}, []string{got.Status, got.Outcome, got.State})
	}
	require.Equal(t, []string{"cancel", "cancel"}, m.engine.taken())
}

// TestAllocation_RetryOfAFailedRelease asks the job that stands still, and again when it was not
// reached.
func TestAllocation_RetryOfAFailedRelease(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	id := m.create(nil)
	m.activate(id)
	release := func(want int) answer {
		return m.do(m.owner, "POST", "/allocations/"+id+"/release", nil).want(want)
	}
	release(http.StatusAccepted)
	m.failRelease(id)
	require.Equal(t, "release_failed", m.read(id).Status)
	m.engine.err = serviceerror.NewUnavailable("away")
	release(http.StatusServiceUnavailable)
	require.Equal(t, "release_failed", m.read(id).Status, "operators see it until its job goes on")
	m.engine.err = nil
	release(http.StatusAccepted)
	require.Equal(t, []string{"retry_stage", "retry_stage"}, m.engine.taken())
	log := string(m.do(m.owner, "GET", "/projects/"+m.project+"/audit-log", nil).want(http.StatusOK).raw)
	require.Equal(t, 3, strings.Count(log, `"release_allocation"`), "each try is in the log, though only the job changes the row")
}

// TestAdminAllocations lists failed releases and ends one.
func TestAdminAllocations(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	node := m.freeNode()
	id := m.create(nil)
	m.activate(id)
	at := "/admin/allocations/" + id
	reason := map[string]any{"reason": "ticket 4711"}
	refused := m.do(m.admin, "POST", at+"/force-release", reason).want(http.StatusConflict)
	require.Contains(t, string(refused.raw), "release it")
	m.do(m.owner, "POST", m.base+"/"+id+"/release", nil).want(http.StatusAccepted)
	m.failRelease(id)
	list := string(m.do(m.admin, "GET", "/admin/allocations?status=release_failed", nil).want(http.StatusOK).raw)
	require.Contains(t, list, node.ID)
	var jobs struct {
		Data []struct {
			JobID          string `json:"job_id"`
			JobStatus      string `json:"job_status"`
			Progress       *struct{ Stages int }
			AllowedActions []string `json:"allowed_actions"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(list), &jobs))
	require.Equal(t, "failed_manual_intervention", jobs.Data[0].JobStatus)
	require.Equal(t, len(lifecycle.AllocationReleaseStages()), jobs.Data[0].Progress.Stages)
	require.Equal(t, []string{"force_release", "remove_assignment"}, jobs.Data[0].AllowedActions)
	require.Equal(t, id, m.do(m.admin, "GET", "/admin/jobs/"+jobs.Data[0].JobID, nil).want(http.StatusOK).field("resource_id"))
	for _, theirs := range []string{"train", "Team", "127.0.0.9"} {
		require.NotContains(t, list, theirs, "an operator reads that in the project, with a reason")
	}
	require.NotContains(t, string(m.do(m.admin, "GET", "/admin/allocations?status=active", nil).want(http.StatusOK).raw), id)
	m.do(m.owner, "GET", "/admin/allocations", nil).want(http.StatusForbidden)

	m.do(m.admin, "POST", at+"/force-release", map[string]any{"reason": "  "}).want(http.StatusUnprocessableEntity)
	forced := m.do(m.admin, "POST", at+"/force-release", reason).want(http.StatusAccepted)
	require.Equal(t, "release_failed", forced.field("status"), "the step of the job moves it")
	require.NotEmpty(t, forced.field("job_id"))
	require.Equal(t, []string{"retry_stage"}, m.engine.taken())

	m.do(m.admin, "POST", at+"/remove-assignment", reason, header{"If-Match": ""}).want(http.StatusPreconditionRequired)
	m.engine.power = contract.NodePower{BMC: "on", MAAS: "off"}
	require.Contains(t, string(m.do(m.admin, "POST", at+"/remove-assignment", reason).want(http.StatusConflict).raw), "somebody may still be logged in")
	m.engine.power.BMC = "off"
	m.do(m.admin, "POST", at+"/remove-assignment", reason, header{"If-Match": `"1"`}).want(http.StatusPreconditionFailed)
	for range 2 {
		gone := m.do(m.admin, "POST", at+"/remove-assignment", reason).want(http.StatusAccepted)
		require.Equal(t, []string{"released", "assignment_removed", "unconfirmed", "quarantined"},
			[]string{gone.field("status"), gone.field("outcome"), gone.field("access"), gone.field("node_status")})
	}
	require.Equal(t, "assignment_removed", m.read(id).Outcome, "it stays readable")
	log := string(m.do(m.owner, "GET", "/projects/"+m.project+"/audit-log", nil).want(http.StatusOK).raw)
	require.Contains(t, log, "remove_assignment")
	require.Contains(t, log, "ticket 4711")
	require.NotContains(t, log, "the-admin")
}

// TestAllocations_WithoutAProjectInThePath finds the project by the token, or by the allocation.
func TestAllocations_WithoutAProjectInThePath(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	beta := m.newTenant("beta")
	id := m.do(m.token, "POST", "/allocations", m.request(map[string]any{"wait_seconds": 60})).want(http.StatusAccepted).field("id")
	one := "/allocations/" + id
	m.do(m.token, "GET", one, nil).want(http.StatusOK)
	require.Contains(t, string(m.do(m.owner, "GET", "/allocations", nil).want(http.StatusOK).raw), id)
	none := m.do(beta.owner, "GET", "/allocations/"+missing()["allocation_id"], nil).want(http.StatusNotFound)
	for _, bearer := range []string{beta.owner, beta.token, m.signIn("nobody")} {
		theirs := m.do(bearer, "GET", one, nil).want(http.StatusNotFound)
		require.Equal(t, withoutIDs(none.raw, missing()), withoutIDs(theirs.raw, map[string]string{"allocation_id": id}))
		m.do(bearer, "POST", one+"/release", nil).want(http.StatusNotFound)
		m.do(bearer, "GET", "/allocations?project_id="+m.project, nil).want(http.StatusNotFound)
		m.do(bearer, "POST", "/allocations?project_id="+m.project, m.request(nil)).want(http.StatusNotFound)
	}
	viewer, _ := m.addMember(m.tenant, "view", "viewer")
	m.do(viewer, "POST", one+"/release", nil).want(http.StatusForbidden)
	m.do(m.admin, "GET", one, nil).want(http.StatusUnprocessableEntity) // an operator gives a reason
	m.do(m.admin, "GET", one, nil, header{"Slipway-Reason": "ticket 4711"}).want(http.StatusOK)
	m.do(m.token, "POST", one+"/release", nil).want(http.StatusAccepted)
}

// TestAllocation_AfterItsRetention reads an allocation that has ended: customers until it is
// pruned, operators also later, without what was the customer's.
func TestAllocation_AfterItsRetention(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	id := m.create(nil)
	m.activate(id)
	dbtest.EndTenancy(t, m.store, id)
	one := m.base + "/" + id
	m.exec("UPDATE allocations SET released_at = now() - interval '89 days' WHERE id = $1", id)
	require.Contains(t, string(m.do(m.owner, "GET", m.base, nil).want(http.StatusOK).raw), id)
	m.exec("UPDATE allocations SET released_at = now() - interval '91 days' WHERE id = $1", id)
	require.NotContains(t, string(m.do(m.owner, "GET", m.base, nil).want(http.StatusOK).raw), id)
	m.do(m.owner, "GET", one, nil).want(http.StatusOK)
	n, err := allocationdb.Prune(t.Context(), m.store, time.Now().Add(-90*24*time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	for _, path := range []string{one, "/allocations/" + id} {
		m.do(m.owner, "GET", path, nil).want(http.StatusNotFound)
		m.do(m.owner, "POST", path+"/release", nil).want(http.StatusNotFound)
	}
	m.do(m.owner, "PATCH", one, map[string]any{"name": "back"}, header{"If-Match": "*"}).want(http.StatusNotFound)
	require.Contains(t, string(m.do(m.admin, "GET", "/admin/allocations/"+id, nil).want(http.StatusOK).raw), id)
}
