package redfishsim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestAdminPort(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	admin, stop, err := r.s.StartAdmin(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer stop()
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequest(method, admin+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := r.http.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(b)
	}
	post := func(path, body string, want int) {
		t.Helper()
		status, text := ask("POST", path, body)
		require.Equal(t, want, status, text)
	}
	post("/faults", `{"name":"conflict_on","count":2}`, 204)
	post("/faults", `{"name":"gremlin"}`, 400)
	post("/faults", `{"nom":"conflict_on"}`, 400)
	require.Equal(t, 409, r.reset("On").status)
	_, text := ask("GET", "/faults", "")
	require.JSONEq(t, `[{"name":"conflict_on","count":1}]`, text)
	status, _ := ask("DELETE", "/faults", "")
	require.Equal(t, 204, status)
	require.Less(t, r.reset("On").status, 300)
	r.settle(simhw.On)
	_, text = ask("GET", "/counters", "")
	var c redfishsim.Counters
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	require.Equal(t, 1, c.Resets["On"])
	require.Equal(t, 1, c.Faults["conflict_on"])

	drive := r.system() + "/Storage/CPU.1/Drives/Disk.Bay.2:Enclosure.Internal.0-1"
	post("/health", `{"path":"`+drive+`","health":"Critical"}`, 204)
	post("/health", `{"path":"/redfish/v1/Nowhere","health":"Critical"}`, 400)
	require.Equal(t, "Critical", r.get(drive).obj["Status"].(m)["Health"])
	post("/log", `{"severity":"Critical","message":"Uncorrectable ECC error."}`, 204)
	require.Contains(t, string(r.get("/redfish/v1/Managers/iDRAC.Embedded.1/LogServices/Sel/Entries").raw), "Uncorrectable ECC")
	before := r.m.Clock().Now()
	post("/clock", `{"step":"1h"}`, 204)
	post("/clock", `{"step":"soon"}`, 400)
	require.Greater(t, r.m.Clock().Now().Sub(before), time.Hour)
	post("/down", `{"down":true}`, 204)
	_, err = r.try("GET", "/redfish/v1", nil)
	require.Error(t, err)
	post("/down", `{"down":false}`, 204)
	r.get("/redfish/v1")
}

func TestSensorsFollowThePower(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	fan := "/redfish/v1/Chassis/1/Sensors/Fan1"
	require.EqualValues(t, 0, r.get(fan).obj["Reading"])
	r.reset("On")
	r.settle(simhw.On)
	require.EqualValues(t, 9800, r.get(fan).obj["Reading"])
	require.NoError(t, r.s.SetHealth(fan, "Critical"))
	require.Contains(t, string(r.get("/redfish/v1/Chassis/1/Thermal").raw), `"Health":"Critical"`)
	require.Len(t, r.get("/redfish/v1/Chassis/1/Sensors").members(), 18)
}

func TestLogPagesAndClears(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Lenovo")
	for range 250 {
		r.s.AddLogEntry("Warning", "again")
	}
	base := "/redfish/v1/Systems/1/LogServices/PlatformLog"
	require.Len(t, r.get(base+"/Entries").members(), 200, "the oldest go first")
	page := r.get(base + "/Entries?$skip=10&$top=5")
	require.Len(t, page.members(), 5)
	require.Equal(t, base+"/Entries?$skip=15&$top=5", page.obj["Members@odata.nextLink"])
	require.EqualValues(t, 200, page.obj["Members@odata.count"])
	require.Equal(t, "again", r.get(page.members()[0]).obj["Message"])
	require.Less(t, r.do("POST", base+"/Actions/LogService.ClearLog", m{}).status, 300)
	require.Empty(t, r.get(base+"/Entries").members())
	expanded := r.get("/redfish/v1/Chassis?$expand=.($levels=1)").obj["Members"].([]any)
	require.Equal(t, r.m.Spec().Serial, expanded[0].(m)["SerialNumber"])
}

func TestNewAndStartRefuseBadInput(t *testing.T) {
	t.Parallel()
	_, err := redfishsim.New(redfishsim.Options{})
	require.ErrorContains(t, err, "Machine is needed")
	machine := simhw.NewMachine(t.Context(), simhw.NewClock(1), simhw.Spec{ID: "x", Vendor: "Acme"})
	_, err = redfishsim.New(redfishsim.Options{Machine: machine})
	require.ErrorContains(t, err, `no BMC personality "Acme"`)
	s, err := redfishsim.New(redfishsim.Options{Machine: machine, Personality: "dell"})
	require.NoError(t, err)
	require.Equal(t, "root", machine.Spec().BMCUser)
	require.NotEmpty(t, machine.Spec().BMCPassword)
	_, _, err = s.Start(t.Context(), "127.0.0.1:notaport")
	require.ErrorContains(t, err, "listen")
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	machine := simhw.NewMachine(ctx, simhw.NewClock(1), simhw.GPUServer("Dell", 1))
	s, err := redfishsim.New(redfishsim.Options{Machine: machine})
	require.NoError(t, err)
	url, stop, err := s.Start(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	defer stop()
	cancel()
	client := &http.Client{Timeout: time.Second}
	require.Eventually(t, func() bool {
		res, err := client.Get(url + "/redfish/v1")
		if err == nil {
			_ = res.Body.Close()
		}
		return err != nil
	}, runenv.Patience(5*time.Second), 10*time.Millisecond)
	stop()
}

func TestALargeRequestBodyIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	a, err := r.try("PATCH", r.system(), m{"AssetTag": strings.Repeat("x", 2<<20)})
	if err == nil { // the server may close before the client has sent all
		require.Equal(t, 413, a.status)
	}
	require.Equal(t, "", r.get(r.system()).obj["AssetTag"])
}
