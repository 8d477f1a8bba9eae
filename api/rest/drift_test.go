package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

type driftPage struct {
	Data       []rest.Drift
	NextCursor string `json:"next_cursor"`
}

// drifts makes the store see a fault of a node.
func drifts(t *testing.T, s *db.Store, n db.Node, detector, key string, evidence map[string]any) rest.Drift {
	t.Helper()
	d, known := lifecycle.DriftDetectorOf(detector)
	require.True(t, known, detector)
	_, err := driftdb.ObserveFindings(t.Context(), s, n.SiteID, []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: key, Message: "seen " + key, Evidence: evidence}})
	require.NoError(t, err)
	rows, err := driftdb.ListFindings(t.Context(), s, driftdb.Filter{NodeID: n.ID, Detector: detector}, "", 1)
	require.NoError(t, err)
	return rest.Drift{ID: rows[0].Finding.ID}
}

func TestDriftIsListedReadAndFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer := header{"Authorization": "Bearer " + w.tokens["viewer"]}
	n, other := dbtest.Node(t, w.store, dbtest.Active()), dbtest.Node(t, w.store, dbtest.Active())
	absent := drifts(t, w.store, n, lifecycle.DriftMachineAbsent, "abc123", map[string]any{"system_id": "abc123"})
	skew := drifts(t, w.store, n, lifecycle.DriftClockSkew, "ahead", nil)
	gpus := drifts(t, w.store, other, lifecycle.DriftGPUCount, "7 of 8", nil)

	list := func(query string) []string {
		var page driftPage
		w.do("GET", "/api/v1/admin/drift"+query, nil, viewer).want(http.StatusOK).into(&page)
		ids := []string{}
		for _, d := range page.Data {
			ids = append(ids, d.ID)
		}
		return ids
	}
	require.Equal(t, []string{gpus.ID, skew.ID, absent.ID}, list(""), "newest first")
	require.Equal(t, []string{absent.ID}, list("?detector=machine_absent"))
	require.Equal(t, []string{gpus.ID, absent.ID}, list("?severity=critical&status=open"))
	require.Equal(t, []string{skew.ID, absent.ID}, list("?node_id="+n.ID))
	require.Equal(t, []string{gpus.ID}, list("?site_id="+other.SiteID))
	require.Empty(t, list("?status=closed"))
	var first driftPage
	w.do("GET", "/api/v1/admin/drift?limit=2", nil, viewer).want(http.StatusOK).into(&first)
	require.Len(t, first.Data, 2)
	require.Equal(t, []string{absent.ID}, list("?limit=2&cursor="+url.QueryEscape(first.NextCursor)))
	w.do("GET", "/api/v1/admin/drift?status=gone", nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/admin/drift?detector=bogus", nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/admin/drift/drift_none", nil).refused(problem.NotFound)

	var one rest.Drift
	got := w.do("GET", "/api/v1/admin/drift/"+absent.ID, nil, viewer).want(http.StatusOK)
	got.into(&one)
	require.NotEmpty(t, got.header.Get("ETag"))
	require.Equal(t, n.Hostname, one.Hostname)
	require.Equal(t, []lifecycle.DriftAction{lifecycle.DriftQuarantine, lifecycle.DriftIgnore}, one.AllowedActions)
	require.NotEmpty(t, one.NextAction)
	require.JSONEq(t, `{"system_id": "abc123"}`, string(one.Evidence))
}

func TestADecisionAboutDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	f := drifts(t, w.store, n, lifecycle.DriftGPUCount, "7 of 8", nil)
	path := "/api/v1/admin/drift/" + f.ID + "/actions/"
	reason := map[string]any{"reason": "I looked"}
	operator := header{"Authorization": "Bearer " + w.tokens["operator"]}
	w.do("POST", path+"ignore", reason, header{"Authorization": "Bearer " + w.tokens["viewer"]}).refused(problem.Forbidden)
	w.do("POST", path+"ignore", map[string]any{}).refused(problem.Invalid)
	w.do("POST", path+"forget", reason).refused(problem.Invalid)
	w.do("POST", path+"adopt", reason).refused(problem.Conflict)
	w.do("POST", "/api/v1/admin/drift/drift_none/actions/ignore", reason).refused(problem.NotFound)
	w.do("POST", path+"ignore", reason, header{"If-Match": `"77"`}).refused(problem.Stale)

	var got rest.Drift
	answer := w.do("POST", path+"ignore", reason, operator, header{"If-Match": `"1"`}).want(http.StatusOK)
	answer.into(&got)
	require.Equal(t, "ignored", got.Status)
	require.Equal(t, "ignore", got.Action)
	require.Equal(t, "I looked", got.ActedReason)
	require.Equal(t, []lifecycle.DriftAction{lifecycle.DriftQuarantine}, got.AllowedActions, "what is done is not offered again")
	etag := answer.header.Get("ETag")
	require.Equal(t, etag, w.do("POST", path+"ignore", reason, operator).want(http.StatusOK).header.Get("ETag"), "a repetition changes nothing")
	require.Empty(t, w.attention("?kind=drift").Data)
	drifts(t, w.store, n, lifecycle.DriftGPUCount, "7 of 8", nil)
	require.Empty(t, w.attention("?kind=drift").Data, "the same fault stays ignored")
	drifts(t, w.store, n, lifecycle.DriftGPUCount, "6 of 8", nil)
	open := w.attention("?kind=drift").Data
	require.Len(t, open, 1, "another fault of the kind does not")
	require.Equal(t, "/api/v1/admin/drift/"+f.ID, open[0].Link)
	require.Equal(t, []string{"quarantine", "ignore"}, open[0].AllowedActions)
	require.Equal(t, lifecycle.DriftGPUCount, open[0].Stage)
	require.Equal(t, n.Hostname, open[0].Hostname)

	w.do("POST", path+"quarantine", reason, operator).want(http.StatusOK).into(&got)
	require.Equal(t, "open", got.Status, "a quarantine fixes nothing")
	after, err := w.store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeQuarantined, after.Status)
	w.do("POST", path+"quarantine", reason, operator).want(http.StatusOK)
	history, _, err := w.store.NodeHistory(t.Context(), n.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "quarantine", history[0].Name)
	require.Equal(t, "admin", history[0].Owner)
	require.Contains(t, *history[0].Comment, "gpu_count_differs: seen 6 of 8")
	line, err := w.store.ResourceTimeline(t.Context(), "drift", f.ID, 0, 10)
	require.NoError(t, err)
	require.Len(t, line, 2, "each decision once")
	require.Equal(t, "quarantine", line[0].Name)
}

// TestALiveJobOwnsItsNode: neither adopt nor quarantine gets in its way.
func TestALiveJobOwnsItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	f := drifts(t, w.store, n, lifecycle.DriftBootUnannounced, "boot-2", map[string]any{"boot_id": "boot-2"})
	job := dbtest.Job(t, w.store, dbtest.On(n.ID), dbtest.Kind("decommission"))
	for _, action := range []string{"adopt", "quarantine"} {
		p := w.do("POST", "/api/v1/admin/drift/"+f.ID+"/actions/"+action, map[string]any{"reason": "now"}).refused(problem.LiveJob)
		require.Equal(t, job.ID, p.Existing)
	}
	after, err := w.store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeActive, after.Status)
}

func TestAdoptClosesAFinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := dbtest.Node(t, w.store, dbtest.Active())
	f := drifts(t, w.store, n, lifecycle.DriftBootUnannounced, "boot-2", map[string]any{"boot_id": "boot-2"})
	var got rest.Drift
	for range 2 {
		w.do("POST", "/api/v1/admin/drift/"+f.ID+"/actions/adopt", map[string]any{"reason": "a power cut"}).want(http.StatusOK).into(&got)
		require.Equal(t, "closed", got.Status)
		require.Contains(t, got.Outcome, "adopted by")
		require.Empty(t, got.AllowedActions)
	}
	w.do("POST", "/api/v1/admin/drift/"+f.ID+"/actions/ignore", map[string]any{"reason": "late"}).refused(problem.Conflict)
}

// TestDrift_OfNodesWithoutSite shows their pass last, on any page, and offers no quarantine of a
// node that has no such state.
func TestDrift_OfNodesWithoutSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store, dbtest.Named("south"))
	n := dbtest.PXENode(t, w.store, "52:54:00:00:64:01", lifecycle.NodeActive)
	for _, id := range []string{"", site.ID} {
		pass, err := driftdb.BeginPass(t.Context(), w.store, id, -time.Second)
		require.NoError(t, err)
		require.NoError(t, driftdb.FinishPass(t.Context(), w.store, pass, "", []byte(`{"nodes": 1}`)))
	}
	var page struct {
		Data       []rest.DriftPass
		NextCursor string `json:"next_cursor"`
	}
	w.do("GET", "/api/v1/admin/drift-passes?limit=1", nil).want(http.StatusOK).into(&page)
	require.Equal(t, "south", page.Data[0].Site)
	next := page.NextCursor
	page.NextCursor = ""
	w.do("GET", "/api/v1/admin/drift-passes?limit=1&cursor="+next, nil).want(http.StatusOK).into(&page)
	require.Equal(t, []string{"", ""}, []string{page.Data[0].SiteID, page.Data[0].Site})
	require.Empty(t, page.NextCursor)
	var says []string
	for _, a := range w.attention("?kind=reconcile").Data {
		says = append(says, a.Message)
	}
	require.Contains(t, strings.Join(says, "\n"), "the nodes that boot from the network have not been compared")

	d, _ := lifecycle.DriftDetectorOf(lifecycle.DriftAgentSilent)
	_, err := driftdb.ObserveFindings(t.Context(), w.store, "", []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: "k", Message: "m"}})
	require.NoError(t, err)
	var findings driftPage
	w.do("GET", "/api/v1/admin/drift?node_id="+n.ID, nil).want(http.StatusOK).into(&findings)
	require.Equal(t, []lifecycle.DriftAction{lifecycle.DriftIgnore}, findings.Data[0].AllowedActions)
}

func TestPassesAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store, dbtest.Named("south"))
	pass, err := driftdb.BeginPass(t.Context(), w.store, site.ID, time.Hour)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), w.store, pass, "the region is away", []byte(`{"nodes": 3}`)))
	var page struct{ Data []rest.DriftPass }
	w.do("GET", "/api/v1/admin/drift-passes", nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 1)
	require.Equal(t, "south", page.Data[0].Site)
	require.Equal(t, "the region is away", page.Data[0].Problem)
	require.Nil(t, page.Data[0].FinishedAt)
	require.False(t, page.Data[0].Late)
	late, err := driftdb.BeginPass(t.Context(), w.store, site.ID, -time.Second)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), w.store, late, "", []byte(`{}`)))
	w.do("GET", "/api/v1/admin/drift-passes", nil).want(http.StatusOK).into(&page)
	require.True(t, page.Data[0].Late)
	attention := w.attention("?kind=reconcile").Data
	require.Len(t, attention, 1)
	require.Equal(t, site.ID, attention[0].SiteID)
	require.Equal(t, "/api/v1/admin/drift-passes", attention[0].Link)
}
