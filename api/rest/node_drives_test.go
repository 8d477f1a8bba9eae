package rest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func (w *world) reportsDrives(node string, serials ...string) {
	w.t.Helper()
	r := &spec.HealthReport{}
	for _, s := range serials {
		r.Disks = append(r.Disks, spec.DiskReport{Serial: s, Bytes: 512})
	}
	require.NoError(w.t, w.store.RecordHeartbeats(w.t.Context(), []db.Heartbeat{{NodeID: node, BootID: "b", ReceivedAt: time.Now(), Report: r}}))
}

// An operator accepts the list that was read, and no other.
func TestAcceptNodeDrives(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	path := "/api/v1/nodes/" + n.ID + "/drives"
	var got rest.NodeDrives
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Empty(t, got.Source)
	accept := func(digest string) answer {
		return w.do("POST", path+"/accept", map[string]any{"reported_digest": digest, "reason": "a drive was replaced"})
	}
	accept(strings.Repeat("0", 64)).refused(problem.Conflict)
	w.reportsDrives(n.ID, "S1", "S2")
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.FreezeDrives(t.Context(), n.ID) }))
	w.reportsDrives(n.ID, "S1", "NEW")
	w.do("PATCH", "/api/v1/nodes/"+n.ID, map[string]any{"labels": map[string]any{lifecycle.LabelProtectSerials: "new1, S1\x00"}}, header{"If-Match": "*"}).refused(problem.Invalid)
	w.do("PATCH", "/api/v1/nodes/"+n.ID, map[string]any{"labels": map[string]any{lifecycle.LabelProtectSerials: "KEEP1"}}, header{"If-Match": "*"}).want(http.StatusOK)
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Equal(t, []contract.PlanDrive{{Serial: "S1", Bytes: 512}, {Serial: "S2", Bytes: 512}}, got.Expected)
	require.Equal(t, []contract.PlanDrive{{Serial: "NEW", Bytes: 512}, {Serial: "S1", Bytes: 512}}, got.Reported)
	require.Equal(t, []string{"KEEP1"}, got.ProtectSerials)
	w.reportsDrives(n.ID, "S1", "NEW", "EVIL")
	require.Contains(t, accept(got.ReportedDigest).refused(problem.Conflict).Detail, "other drives by now")
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	accept(got.ReportedDigest).want(http.StatusOK).into(&got)
	require.Equal(t, string(db.DrivesAccepted), got.Source)
	require.Equal(t, got.Reported, got.Expected)
}

// A start is refused when the drives are not those of the plan any more.
func TestDecommission_DrivesOfThePlan(t *testing.T) {
	t.Parallel()
	w, e := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	w.reportsDrives(n.ID, "S1")
	e.drives = []contract.PlanDrive{{Serial: "S1", Bytes: 512}}
	start := func(hash string) answer {
		return w.post(decommissions, map[string]any{"node_id": n.ID, "mode": "soft_reset", "plan_hash": hash})
	}
	old := w.planned(n.ID, lifecycle.ModeSoftReset)
	e.drives = append(e.drives, contract.PlanDrive{Serial: "S2", Bytes: 512})
	stale := start(old).refused(problem.PlanStale)
	require.Equal(t, "plan.drives", stale.Errors[len(stale.Errors)-1].Location)
	require.Contains(t, start(stale.PlanHash).refused(problem.PlanStale).Detail, "drives of the node were changed", "the database knows one drive")
	w.reportsDrives(n.ID, "S1", "S2")
	start(stale.PlanHash).want(http.StatusAccepted)
}
