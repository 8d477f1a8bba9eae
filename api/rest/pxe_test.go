package rest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
)

const autoinstall = `#cloud-config
autoinstall:
  version: 1
  identity:
    hostname: {{ .Hostname }}
    realname: {{ .Vendor }}
  early-commands:
    - {{ report "started" }}
  late-commands:
    - {{ report "progress" 90 }}
    - {{ report "complete" }}
  error-commands:
    - {{ report "failed" }}
`

// mirror serves boot images.
func mirror(t *testing.T) (string, map[string][]byte) {
	files := map[string][]byte{"/vmlinuz": []byte(strings.Repeat("kernel ", 30_000)), "/initrd": []byte("small")}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(files[r.URL.Path])))
		_, _ = w.Write(files[r.URL.Path])
	}))
	t.Cleanup(srv.Close)
	return srv.URL, files
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func (w *world) installWorkflow(name string) string {
	w.t.Helper()
	url, files := mirror(w.t)
	return w.post("/api/v1/admin/install-workflows", map[string]any{"name": name, "spec": map[string]any{
		"kernel":       map[string]any{"url": url + "/vmlinuz", "sha256": sum(files["/vmlinuz"])},
		"initrds":      []any{map[string]any{"url": url + "/initrd"}},
		"command_line": "autoinstall ip=dhcp ds=nocloud-net;s={{ .SeedURL }}", "user_data": autoinstall,
	}}).want(http.StatusCreated).id()
}

func (w *world) machine(mac string) *pxesim.Machine {
	return &pxesim.Machine{Server: w.url, MAC: mac, SMBIOS: map[string]string{"manufacturer": `Dell "Inc" $(reboot)`, "product": "XE9680", "serial": "S-1", "uuid": "4c4c", "ip": "10.1.2.3"}}
}

func (w *world) pxeNode(id string) (out struct {
	ID, Status, Lifecycle, Hostname string
	InstallAttempts                 int    `json:"install_attempts"`
	LastInstallError                string `json:"last_install_error"`
	Version                         int64
	AllowedStates                   []string `json:"allowed_states"`
	PXE                             struct {
		InstallationProgress int `json:"installation_progress"`
		Reported             map[string]string
		AdminStates          []string `json:"admin_states"`
	}
}) {
	w.t.Helper()
	w.do("GET", "/api/v1/nodes/"+id, nil).want(http.StatusOK).into(&out)
	return out
}

var anyVersion = header{"If-Match": "*"}

// A machine from its first boot to service, by way of three failures.
func TestAPXENodeFromDiscoveryToService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.machine("52:54:00:00:00:01")
	boot := func(want pxesim.Kind) pxesim.Boot {
		t.Helper()
		b, err := m.Boot(t.Context())
		require.NoError(t, err, b.Script)
		require.Equal(t, want, b.Kind, b.Script)
		return b
	}
	say := func(token, status, effect, state string) pxesim.Answer {
		t.Helper()
		percent := 40
		r := pxesim.Report{InstallationStatus: status, IPAddress: "10.1.2.4"}
		if status == "progress" {
			r.InstallationProgress = &percent
		}
		if status == "failed" {
			r.InstallationError = "Disk not found"
		}
		a, err := m.Report(t.Context(), token, r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, []string{effect, state}, []string{a.Effect, a.State})
		return a
	}

	boot(pxesim.Waits)
	b := boot(pxesim.Waits)
	require.Contains(t, b.Said[0], "waits for the approval of an admin")
	require.NotContains(t, b.Script, "pxe_")
	var list struct{ Data []struct{ ID, Status string } }
	w.do("GET", "/api/v1/nodes?status=discovered&lifecycle=pxe", nil).want(http.StatusOK).into(&list)
	require.Len(t, list.Data, 1)
	id := list.Data[0].ID
	n := w.pxeNode(id)
	require.Equal(t, "pxe-525400000001", n.Hostname)
	require.Equal(t, "Dell ?Inc? ?(reboot)", n.PXE.Reported["vendor"])
	require.Equal(t, []string{"pending", "retired"}, n.PXE.AdminStates)

	path := "/api/v1/nodes/" + id
	state := func(body map[string]any) answer { return w.do("POST", path+"/state", body, anyVersion) }
	state(map[string]any{"state": "pending"}).refused(problem.IllegalTransition)
	first := w.installWorkflow("ubuntu")
	w.do("PATCH", path, map[string]any{"install_workflow_id": "wf_none"}, anyVersion).refused(problem.Invalid)
	w.do("PATCH", path, map[string]any{"install_workflow_id": first}, anyVersion, header{"Authorization": "Bearer " + w.tokens["operator"]}).refused(problem.Forbidden)
	tag := w.do("PATCH", path, map[string]any{"install_workflow_id": first, "labels": map[string]any{"rack": "7"}}, anyVersion).want(http.StatusOK).header.Get("ETag")
	w.do("POST", path+"/state", map[string]any{"state": "pending"}).refused(problem.VersionMissing)
	w.do("POST", path+"/state", map[string]any{"state": "pending"}, header{"If-Match": `"1"`}).refused(problem.Stale)
	w.do("POST", path+"/state", map[string]any{"state": "pending", "comment": "rack 7", "force": false}, header{"If-Match": tag}).want(http.StatusOK)
	state(map[string]any{"state": "installed"}).refused(problem.IllegalTransition)
	state(map[string]any{"state": "enrolling"}).refused(problem.Invalid)

	for attempt := 1; attempt <= 3; attempt++ {
		b = boot(pxesim.Installs)
		require.Len(t, b.Images["kernel"], 210_000)
		require.Equal(t, "small", string(b.Images["initrd0"]))
		require.Contains(t, b.CommandLine, "autoinstall")
		user, meta, err := m.UserData(t.Context(), b)
		require.NoError(t, err)
		var doc struct {
			Autoinstall struct {
				Identity struct{ Hostname, Realname string }
				Early    []string `yaml:"early-commands"`
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(user), &doc), user)
		require.Equal(t, "Dell ?Inc? ?(reboot)", doc.Autoinstall.Identity.Realname)
		require.Contains(t, doc.Autoinstall.Early[0], `"mac_address":"52:54:00:00:00:01"`)
		require.Contains(t, doc.Autoinstall.Early[0], b.Token)
		require.Contains(t, meta, fmt.Sprintf("instance-id: %s-1-%d", id, attempt))
		started, after := "starts", "installing"
		if attempt > 1 {
			started = "restarts"
		}
		say(b.Token, "started", started, "installing")
		say(b.Token, "started", "heard", "installing")
		say(b.Token, "progress", "advances", "installing")
		require.Equal(t, 40, w.pxeNode(id).PXE.InstallationProgress)
		failed := "fails"
		if attempt == 3 {
			failed, after = "exhausts", "install_failed"
		}
		require.Equal(t, attempt, say(b.Token, "failed", failed, after).InstallAttempts)
	}
	say(b.Token, "complete", "ignored", "install_failed")
	_, _, err := m.UserData(t.Context(), b)
	require.ErrorContains(t, err, "404")
	b = boot(pxesim.Waits)
	require.Contains(t, b.Said[0], "failed to install three times")
	n = w.pxeNode(id)
	require.Equal(t, 3, n.InstallAttempts)
	require.Equal(t, "Disk not found", n.LastInstallError)

	p := state(map[string]any{"state": "pending"}).refused(problem.IllegalTransition)
	require.Contains(t, p.Detail, "force: true")
	w.do("PATCH", path, map[string]any{"install_workflow_id": w.installWorkflow("ubuntu-2")}, anyVersion).want(http.StatusOK)
	state(map[string]any{"state": "pending", "force": true, "comment": nil}).want(http.StatusOK)
	require.Zero(t, w.pxeNode(id).InstallAttempts)
	require.Empty(t, b.Token, "a machine that waits has none")
	b = boot(pxesim.Installs)
	say(b.Token, "complete", "ignored", "pending")
	say(b.Token, "started", "starts", "installing")
	w.do("PATCH", path, map[string]any{"install_workflow_id": first}, anyVersion).refused(problem.IllegalTransition)
	say(b.Token, "complete", "finishes", "installed")
	boot(pxesim.Local)
	state(map[string]any{"state": "active", "comment": "looks good"}).want(http.StatusOK)
	require.Equal(t, "active", w.pxeNode(id).Status)
	boot(pxesim.Local)

	var history struct {
		Data []struct {
			FromState   string `json:"from_state"`
			ToState     string `json:"to_state"`
			TriggeredBy string `json:"triggered_by"`
			UserID      *string
			Metadata    map[string]any
		}
		Total int
	}
	w.do("GET", path+"/history?limit=50&offset=0", nil).want(http.StatusOK).into(&history)
	require.Equal(t, 8, history.Total)
	var way []string
	for _, h := range history.Data {
		way = append(way, h.ToState+" by "+h.TriggeredBy)
	}
	require.Equal(t, []string{
		"active by admin", "installed by node_report", "installing by node_report", "pending by admin", "install_failed by node_report", "installing by node_report", "pending by admin",
		"discovered by node_report",
	}, way)
	require.Equal(t, "Disk not found", history.Data[4].Metadata["error"])
	require.EqualValues(t, 3, history.Data[4].Metadata["attempt"])
}

func TestAnImageThatIsNotWhatItMustBeIsNotBooted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, _ := mirror(t)
	wf := w.post("/api/v1/admin/install-workflows", map[string]any{"name": "bad", "spec": map[string]any{
		"kernel": map[string]any{"url": url + "/vmlinuz", "sha256": strings.Repeat("0", 64)}, "command_line": "quiet",
	}}).want(http.StatusCreated).id()
	m := w.machine("52:54:00:00:00:02")
	a, err := m.Report(t.Context(), "", pxesim.Report{Vendor: "Dell"})
	require.NoError(t, err)
	path := "/api/v1/nodes/" + a.NodeID
	w.do("PATCH", path, map[string]any{"install_workflow_id": wf}, anyVersion).want(http.StatusOK)
	w.do("POST", path+"/state", map[string]any{"state": "pending"}, anyVersion).want(http.StatusOK)
	b, err := m.Boot(t.Context())
	require.NoError(t, err)
	require.Equal(t, pxesim.Waits, b.Kind)
	require.Contains(t, strings.Join(b.Said, "\n"), "ended short")
	require.Empty(t, b.Images)
}

func TestAReportIsBoundedAndProvesItsMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	post := func(body any) answer { return w.do("POST", "/api/v1/report", body, header{"Authorization": ""}) }
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "ip_address": nil, "hostname": nil, "installation_status": nil}).want(http.StatusOK)
	post(map[string]any{"mac_address": "5254.0000.0003", "vendor": "x"}).want(http.StatusOK)
	for _, bad := range []string{"", "52:54", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00", "52:54:00:00:00:03\n", "../../x"} {
		post(map[string]any{"mac_address": bad}).refused(problem.Invalid)
	}
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "installation_status": "complete"}).refused(problem.Unauthenticated)
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "installation_status": "done"}).refused(problem.Invalid)
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "installation_progress": 101}).refused(problem.Invalid)
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "vendor": strings.Repeat("x", 257)}).refused(problem.Invalid)
	post(map[string]any{"mac_address": "52:54:00:00:00:03", "vendor": strings.Repeat("x", 20_000)}).refused(problem.TooLarge)
	w.do("POST", "/api/v1/report", map[string]any{"mac_address": "52:54:00:00:00:03", "installation_status": "started"}).refused(problem.Unauthenticated)
	w.do("POST", "/api/v1/report", map[string]any{"mac_address": "52:54:00:00:00:03", "installation_status": "started"},
		header{"Authorization": "Bearer pxe_" + strings.Repeat("a", 43)}).refused(problem.Unauthenticated)
	var list struct{ Data []struct{ ID string } }
	w.do("GET", "/api/v1/nodes", nil).want(http.StatusOK).into(&list)
	require.Len(t, list.Data, 1)

	// A caller without a proof learns and changes nothing of a node that is more than discovered.
	known := dbtest.PXENode(t, w.store, "52:54:00:00:00:04", lifecycle.NodeActive)
	was, err := w.store.PXENode(t.Context(), known.ID)
	require.NoError(t, err)
	told := post(map[string]any{"mac_address": "52:54:00:00:00:04", "serial_number": "X", "ip_address": "10.9.9.9"}).want(http.StatusOK)
	require.JSONEq(t, `{"effect":"ignored","install_attempts":0}`, string(told.raw))
	is, err := w.store.PXENode(t.Context(), known.ID)
	require.NoError(t, err)
	require.Equal(t, was, is)

	w.do("POST", "/api/v1/nodes/"+known.ID+"/state", map[string]any{"comment": "to no state"}, anyVersion).refused(problem.Invalid)
	maas := dbtest.Node(t, w.store, dbtest.Active())
	w.do("POST", "/api/v1/nodes/"+maas.ID+"/state", map[string]any{"state": "retired"}, anyVersion).refused(problem.IllegalTransition)
	w.do("PATCH", "/api/v1/nodes/"+maas.ID, map[string]any{"install_workflow_id": w.installWorkflow("w")}, anyVersion).refused(problem.Conflict)
	w.do("POST", "/api/v1/nodes/"+list.Data[0].ID+"/state", map[string]any{"state": "retired"}, anyVersion, header{"Authorization": "Bearer " + w.tokens["operator"]}).
		refused(problem.Forbidden)
}

// TestReport_FieldsAreOptional: a machine that leaves one of the facts of itself out, or says null,
// is registered with the others.
func TestReport_FieldsAreOptional(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := map[string]string{"ip_address": "10.1.2.3", "hostname": "h", "vendor": "v", "model": "m", "serial_number": "S-1234", "system_uuid": "4c4c4544-0000-0000-0000-000000000001"}
	for _, left := range append(slices.Sorted(maps.Keys(all)), "") { // "" leaves nothing out
		for form := range 2 {
			mac := fmt.Sprintf("52:54:00:00:0%d:%02x", form, 16+len(left))
			report, want := map[string]any{"mac_address": mac}, map[string]string{}
			for name, value := range all {
				if name != left {
					report[name], want[name] = value, value
				}
			}
			if form == 1 && left != "" {
				report[left] = nil
			}
			w.do("POST", "/api/v1/report", report, header{"Authorization": ""}).want(http.StatusOK)
			var list struct {
				Data []struct{ ID, Hostname string }
			}
			w.do("GET", "/api/v1/nodes?lifecycle=pxe", nil).want(http.StatusOK).into(&list)
			host := "pxe-" + strings.ReplaceAll(mac, ":", "")
			i := slices.IndexFunc(list.Data, func(n struct{ ID, Hostname string }) bool { return n.Hostname == host })
			require.GreaterOrEqual(t, i, 0, "%s, %v", left, report)
			require.Equal(t, want, w.pxeNode(list.Data[i].ID).PXE.Reported, left)
		}
	}
}

func TestADeviceGroupMayPromoteByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wf := w.installWorkflow("w")
	w.do("PUT", "/api/v1/admin/device-groups/lab", map[string]any{"auto_promote": true}).want(http.StatusOK)
	w.do("PUT", "/api/v1/admin/device-groups/careful", map[string]any{"auto_promote": false}).want(http.StatusOK)
	for i, c := range []struct{ group, state string }{{"lab", "active"}, {"prod", "installed"}, {"careful", "installed"}} {
		m := w.machine(fmt.Sprintf("52:54:00:00:01:%02x", i))
		a, err := m.Report(t.Context(), "", pxesim.Report{})
		require.NoError(t, err)
		path := "/api/v1/nodes/" + a.NodeID
		w.do("PATCH", path, map[string]any{"install_workflow_id": wf, "labels": map[string]any{"device-group": c.group}}, anyVersion).want(http.StatusOK)
		w.do("POST", path+"/state", map[string]any{"state": "pending"}, anyVersion).want(http.StatusOK)
		b, err := m.Boot(t.Context())
		require.NoError(t, err)
		_, err = m.Report(t.Context(), b.Token, pxesim.Report{InstallationStatus: "started"})
		require.NoError(t, err)
		a, err = m.Report(t.Context(), b.Token, pxesim.Report{InstallationStatus: "complete"})
		require.NoError(t, err)
		require.Equal(t, c.state, a.State, c.group)
		require.Equal(t, c.state, w.pxeNode(a.NodeID).Status, c.group)
	}
	w.do("DELETE", "/api/v1/admin/device-groups/lab", nil).want(http.StatusNoContent)
	w.do("DELETE", "/api/v1/admin/device-groups/lab", nil).refused(problem.NotFound)
}
