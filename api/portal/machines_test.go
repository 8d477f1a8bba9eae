package portal_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slipway-cloud/slipway/api/op"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

const stepUpRequired = "urn:slipway:problem:step-up-required"

// calls returns the path of each call of machines, plans and runs, and whether it is a stream.
func calls() map[string]bool {
	out := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{slipwayv1.File_slipway_v1_machine_proto, slipwayv1.File_slipway_v1_plan_proto, slipwayv1.File_slipway_v1_run_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				out["/"+string(service.FullName())+"/"+string(m.Name())] = m.IsStreamingServer()
			}
		}
	}
	return out
}

// browserAs is a browser with a session of a token that has a role.
func (w *world) browserAs(role string) *browser {
	w.t.Helper()
	text, _, err := op.IssueToken(w.t.Context(), w.store, "the-"+role+"-browser", []string{role}, time.Hour)
	require.NoError(w.t, err)
	b := w.browser()
	require.Equal(w.t, http.StatusCreated, b.do("POST", "/portal/session", map[string]string{"token": text}).StatusCode)
	return b
}

// register registers a machine by the admin's token.
func (w *world) register(id string) {
	w.t.Helper()
	b := w.browser()
	b.headers = map[string]string{"Authorization": "Bearer " + w.token}
	a := b.do("POST", "/slipway.v1.MachineService/RegisterMachine", map[string]any{"machine": map[string]any{"machine_id": id, "spec": map[string]any{"provider": "fake"}}})
	require.Equal(w.t, http.StatusOK, a.StatusCode, string(a.raw))
}

// openStream sends the request of a stream in JSON. The caller closes the body.
func (b *browser) openStream(path string, body any) *http.Response {
	b.w.t.Helper()
	req := b.request("POST", path, nil)
	raw, err := json.Marshal(body)
	require.NoError(b.w.t, err)
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw))), raw...) //nolint:gosec // small
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(framed)), int64(len(framed))
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/connect+json")
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.w.t, err)
	return res
}

// Every call refuses the cookie to another site, as JSON and as the request of a stream. A call
// that is added later is among them.
func TestCSRF_EveryCallOfMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	b := w.signedIn()
	require.Greater(t, len(calls()), 12)
	for path := range calls() {
		for name, headers := range map[string]map[string]string{
			"cross-site": {"Sec-Fetch-Site": "cross-site"}, "sibling": {"Sec-Fetch-Site": "same-site"}, "other origin": {"Origin": "https://evil.example"},
			"null origin": {"Origin": "null"}, "no browser": {}, "plain text": {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"},
			"form": {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}, "gRPC-Web": {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/grpc-web+json"},
		} {
			b.headers = headers
			a := b.do("POST", path, map[string]any{"request_id": "r", "machine_id": "m-1", "type": "REBOOT"})
			require.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType}, a.StatusCode, "%s: %s: %s", path, name, a.raw)
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
			res := b.openStream(path, map[string]any{"run_id": "run_x"})
			require.NoError(t, res.Body.Close())
			require.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType}, res.StatusCode, "the stream %s: %s", path, name)
		}
		b.headers = map[string]string{"Sec-Fetch-Site": "same-origin"}
		require.NotEqual(t, http.StatusOK, b.do("GET", path+"?encoding=json&message={}", nil).StatusCode, "%s is answered to a link", path)
	}
	require.Zero(t, w.count("SELECT count(*) FROM runs"))
}

// The calls that a session may make by its role: reads for viewers, runs for operators, and no
// other write for anybody.
func TestMachines_SessionsHaveTheirRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	viewer, operator, admin := w.browserAs("viewer"), w.browserAs("operator"), w.signedIn()
	start := map[string]any{"request_id": "r", "machine_id": "m-1", "type": "REBOOT"}
	for _, read := range []string{"MachineService/ListMachines", "PlanService/ListPlans", "RunService/ListRuns", "CampaignService/ListCampaigns"} {
		require.Equal(t, http.StatusOK, viewer.do("POST", "/slipway.v1."+read, map[string]any{}).StatusCode, read)
	}
	for write, body := range map[string]map[string]any{"StartRun": start, "CancelRun": {"run_id": "run_x"}} {
		a := viewer.do("POST", "/slipway.v1.RunService/"+write, body)
		require.Equal(t, http.StatusForbidden, a.StatusCode, "a viewer: %s", a.raw)
		require.Contains(t, string(a.raw), "needs role operator")
	}
	require.Zero(t, w.count("SELECT count(*) FROM runs"))
	for _, write := range []string{"MachineService/RegisterMachine", "MachineService/UpdateMachine", "MachineService/SetMachinePhase", "MachineService/SetMachineAccess", "PlanService/CreatePlan", "CampaignService/CreateCampaign"} {
		a := admin.do("POST", "/slipway.v1."+write, map[string]any{})
		require.Equal(t, http.StatusForbidden, a.StatusCode, write)
		require.Contains(t, string(a.raw), "browser's session does not make this call", write)
	}
	a := operator.do("POST", "/slipway.v1.RunService/StartRun", start)
	require.Equal(t, http.StatusOK, a.StatusCode, string(a.raw))
	require.Equal(t, 1, w.count("SELECT count(*) FROM runs"))
	require.Equal(t, 1, w.count("SELECT count(*) FROM audit_log WHERE resource_kind = 'run' AND actor_id LIKE 'token:the-operator-browser:%'"), "the audit log names who signed in")
	operator.headers["Authorization"] = "Bearer slp_wrong"
	require.Equal(t, http.StatusUnauthorized, operator.do("POST", "/slipway.v1.MachineService/ListMachines", map[string]any{}).StatusCode, "a bearer token wins")
	require.Equal(t, http.StatusUnauthorized, w.browser().do("POST", "/slipway.v1.MachineService/ListMachines", map[string]any{}).StatusCode, "no session")
}

// A run that may erase the machine, runs commands on it, or may interrupt work on it, needs a
// second sign-in.
func TestMachines_DestructiveRunNeedsStepUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	b := w.signedIn()
	asked := []map[string]any{
		{"request_id": "a", "machine_id": "m-1", "type": "REPAVE"}, {"request_id": "b", "machine_id": "m-1", "type": "RMA"},
		{"request_id": "c", "machine_id": "m-1", "type": "UPGRADE", "plan_id": "default-repave-v1"}, {"request_id": "d", "machine_id": "m-1", "type": "REBOOT", "accept_risk": true},
		{"request_id": "f", "machine_id": "m-1", "type": "UPGRADE"},
	}
	for _, in := range asked {
		a := b.do("POST", "/slipway.v1.RunService/StartRun", in)
		require.Equal(t, http.StatusForbidden, a.StatusCode, "%v: %s", in, a.raw)
		require.Equal(t, stepUpRequired, a.Header.Get("Slipway-Problem"), "%v", in)
	}
	a := b.do("POST", "/slipway.v1.RunService/StartRun", map[string]any{"request_id": "e", "machine_id": "m-1", "type": "SELL"})
	require.Equal(t, http.StatusBadRequest, a.StatusCode, string(a.raw))
	require.Zero(t, w.count("SELECT count(*) FROM runs"))
	require.Equal(t, http.StatusOK, b.do("POST", "/portal/step-up", map[string]string{"token": w.token}).StatusCode)
	for _, in := range asked {
		require.NotEqual(t, stepUpRequired, b.do("POST", "/slipway.v1.RunService/StartRun", in).Header.Get("Slipway-Problem"), "%v", in)
	}
	require.Equal(t, 1, w.count("SELECT count(*) FROM runs"), "the one whose steps the provider can carry out")
}

// A stream of output goes on while the session does, resumes after a position, and ends with the
// rights of the session.
func TestMachines_StreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, b *browser){
		"sign-out":      func(_ *world, b *browser) { b.do("DELETE", "/portal/session", nil) },
		"revoked token": func(w *world, _ *browser) { w.exec("UPDATE api_tokens SET revoked_at = now()") },
		"lost role":     func(w *world, _ *browser) { w.exec("UPDATE api_tokens SET roles = '{}'") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.register("m-1")
			b := w.signedIn()
			require.Equal(t, http.StatusOK, b.do("POST", "/portal/step-up", map[string]string{"token": w.token}).StatusCode)
			var run struct {
				ID string `json:"run_id"`
			}
			require.NoError(t, json.Unmarshal(b.do("POST", "/slipway.v1.RunService/StartRun", map[string]any{"request_id": "r", "machine_id": "m-1", "type": "UPGRADE"}).raw, &run))
			place := machinesdb.LogPlace{RunID: run.ID, Step: "upgrade-packages", Attempt: 1}
			for i, line := range []string{"one", "two"} {
				require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", int64(i+1), []byte(line)))
			}
			res := b.openStream("/slipway.v1.RunService/StreamRunLogs", map[string]any{"run_id": run.ID})
			defer res.Body.Close()
			require.Equal(t, http.StatusOK, res.StatusCode)
			var seq string
			for seq == "" {
				if m := readFrame(t, res.Body); m["data"] != "" {
					require.Equal(t, "b25l", m["data"])
					seq, _ = m["seq"].(string)
				}
			}
			again := b.openStream("/slipway.v1.RunService/StreamRunLogs", map[string]any{"run_id": run.ID, "resume_after": seq})
			defer again.Body.Close()
			for m := readFrame(t, again.Body); ; m = readFrame(t, again.Body) {
				if m["data"] != "" {
					require.Equal(t, "dHdv", m["data"], "after the position")
					break
				}
			}
			end(w, b)
			rest, err := io.ReadAll(again.Body) // until the server ends it; the test's own deadline bounds the wait
			require.NoError(t, err)
			require.Contains(t, string(rest), `"code":"unauthenticated"`)
			refused := b.openStream("/slipway.v1.RunService/StreamRunLogs", map[string]any{"run_id": run.ID, "resume_after": seq})
			defer refused.Body.Close()
			rest, err = io.ReadAll(refused.Body)
			require.NoError(t, err)
			require.True(t, strings.Contains(string(rest), "unauthenticated") || strings.Contains(string(rest), "permission_denied"), string(rest))
			require.NotContains(t, string(rest), "dHdv")
		})
	}
}

// readFrame reads one message of a stream in JSON.
func readFrame(t *testing.T, r io.Reader) map[string]any {
	t.Helper()
	var head [5]byte
	_, err := io.ReadFull(r, head[:])
	require.NoError(t, err)
	raw := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(r, raw)
	require.NoError(t, err)
	require.Zero(t, head[0], "the stream ended: %s", raw)
	m := map[string]any{}
	require.NoError(t, json.Unmarshal(raw, &m))
	return m
}
