package rest_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The shape is the documented one, key by key.
func TestHistoryHasTheSeedsShape(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeEnrolling))
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), node.ID, lifecycle.NodeBlockOnboarding, nil, db.Actor{
			Owner: lifecycle.OwnerAdmin, ID: "alice", Comment: "smoke", Metadata: map[string]any{"attempt": 3}})
		return err
	}))
	var got struct {
		Data  []map[string]any
		Total int
	}
	path := "/api/v1/nodes/" + node.ID + "/history"
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Equal(t, 3, got.Total)
	first := got.Data[0]
	require.Regexp(t, "^evt_", first["id"])
	require.Regexp(t, `^\d{4}-\d\d-\d\dT[0-9:.]+Z$`, first["created_at"])
	delete(first, "id")
	delete(first, "created_at")
	b, err := json.Marshal(first)
	require.NoError(t, err)
	require.JSONEq(t, `{"from_state":"enrolling","to_state":"quarantined","triggered_by":"admin","user_id":"alice","comment":"smoke","metadata":{"attempt":3}}`, string(b))
	created := got.Data[2]
	require.Equal(t, []any{"", "bootstrap_issued", nil}, []any{created["from_state"], created["to_state"], created["comment"]})
	require.Len(t, created, 8)

	w.do("GET", path+"?limit=1&offset=1", nil).want(http.StatusOK).into(&got)
	require.Len(t, got.Data, 1)
	require.Equal(t, 3, got.Total)
	require.Equal(t, "enrolling", got.Data[0]["to_state"])
	require.JSONEq(t, `{"data":[],"total":3}`, string(w.do("GET", path+"?offset=9", nil).want(http.StatusOK).raw))
	w.do("GET", path+"?limit=0", nil).refused(problem.Invalid)
	w.do("GET", path+"?offset=-1", nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/nodes/node_none/history", nil).refused(problem.NotFound)
	w.do("GET", "/api/v1/nodes/"+node.SiteID, nil).refused(problem.NotFound)
}

// TestHistory_DefaultPage: without limit and offset the newest 50 rows of a node are answered.
func TestHistory_DefaultPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	for i := range 52 {
		move := []lifecycle.Transition[lifecycle.NodeStatus]{lifecycle.NodeQuarantine, lifecycle.NodeUnquarantine}[i%2]
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionNode(t.Context(), node.ID, move, move.Needs, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice", Comment: strconv.Itoa(i)})
			return err
		}))
	}
	var got, asked, rest struct {
		Data  []map[string]any
		Total int
	}
	path := "/api/v1/nodes/" + node.ID + "/history"
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Len(t, got.Data, 50)
	require.Equal(t, "51", got.Data[0]["comment"], "from the newest on")
	require.Equal(t, "2", got.Data[49]["comment"])
	w.do("GET", path+"?limit=50&offset=0", nil).want(http.StatusOK).into(&asked)
	require.Equal(t, asked, got)
	w.do("GET", path+"?offset=50", nil).want(http.StatusOK).into(&rest)
	require.Len(t, rest.Data, got.Total-50)
	require.Equal(t, "1", rest.Data[0]["comment"])
}

// TestNode_NamesOccupantByItsAllocation: where the pointer of a node and the allocation that
// occupies it differ, the API goes by the allocation.
func TestNode_NamesOccupantByItsAllocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, free := dbtest.FreeNode(t, w.store), dbtest.FreeNode(t, w.store)
	a := dbtest.Occupy(t, w.store, held.ID)
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE nodes SET allocation_id = CASE id WHEN $1 THEN $2 END WHERE id IN ($1, $3)", free.ID, a.ID, held.ID)
	require.NoError(t, err)
	type view struct {
		ID           string
		AllocationID string `json:"allocation_id"`
	}
	want := map[string]string{held.ID: a.ID, free.ID: ""}
	for id, occupant := range want {
		var one view
		w.do("GET", "/api/v1/nodes/"+id, nil).want(http.StatusOK).into(&one)
		require.Equal(t, view{id, occupant}, one)
	}
	var list struct{ Data []view }
	w.do("GET", "/api/v1/nodes", nil).want(http.StatusOK).into(&list)
	require.Len(t, list.Data, 2)
	for _, n := range list.Data {
		require.Equal(t, want[n.ID], n.AllocationID)
	}
}

// A user is an operator: what a sweeper, a job or the node itself did has none, and
// the timeline names whoever it was.
func TestHistoryNamesNoUserWhereNobodyActed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, c := range map[string]struct {
		node db.Node
		by   db.Actor
		move lifecycle.Transition[lifecycle.NodeStatus]
	}{
		`{"from_state":"installing","to_state":"install_failed","triggered_by":"system","user_id":null,"comment":null,"metadata":{}}`: {
			dbtest.PXENode(t, w.store, "52:54:00:00:0c:01", lifecycle.NodeInstalling), db.Actor{Owner: lifecycle.OwnerSystem, ID: "sweeper"}, lifecycle.PXEFail},
		`{"from_state":"enrolling","to_state":"quarantined","triggered_by":"workflow","user_id":null,"comment":"gave up","metadata":{}}`: {
			dbtest.Node(t, w.store, dbtest.Status(lifecycle.NodeEnrolling)), db.Actor{Owner: lifecycle.OwnerOnboarding, ID: "job_1", Comment: "gave up"}, lifecycle.NodeBlockOnboarding},
	} {
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionNode(t.Context(), c.node.ID, c.move, nil, c.by)
			return err
		}))
		var got struct{ Data []map[string]any }
		w.do("GET", "/api/v1/nodes/"+c.node.ID+"/history?limit=1", nil).want(http.StatusOK).into(&got)
		delete(got.Data[0], "id")
		delete(got.Data[0], "created_at")
		b, err := json.Marshal(got.Data[0])
		require.NoError(t, err)
		require.JSONEq(t, want, string(b))
		require.Contains(t, string(w.do("GET", "/api/v1/nodes/"+c.node.ID+"/timeline", nil).want(http.StatusOK).raw), `"actor":"`+c.by.ID+`"`)
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store)
	path := "/api/v1/nodes/" + node.ID
	w.do("PATCH", path, map[string]any{"labels": map[string]any{"rack": "7"}}).refused(problem.VersionMissing)
	tag := w.do("PATCH", path, map[string]any{"labels": map[string]any{"rack": "7", "row": "b"}}, header{"If-Match": "*"}).want(http.StatusOK).header.Get("ETag")
	w.do("PATCH", path, map[string]any{"labels": map[string]any{"rack": nil}}, header{"If-Match": `"1"`}).refused(problem.Stale)
	a := w.do("PATCH", path, map[string]any{"labels": map[string]any{"rack": nil}}, header{"If-Match": tag}).want(http.StatusOK)
	require.Contains(t, string(a.raw), `"labels":{"row":"b"}`)
	w.do("PATCH", path, map[string]any{"labels": map[string]any{"": "x"}}, header{"If-Match": "*"}).refused(problem.Invalid)
	w.do("PATCH", path, map[string]any{"status": "active"}, header{"If-Match": "*"}).refused(problem.Invalid)
	require.Contains(t, string(w.do("GET", path+"/timeline", nil).want(http.StatusOK).raw), "set_labels")
}

// TestOccupancies_NameTenantAndProof: between two tenants a node has rows that say what became of
// it, with the allocation and the certificate, and nothing of what the node's BMC was at a claim.
func TestOccupancies_NameTenantAndProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.FreeNode(t, w.store)
	at := "/api/v1/nodes/" + node.ID + "/occupancies"
	require.JSONEq(t, `{"data":[]}`, string(w.do("GET", at, nil).want(http.StatusOK).raw))
	a := dbtest.Occupy(t, w.store, node.ID)
	require.NoError(t, allocationdb.SetFirmwareSnapshot(t.Context(), w.store, a.ID, []byte(`{"bios": "1.2.3"}`)))
	require.NoError(t, allocationdb.EnterOccupancy(t.Context(), w.store, node.ID, lifecycle.OccupancyReleasing, a.ID, ""))
	require.NoError(t, allocationdb.EnterOccupancy(t.Context(), w.store, node.ID, lifecycle.OccupancySanitizing, a.ID, ""))
	certificate := dbtest.Certificate(t, w.store, node.ID, "clean", time.Now())
	require.NoError(t, allocationdb.EnterOccupancy(t.Context(), w.store, node.ID, lifecycle.OccupancyClean, a.ID, certificate))
	require.NoError(t, allocationdb.EnterOccupancy(t.Context(), w.store, node.ID, lifecycle.OccupancyFree, "", ""))
	type row struct {
		State         string
		AllocationID  string `json:"allocation_id"`
		CertificateID string `json:"certificate_id"`
		Since         time.Time
		Until         *time.Time
	}
	var first, second struct {
		Data   []row
		Cursor string `json:"next_cursor"`
	}
	one := w.do("GET", at+"?limit=3", nil).want(http.StatusOK)
	require.NotContains(t, string(one.raw), "1.2.3")
	one.into(&first)
	w.do("GET", at+"?limit=3&cursor="+first.Cursor, nil).want(http.StatusOK).into(&second)
	require.Empty(t, second.Cursor)
	all := append(first.Data, second.Data...)
	require.Len(t, all, 5)
	for i, want := range []row{{"free", "", "", time.Time{}, nil}, {"clean", a.ID, certificate, time.Time{}, nil}, {"sanitizing", a.ID, "", time.Time{}, nil}, {"releasing", a.ID, "", time.Time{}, nil}, {"allocated", a.ID, "", time.Time{}, nil}} {
		require.Equal(t, []string{want.State, want.AllocationID, want.CertificateID}, []string{all[i].State, all[i].AllocationID, all[i].CertificateID})
		if i == 0 {
			require.Nil(t, all[i].Until)
			continue
		}
		require.WithinDuration(t, all[i-1].Since, *all[i].Until, time.Second, "a row ends where the next one begins")
	}
	w.do("GET", "/api/v1/nodes/node_none/occupancies", nil).refused(problem.NotFound)
}
