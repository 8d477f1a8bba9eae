package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	resthardware "github.com/slipway-cloud/slipway/api/rest/hardware"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// bmcOf gives a node a BMC.
func (w *world) bmcOf(node string) string {
	w.t.Helper()
	return w.bmcAt(node, "https://127.0.0.9")
}

func (w *world) bmcAt(node, address string) string {
	w.t.Helper()
	rec, err := w.store.CreateBMC(w.t.Context(), db.NewBMC{NodeID: &node, Address: address, Protocol: "redfish", CredentialRef: "x"})
	require.NoError(w.t, err)
	return rec.ID
}

// TestNodeHealth_MergesItsSources: nothing that was not read is ok, and the worst comes first.
func TestNodeHealth_MergesItsSources(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	path := "/api/v1/nodes/" + n.ID + "/health"
	read := func() (out resthardware.NodeHealth) {
		t.Helper()
		w.do("GET", path, nil).want(http.StatusOK).into(&out)
		return out
	}
	got := read()
	require.Equal(t, "unknown", got.Class)
	for _, p := range got.Probes {
		require.Equal(t, "unknown", p.Class, "%+v", p)
	}
	require.GreaterOrEqual(t, len(got.Probes), len(hardware.Categories()))

	bmc, mib, no, none := w.bmcOf(n.ID), int64(1<<20), false, 0
	report := &spec.HealthReport{MemoryMiB: &mib, GPUs: []spec.GPUReport{{UUID: "G0", RemapFailed: &no, UncorrectedECC: &none}}, NICs: []spec.NICReport{{Name: "eno1", Up: true}},
		Units: []spec.UnitReport{{Name: "gpud.service", State: "failed"}}}
	heartbeat := func(at time.Time) {
		require.NoError(t, w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "b", ReceivedAt: at, Report: report}}))
	}
	heartbeat(time.Now())
	survey := hardwaredb.Reading{BMCID: bmc, At: time.Now(), Health: "Critical", Probes: []hardware.PartHealth{
		{Target: "/leak/1", Category: hardware.CategoryLeak, Health: "Critical"}, {Target: "/fan/1", Category: hardware.CategoryThermal, Health: "OK"},
		{Target: "/psu/1", Category: hardware.CategoryPower, Health: "Unknown", Note: "forbidden (HTTP 403)"},
	}}
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, survey))
	got = read()
	require.Equal(t, "critical", got.Class)
	require.NotNil(t, got.BMCAt)
	require.NotNil(t, got.AgentAt)
	byTarget := map[string]resthardware.HealthProbe{}
	for i, p := range got.Probes {
		byTarget[p.Source+" "+p.Target] = p
		require.NotEmpty(t, p.ID)
		require.True(t, i > 1 || p.Class == "critical", "the worst come first")
	}
	for target, class := range map[string]string{
		"bmc /leak/1": "critical", "bmc /fan/1": "ok", "bmc /psu/1": "unknown", "agent unit gpud.service": "critical", "agent GPU 0 G0": "ok", "agent memory": "ok",
	} {
		require.Equal(t, class, byTarget[target].Class, target)
		require.NotNil(t, byTarget[target].ObservedAt, target)
	}
	survey.At, survey.Health = time.Now().Add(-48*time.Hour), "OK"
	old := w.nodeIn(lifecycle.NodeActive)
	survey.BMCID = w.bmcAt(old.ID, "https://127.0.0.10")
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, survey))
	path = "/api/v1/nodes/" + old.ID + "/health"
	for _, p := range read().Probes {
		require.NotEqual(t, "ok", p.Class, "what was read two days ago: %+v", p)
	}
	w.do("GET", "/api/v1/nodes/node_nobody/health", nil).refused(problem.NotFound)
}

// TestNodeInventory lists what BMC and agent told, each with its source.
func TestNodeInventory(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	path := "/api/v1/nodes/" + n.ID + "/inventory"
	var got resthardware.NodeInventory
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Empty(t, got.Parts)
	reading := hardwaredb.Reading{BMCID: w.bmcOf(n.ID), At: time.Now(), Health: "OK", Whole: hardware.Kinds(), Partial: []string{"/x: forbidden"}, Parts: []hardware.Part{
		{Kind: hardware.DPU, URI: "/dpu", Serial: "MT1", Model: "BlueField-3", Mode: hardware.ModeDPU, Firmware: "32.41", PartNumber: "900", Slot: "7"}, {Kind: hardware.PSU, URI: "/psu/0"},
	}}
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, reading))
	reading.At, reading.Parts = reading.At.Add(time.Minute), reading.Parts[:1]
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, reading))
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Len(t, got.Parts, 2)
	dpu, psu := got.Parts[0], got.Parts[1]
	require.Equal(t, "bmc dpu MT1 false BlueField-3 DPU 32.41 900 7", fmt.Sprint(dpu.Source, " ", dpu.Kind, " ", dpu.ID, " ", dpu.Derived, " ", dpu.Model, " ", dpu.Mode, " ", dpu.Firmware, " ", dpu.PartNumber, " ", dpu.Slot))
	require.True(t, dpu.LastSeen.After(dpu.FirstSeen))
	require.True(t, psu.Derived && psu.Gone)
	require.Len(t, got.Changes, 1)
	require.Equal(t, "gone", got.Changes[0].What)
	require.Equal(t, []string{"/x: forbidden"}, got.Partial)
}

// TestRackDevices: a switch tray has a record of its own, is listed with its health, and is no
// node.
func TestRackDevices(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	site := w.site
	body := map[string]any{"site_id": site.ID, "kind": "switch_tray", "name": "tray-1", "rack": "A1", "address": "10.0.0.44", "credential_ref": "bmc/a"}
	var made resthardware.RackDevice
	w.post("/api/v1/admin/rack-devices", body).want(http.StatusCreated).into(&made)
	require.Equal(t, "unknown", made.Class, "nothing was read")
	w.post("/api/v1/admin/rack-devices", body).refused(problem.Conflict)
	body["address"] = "10.0.0.45"
	w.post("/api/v1/admin/rack-devices", body).refused(problem.Conflict)
	body["address"], body["name"] = "10.0.0.46/path", "tray-2"
	w.post("/api/v1/admin/rack-devices", body).refused(problem.Invalid)
	body["kind"] = "node"
	w.post("/api/v1/admin/rack-devices", body).refused(problem.Invalid)

	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, hardwaredb.Reading{
		BMCID: made.BMCID, At: time.Now(), Health: "Warning", Probes: []hardware.PartHealth{{Target: "/fan", Category: hardware.CategoryThermal, Health: "Warning"}},
		Parts: []hardware.Part{{Kind: hardware.BMC, URI: "/bmc", Firmware: "88.2"}},
	}))
	var listed op.List[resthardware.RackDevice]
	w.do("GET", "/api/v1/admin/rack-devices?site_id="+site.ID, nil).want(http.StatusOK).into(&listed)
	require.Len(t, listed.Data, 1)
	require.Equal(t, "warning", listed.Data[0].Class)
	var one resthardware.RackDeviceDetails
	w.do("GET", "/api/v1/admin/rack-devices/"+made.ID, nil).want(http.StatusOK).into(&one)
	require.Equal(t, "88.2", one.Parts[0].Firmware)
	require.Equal(t, "warning", one.Probes[0].Class)
	require.NotContains(t, string(w.do("GET", "/api/v1/nodes", nil).want(http.StatusOK).raw), "tray-1")

	w.do("DELETE", "/api/v1/admin/rack-devices/"+made.ID, nil).want(http.StatusNoContent)
	w.do("GET", "/api/v1/admin/rack-devices/"+made.ID, nil).refused(problem.NotFound)
	w.do("GET", "/api/v1/admin/bmcs/"+made.BMCID, nil).refused(problem.NotFound)
}

// TestNodeBMCLog is read by cursor and time, and the cursor of the last page continues it.
func TestNodeBMCLog(t *testing.T) {
	t.Parallel()
	w, _ := planWorld(t)
	n := w.nodeIn(lifecycle.NodeActive)
	path := "/api/v1/nodes/" + n.ID + "/bmc-log"
	w.do("GET", path, nil).refused(problem.NotFound)
	bmc, noon := w.bmcOf(n.ID), time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	record := func(from, to int) {
		var all []hardware.LogEntry
		for i := from; i < to; i++ {
			all = append(all, hardware.LogEntry{Service: "SEL", ID: fmt.Sprint(i), Severity: "Warning", Message: fmt.Sprint("entry ", i), Created: noon.Add(time.Duration(i) * time.Second)})
		}
		_, err := hardwaredb.RecordLogs(t.Context(), w.store, hardwaredb.LogReading{BMCID: bmc, At: time.Now(), Entries: all})
		require.NoError(t, err)
	}
	record(0, 5)
	var page resthardware.BMCLogPage
	w.do("GET", path+"?limit=3", nil).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 3)
	require.True(t, page.More)
	require.NotNil(t, page.ReadAt)
	w.do("GET", path+"?limit=3&cursor="+page.NextCursor, nil).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 2)
	require.False(t, page.More)
	end := page.NextCursor
	record(5, 6)
	w.do("GET", path+"?cursor="+end, nil).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 1)
	require.Equal(t, "entry 5", page.Data[0].Message)
	w.do("GET", "/api/v1/admin/bmcs/"+bmc+"/log?since="+noon.Add(2*time.Second).Format(time.RFC3339)+"&until="+noon.Add(4*time.Second).Format(time.RFC3339), nil).want(http.StatusOK).into(&page)
	require.Len(t, page.Data, 2)
	w.do("GET", path+"?cursor=nonsense!", nil).refused(problem.Invalid)
	w.do("GET", path+"?since="+noon.Format(time.RFC3339)+"&until="+noon.Format(time.RFC3339), nil).refused(problem.Invalid)
	w.do("GET", "/api/v1/admin/bmcs/bmc_nobody/log", nil).refused(problem.NotFound)
}
