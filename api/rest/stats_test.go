package rest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestStats_CountNodesAndTheirHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store)
	active := dbtest.Node(t, w.store, dbtest.At(site.ID), dbtest.Active())
	other := dbtest.Node(t, w.store, dbtest.At(site.ID))
	require.NoError(t, w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: active.ID, BootID: "b", Generation: 1, ReceivedAt: time.Now()}}))
	var counts struct {
		Total int64
		Data  []struct {
			Status              string
			Nodes, Fresh, Stale int64
		}
	}
	require.NoError(t, json.Unmarshal(w.do("GET", "/api/v1/nodes/counts", nil).want(http.StatusOK).raw, &counts))
	require.EqualValues(t, 2, counts.Total)
	fresh := map[string]int64{}
	for _, c := range counts.Data {
		require.Equal(t, c.Nodes, c.Fresh+c.Stale)
		fresh[c.Status] += c.Fresh
	}
	require.Equal(t, map[string]int64{"active": 1, string(other.Status): 0}, fresh)

	var fleet struct {
		Data []struct {
			At     time.Time
			States map[string]int64
		}
	}
	since := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	require.NoError(t, json.Unmarshal(w.do("GET", "/api/v1/stats/fleet?since="+since, nil).want(http.StatusOK).raw, &fleet))
	require.Greater(t, len(fleet.Data), 30)
	require.Less(t, len(fleet.Data), 200)
	require.Empty(t, fleet.Data[0].States, "an hour ago there was none")
	require.Equal(t, map[string]int64{"active": 1, string(other.Status): 1}, fleet.Data[len(fleet.Data)-1].States)
	for _, bad := range []string{time.Now().Add(time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-40 * 24 * time.Hour).UTC().Format(time.RFC3339)} {
		w.do("GET", "/api/v1/stats/fleet?since="+url.QueryEscape(bad), nil).want(http.StatusUnprocessableEntity)
	}
}

// The newest 500 jobs that succeeded count: their stage took 1 to 500 s, that of each older one
// 10000 s.
func TestStats_StageDurations(t *testing.T) {
	t.Parallel()
	w, dsn := openWorld(t)
	owner := dbtest.Owner(t, dsn)
	_, err := owner.Exec(t.Context(), "SET session_replication_role = replica") // rows without their way there
	require.NoError(t, err)
	const plant = `WITH planted AS (
		INSERT INTO jobs (id, kind, status, workflow_id, finished_at)
		SELECT 'job_' || $1 || i, $1, $2, 'w/' || $1 || $2 || i, now() - $3 * interval '1 day' - i * interval '1 second' FROM generate_series(1, $4::int) i
		RETURNING id)
		INSERT INTO job_stages (job_id, ordinal, name, state, worked_ms, started_at, finished_at)
		SELECT id, s.ordinal, s.name, s.state, s.worked, now() - interval '7 seconds', now()
		FROM planted, LATERAL (SELECT substr(id, 5 + length($1))::int AS i) n,
			LATERAL (VALUES (1, 'worked', 'succeeded', CASE WHEN i > 500 THEN 10000 ELSE i END * 1000), (2, 'skipped', 'skipped', 1000), (3, 'unmeasured', 'succeeded', 0)) s (ordinal, name, state, worked)`
	for _, p := range []struct {
		kind   contract.JobKind
		status string
		days   float64
		jobs   int
	}{{contract.KindOnboarding, "completed", 1, 520}, {contract.KindDecommission, "failed", 1, 3}, {contract.KindBMCRotation, "completed", 8, 3}} {
		_, err := owner.Exec(t.Context(), plant, string(p.kind), p.status, p.days, p.jobs)
		require.NoError(t, err)
	}
	stages := func(query string) []rest.StageStats {
		var out struct{ Data []rest.StageStats }
		w.do("GET", "/api/v1/stats/stages"+query, nil).want(http.StatusOK).into(&out)
		return out.Data
	}
	kind := string(contract.KindOnboarding)
	want := []rest.StageStats{{Kind: kind, Stage: "worked", Jobs: 500, P50: 250.5, P90: 450.1}, {Kind: kind, Stage: "unmeasured", Jobs: 500, P50: 7, P90: 7}}
	got := stages("")
	require.Len(t, got, len(want), "no job that failed, none before the window, no stage that was skipped")
	for i := range want {
		require.InDeltaSlice(t, []float64{want[i].P50, want[i].P90}, []float64{got[i].P50, got[i].P90}, 1e-6)
		got[i].P50, got[i].P90 = want[i].P50, want[i].P90
	}
	require.Equal(t, want, got)
	require.Len(t, stages("?kind="+kind), 2)
	require.Empty(t, stages("?kind="+string(contract.KindDecommission)))
	w.do("GET", "/api/v1/stats/stages?kind=none", nil).want(http.StatusUnprocessableEntity)
}

func TestNodes_FilterByIDsAndStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	active := dbtest.Node(t, w.store, dbtest.Active())
	other := dbtest.Node(t, w.store)
	list := func(query string) (ids []string) {
		var page struct{ Data []struct{ ID string } }
		require.NoError(t, json.Unmarshal(w.do("GET", "/api/v1/nodes?"+query, nil).want(http.StatusOK).raw, &page))
		for _, n := range page.Data {
			ids = append(ids, n.ID)
		}
		return ids
	}
	require.Equal(t, []string{other.ID}, list("ids="+other.ID))
	require.ElementsMatch(t, []string{active.ID, other.ID}, list("ids="+other.ID+"&ids="+active.ID))
	require.Equal(t, []string{active.ID}, list("status=active"))
	require.ElementsMatch(t, []string{active.ID, other.ID}, list("status=active&status="+string(other.Status)))
	w.do("GET", "/api/v1/nodes?status=active&status=none", nil).want(http.StatusUnprocessableEntity)
	many := url.Values{"ids": make([]string, 201)}
	w.do("GET", "/api/v1/nodes?"+many.Encode(), nil).want(http.StatusUnprocessableEntity)
}

func TestAudit_IsSearched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	for range 3 {
		require.NoError(t, w.store.AppendAudit(t.Context(), db.Entry{
			ResourceKind: "api_token", ResourceID: "tok_x", Kind: db.EntryAction, Name: "revoke", Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:alice"},
		}))
	}
	type page struct {
		Data       []struct{ ID, Name, Actor string }
		NextCursor string `json:"next_cursor"`
	}
	search := func(query string) (p page) {
		require.NoError(t, json.Unmarshal(w.do("GET", "/api/v1/admin/audit?"+query, nil).want(http.StatusOK).raw, &p))
		return p
	}
	require.Len(t, search("actor=oidc:alice").Data, 3)
	require.Len(t, search("actor=oidc:bob").Data, 0)
	require.Len(t, search("kind=action&name=revoke&resource_kind=api_token&resource_id=tok_x").Data, 3)
	require.NotEmpty(t, search("node_id="+node.ID).Data)
	first := search("actor=oidc:alice&limit=2")
	require.Len(t, first.Data, 2)
	rest := search("actor=oidc:alice&limit=2&cursor=" + url.QueryEscape(first.NextCursor))
	require.Len(t, rest.Data, 1)
	require.NotContains(t, []string{first.Data[0].ID, first.Data[1].ID}, rest.Data[0].ID)
	require.Empty(t, search("actor=oidc:alice&until="+url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))).Data)
	day := func(n int) string { return time.Date(2024, 1, n, 0, 0, 0, 0, time.UTC).Format(time.RFC3339) }
	require.Empty(t, search("since="+day(1)+"&until="+day(401)).Data)
	refused := w.do("GET", "/api/v1/admin/audit?since="+day(1)+"&until="+day(402), nil).want(http.StatusUnprocessableEntity)
	require.Contains(t, string(refused.raw), "in several steps")
	w.do("GET", "/api/v1/admin/audit?since="+day(1), nil).want(http.StatusUnprocessableEntity)
	w.do("GET", "/api/v1/admin/audit?cursor=x", nil).want(http.StatusUnprocessableEntity)
	w.do("GET", "/api/v1/admin/audit", nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).want(http.StatusForbidden)
}
