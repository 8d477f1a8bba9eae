package rest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func enqueue(t *testing.T, s *db.Store, node, key string) db.NodeTask {
	t.Helper()
	var got db.NodeTask
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		got, _, err = tx.EnqueueTask(t.Context(), db.NewTask{NodeID: node, Kind: lifecycle.TaskKindScrub, Args: json.RawMessage(`{"run_id": "r"}`), Key: key,
			Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "the job"}})
		return err
	}))
	return got
}

// claimed hands a new task of a node out, for no time at all.
func claimed(t *testing.T, s *db.Store, dsn, node, key string) db.NodeTask {
	t.Helper()
	enqueue(t, s, node, key)
	alter(t, dsn, "INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
		"VALUES ('"+node+"', 1, '1', sha256('k'), 'PEM', now(), now()) ON CONFLICT DO NOTHING",
		"INSERT INTO agent_identities (node_id, generation) VALUES ('"+node+"', 1) ON CONFLICT DO NOTHING")
	got, err := s.ClaimTask(t.Context(), db.TaskClaim{NodeID: node, BootID: "boot", Generation: 1, Lease: time.Nanosecond})
	require.NoError(t, err)
	require.NotNil(t, got.Task)
	return *got.Task
}

func uncertainTask(t *testing.T, s *db.Store, dsn string) db.NodeTask {
	t.Helper()
	got := claimed(t, s, dsn, dbtest.Node(t, s, dbtest.Active()).ID, "k")
	settled, err := s.SettleTasks(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, settled.Uncertain)
	return got
}

type taskPage struct {
	Data       []rest.Task
	NextCursor string `json:"next_cursor"`
}

func TestTasksOfANode(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store = store })
	w.sameStore(store)
	node := dbtest.Node(t, store, dbtest.Active()).ID
	path := "/api/v1/nodes/" + node + "/tasks"
	viewer := header{"Authorization": "Bearer " + w.tokens["viewer"]}
	w.do("GET", "/api/v1/nodes/node_none/tasks", nil).refused(problem.NotFound)
	w.do("GET", "/api/v1/tasks/task_none", nil).refused(problem.NotFound)
	w.do("GET", path+"?status=lost", nil).refused(problem.Invalid)
	var none taskPage
	w.do("GET", path, nil, viewer).want(http.StatusOK).into(&none)
	require.Empty(t, none.Data)

	first := claimed(t, store, dsn, node, "1")
	_, err := store.FinishTask(t.Context(), db.TaskFence{NodeID: node, TaskID: first.ID, LeaseID: first.LeaseID, Attempt: 1},
		lifecycle.TaskResult{Code: lifecycle.TaskCodeStepFailed, Message: "nvme0 is busy", Simulated: true, Steps: []lifecycle.StepResult{{Name: "wipe"}}})
	require.NoError(t, err)
	want := []string{enqueue(t, store, node, "3").ID, enqueue(t, store, node, "2").ID}
	want = append([]string{want[1], want[0]}, first.ID)
	var got []string
	for cursor, pages := "", 0; ; pages++ {
		require.Less(t, pages, 3)
		var page taskPage
		w.do("GET", path+"?limit=2&cursor="+url.QueryEscape(cursor), nil, viewer).want(http.StatusOK).into(&page)
		for _, i := range page.Data {
			got = append(got, i.ID)
			require.Nil(t, i.Result, "a list is short")
			require.Empty(t, i.Args)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, want, got, "newest first")
	var failed taskPage
	w.do("GET", path+"?status=failed&kind=gpu.scrub", nil, viewer).want(http.StatusOK).into(&failed)
	require.Len(t, failed.Data, 1)
	require.Equal(t, lifecycle.TaskCodeStepFailed, failed.Data[0].Code)
	require.True(t, failed.Data[0].Simulated)
	var one rest.Task
	w.do("GET", "/api/v1/tasks/"+first.ID, nil, viewer).want(http.StatusOK).into(&one)
	require.Equal(t, "wipe", one.Result.Steps[0].Name)
	require.JSONEq(t, `{"run_id": "r"}`, string(one.Args))
	require.Equal(t, "nvme0 is busy", one.Message)
	require.Nil(t, one.LeaseUntil)
	require.NotNil(t, one.FinishedAt)
}

func TestAnUncertainTaskIsRequeuedWithAReason(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	w := newWorld(t, func(c *httpapi.Config) { c.API.Store = store })
	w.sameStore(store)
	task := uncertainTask(t, store, dsn)
	path := "/api/v1/admin/tasks/" + task.ID + "/requeue"
	reason := map[string]any{"reason": "nothing was begun"}
	w.do("POST", path, reason, header{"Authorization": "Bearer " + w.tokens["viewer"]}).refused(problem.Forbidden)
	w.do("POST", path, map[string]any{}).refused(problem.Invalid)
	w.do("POST", path, map[string]any{"reason": ""}).refused(problem.Invalid)
	w.do("POST", "/api/v1/admin/tasks/task_none/requeue", reason).refused(problem.NotFound)
	require.Len(t, w.attention("?kind=task_uncertain").Data, 1)
	var got rest.Task
	w.do("POST", path, reason, header{"Authorization": "Bearer " + w.tokens["operator"]}).want(http.StatusOK).into(&got)
	require.Equal(t, lifecycle.TaskQueued, got.Status)
	require.Empty(t, w.attention("?kind=task_uncertain").Data)
	w.do("POST", path, reason).refused(problem.IllegalTransition)
	line, err := store.ResourceTimeline(t.Context(), "node_task", task.ID, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "requeue", line[0].Name)
	require.Equal(t, "nothing was begun", *line[0].Comment)
	require.Equal(t, "admin", line[0].Owner)
	node, err := store.Node(t.Context(), task.NodeID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeActive, node.Status)
}

// sameStore makes the world's tokens good in the store that the API was given.
func (w *world) sameStore(s *db.Store) {
	w.t.Helper()
	w.store = s
	for _, role := range []string{"viewer", "operator", "admin"} {
		var err error
		w.tokens[role], err = op.CreateToken(w.t.Context(), s, "own-"+role, []string{role}, time.Hour)
		require.NoError(w.t, err)
	}
}
