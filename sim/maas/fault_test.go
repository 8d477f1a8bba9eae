package maassim_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// wireCase is what a client sees of a fault on any call.
type wireCase struct {
	fault      maassim.Fault
	code       int // 0 = no answer
	body       string
	retryAfter string
	natural    string // phase when the script names none
}

func wireCases() map[string]wireCase {
	p := func(kv ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i+1 < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	b, a := maassim.Before, maassim.After
	return map[string]wireCase{
		"http_401":          {maassim.Fault{Name: "http_401"}, 401, "Invalid access token", "", b},
		"http_401 clock":    {maassim.Fault{Name: "http_401", Params: p("variant", "clock")}, 401, "Expired timestamp", "", b},
		"http_400_unauth":   {maassim.Fault{Name: "http_400_unauth"}, 400, "Unrecognised signature: method=POST op=link_subnet", "", b},
		"http_403":          {maassim.Fault{Name: "http_403"}, 403, "", "", b},
		"409_state":         {maassim.Fault{Name: "409_state"}, 409, "not allowed", "", b},
		"409_serialization": {maassim.Fault{Name: "409_serialization"}, 409, "<html>", "5", b},
		"503_retry_after":   {maassim.Fault{Name: "503_retry_after"}, 503, "", "10", b},
		"504_but_continues": {maassim.Fault{Name: "504_but_continues"}, 504, "Gateway Time-out", "", a},
		"connection_reset":  {maassim.Fault{Name: "connection_reset"}, 0, "", "", b},
		"slow_response":     {maassim.Fault{Name: "slow_response", Params: p("delay", "30ms")}, 200, "", "", a},
		"redirect_301":      {maassim.Fault{Name: "redirect_301"}, 301, "", "", b},
		"truncated_json":    {maassim.Fault{Name: "truncated_json"}, 200, "", "", a},
		"ip_exhaustion":     {maassim.Fault{Name: "ip_exhaustion"}, 503, "No more IPs", "", a},
	}
}

// TestLostAndWrongAnswers: each answer fault in both phases on a call that is
// not idempotent; whether the link is there tells whether the effect happened.
func TestLostAndWrongAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	nic := l.bootNIC(id)
	form := url.Values{"mode": {"AUTO"}, "subnet": {"1"}}
	for name, c := range wireCases() {
		for _, phase := range []string{maassim.Before, maassim.After, ""} {
			t.Run(name+" "+phase, func(t *testing.T) {
				f := c.fault
				f.Phase, f.Machine = phase, id
				l.fault(f)
				before := l.total("links")
				began := time.Now()
				a, err := l.try(http.MethodPost, nic, "link_subnet", form)
				effect := 0
				if phase == maassim.After || (phase == "" && c.natural == maassim.After) {
					effect = 1
				}
				require.Equal(t, before+effect, l.total("links"))
				if c.code == 0 {
					require.True(t, lost(err), "%v", err)
					return
				}
				require.NoError(t, err)
				if name == "slow_response" {
					require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
					require.Equal(t, map[int]int{0: 504, 1: 200}[effect], a.code)
					return
				}
				require.Equal(t, c.code, a.code, "%s", a.body)
				require.Contains(t, string(a.body), c.body)
				require.Equal(t, c.retryAfter, a.header.Get("Retry-After"))
				if name == "truncated_json" {
					require.Greater(t, len(a.body), 3)
					require.NotEqual(t, byte('}'), a.body[len(a.body)-1])
				}
				require.NotEmpty(t, l.nicView(nic), "the fault was applied once")
			})
		}
	}
	links := l.nicView(nic)["links"].([]any)
	require.Len(t, links, l.total("links")+1, "AUTO is not idempotent: every call left a link")
}

// TestFaultsOfCreate in both phases.
func TestFaultsOfCreate(t *testing.T) {
	t.Parallel()
	variant := func(v string) map[string]string { return map[string]string{"variant": v} }
	for name, c := range map[string]struct {
		fault maassim.Fault
		code  int
		body  string
	}{
		"MAC":         {maassim.Fault{Name: "dup_mac_create"}, 400, `{"mac_addresses":["MAC address`},
		"MAC as list": {maassim.Fault{Name: "dup_mac_create", Params: variant("list")}, 400, `["MAC address`},
		"MAC for all": {maassim.Fault{Name: "dup_mac_create", Params: variant("all")}, 400, `{"__all__":["MAC address`},
		"name":        {maassim.Fault{Name: "dup_hostname"}, 400, `{"hostname":["Node with this Hostname already exists."]}`},
		"BMC away":    {maassim.Fault{Name: "bmc_unreachable"}, 503, "No rack controllers can access the BMC of node"},
		"BMC login":   {maassim.Fault{Name: "bmc_auth"}, 500, "UNAUTHORIZED"},
	} {
		for phase, created := range map[string]int{maassim.Before: 0, maassim.After: 1} {
			for _, commission := range []string{"true", "false"} {
				t.Run(name+" "+phase+" commission="+commission, func(t *testing.T) {
					t.Parallel()
					l := newLab(t)
					f := c.fault
					f.Phase = phase
					l.fault(f)
					form := l.createForm()
					form.Set("commission", commission)
					a := l.post("machines/", "", form)
					require.Equal(t, c.code, a.code, "%s", a.body)
					require.Contains(t, a.text(), c.body)
					require.Empty(t, a.header.Get("Retry-After"))
					require.Equal(t, created, l.total("creates"))
					require.Len(t, l.srv.Machines(), created)
					if created == 1 && a.code >= 500 {
						require.Equal(t, maassim.StatusNew, l.srv.Machines()[0].Status, "the record stays, in New")
					}
					a = l.post("machines/", "", l.createForm())
					require.Equal(t, map[int]int{0: 200, 1: 400}[created], a.code, "a repeat meets our own machine")
				})
			}
		}
	}
}

// TestFaultsOfPower: the BMC's two failures in both phases on every call that
// moves power.
func TestFaultsOfPower(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	m := "machines/" + id + "/"
	for name, code := range map[string]int{"bmc_unreachable": 503, "bmc_auth": 500} {
		for _, phase := range []string{maassim.Before, maassim.After} {
			for _, op := range []string{"power_off", "commission"} {
				l.fault(maassim.Fault{Name: name, Phase: phase, Machine: "gpu-1"})
				a := l.post(m, op, nil)
				require.Equal(t, code, a.code, "%s %s %s: %s", name, phase, op, a.body)
				require.Equal(t, maassim.Ready, l.view(id).Status, "%s: the callback took the status back", op)
			}
			l.fault(maassim.Fault{Name: name, Phase: phase, Op: "query_power_state"})
			require.Equal(t, code, l.get(m, url.Values{"op": {"query_power_state"}}).code)
		}
	}
	require.Equal(t, 1+4/2, l.total("commissions"), "after the commit the run had begun")
	for _, phase := range []string{maassim.Before, maassim.After} {
		l.fault(maassim.Fault{Name: "query_power_timeout", Phase: phase, Params: map[string]string{"variant": "hang", "delay": "20ms"}})
		queries := l.total("power_queries")
		require.Equal(t, 504, l.get(m, url.Values{"op": {"query_power_state"}}).code)
		require.Equal(t, queries+map[string]int{maassim.Before: 0, maassim.After: 1}[phase], l.total("power_queries"))
	}
	for _, state := range []string{"error", "unknown"} {
		l.fault(maassim.Fault{Name: "power_state", Params: map[string]string{"value": state}})
		require.Equal(t, state, l.get(m, nil).object(t)["power_state"])
		require.Equal(t, state, l.get(m, url.Values{"op": {"query_power_state"}}).object(t)["state"])
		require.Equal(t, "off", l.get(m, url.Values{"op": {"query_power_state"}}).object(t)["state"], "it passes")
	}
}

// TestFaultsOfDeploy in both phases and both profiles.
func TestFaultsOfDeploy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, profile, phase string
		code                 int
		then                 maassim.Status
		deploys              int
	}{
		{"bmc_unreachable", "3.7", maassim.After, 200, maassim.FailedDeployment, 1},
		{"bmc_unreachable", "3.7", maassim.Before, 503, maassim.Ready, 0},
		{"bmc_auth", "3.7", maassim.After, 200, maassim.FailedDeployment, 1},
		{"bmc_auth", "3.7", maassim.Before, 500, maassim.Ready, 0},
		{"bmc_unreachable", "3.5", maassim.After, 503, maassim.Allocated, 1},
		{"bmc_auth", "3.5", maassim.After, 500, maassim.Allocated, 1},
		{"ip_exhaustion", "3.7", maassim.After, 503, maassim.Allocated, 1},
		{"ip_exhaustion", "3.7", maassim.Before, 503, maassim.Ready, 0},
		{"image_missing", "3.7", maassim.Before, 400, maassim.Ready, 0},
		{"image_missing", "3.7", maassim.After, 400, maassim.Deployed, 1},
		{"504_but_continues", "3.7", "", 504, maassim.Deployed, 1},
		{"connection_reset", "3.7", maassim.After, 0, maassim.Deployed, 1},
	} {
		t.Run(c.name+" "+c.profile+" "+c.phase, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *maassim.Options) { o.Profile = c.profile })
			id := l.ready()
			l.fault(maassim.Fault{Name: c.name, Phase: c.phase, Op: "deploy"})
			a, err := l.try(http.MethodPost, "machines/"+id+"/", "deploy", deployForm("", false))
			if c.code == 0 {
				require.True(t, lost(err))
			} else {
				require.NoError(t, err)
				require.Equal(t, c.code, a.code, "%s", a.body)
			}
			l.await(id, c.then)
			require.Equal(t, c.deploys, l.total("deploys"))
			if c.then == maassim.Allocated || c.then == maassim.FailedDeployment {
				require.Equal(t, "admin", l.view(id).Owner, "it is still ours")
			}
			if c.then == maassim.FailedDeployment {
				require.NotEmpty(t, l.view(id).Error)
			}
		})
	}
}

// TestFaultsInsideADeployment are what goes wrong after a good answer.
func TestFaultsInsideADeployment(t *testing.T) {
	t.Parallel()
	deploying := func(t *testing.T, f maassim.Fault) (*lab, string) {
		t.Parallel()
		l := newLab(t, func(o *maassim.Options) { o.Durations.DeployTimeout = 4 * time.Hour })
		id := l.ready()
		l.fault(f)
		l.ok("machines/"+id+"/", "deploy", deployForm("#cloud-config\n", true))
		return l, id
	}
	t.Run("curtin", func(t *testing.T) {
		l, id := deploying(t, maassim.Fault{Name: "deploy_curtin_fail"})
		l.await(id, maassim.FailedDeployment)
		require.Equal(t, "Installation failed (refer to the installation log for more information).", l.view(id).Error)
		require.True(t, l.sawEvent(id, "Node installation failure"))
		require.Nil(t, l.hw.InstalledOS())
		set := l.get("nodes/"+id+"/results/current-installation/", url.Values{"include_output": {"1"}}).object(t)
		require.InDelta(t, 3, set["status"], 0)
	})
	t.Run("datasource", func(t *testing.T) {
		l, id := deploying(t, maassim.Fault{Name: "deploy_datasource_none"})
		l.until(l.hw.OSUp, "the installed system boots")
		require.Nil(t, l.hw.InstalledOS().UserData, "and never sees its user-data")
		require.Equal(t, simhw.CloudInitNoDatasource, l.hw.InstalledOS().CloudInit)
		l.await(id, maassim.FailedDeployment)
		require.Equal(t, "time-out during deployment", l.view(id).Error)
		last := l.events(id, "DEBUG")
		found := false
		for _, e := range last {
			if e["type"] == "Node installation" {
				require.Contains(t, e["description"], "DataSourceMAAS", "the last installer event says where it stopped")
				found = true
				break
			}
		}
		require.True(t, found)
	})
	t.Run("dead", func(t *testing.T) {
		l, id := deploying(t, maassim.Fault{Name: "deployed_but_dead", Params: map[string]string{"variant": "post_install_error"}})
		l.await(id, maassim.Deployed)
		require.Equal(t, simhw.CloudInitFails, l.hw.InstalledOS().CloudInit)
		require.False(t, l.view(id).SyncAgent)
		require.Equal(t, "Node post-installation failure", l.events(id, "ERROR")[0]["type"])
	})
	t.Run("stuck", func(t *testing.T) {
		l, id := deploying(t, maassim.Fault{Name: "stuck_deploying"})
		l.stays(id, maassim.Deploying)
		l.ok("machines/"+id+"/", "abort", nil)
		require.Equal(t, maassim.Allocated, l.view(id).Status)
	})
	for _, stage := range []string{"stage:installing", "stage:first_boot"} {
		t.Run("deleted at "+stage, func(t *testing.T) {
			l, id := deploying(t, maassim.Fault{Name: "machine_deleted", Op: stage})
			l.until(func() bool { _, there := l.srv.Machine(id); return !there }, "deleted")
			require.Equal(t, 404, l.get("machines/"+id+"/", nil).code)
		})
	}
	t.Run("released by another", func(t *testing.T) {
		l, id := deploying(t, maassim.Fault{Name: "externally_released", Op: "stage:installing"})
		l.await(id, maassim.Ready)
		require.Equal(t, 0, l.total("releases"), "not ours")
	})
}

func TestFaultsOfHardwareSync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault maassim.Fault
		data  string
		agent bool
		syncs int
	}{
		"healthy":         {maassim.Fault{}, "#cloud-config\npackages: [jq]\n", true, 3},
		"never":           {maassim.Fault{Name: "hw_sync_never"}, "", true, 0},
		"stops":           {maassim.Fault{Name: "hw_sync_stops", Params: map[string]string{"after": "2"}}, "", true, 2},
		"disabled":        {maassim.Fault{Name: "hw_sync_disabled_by_userdata"}, "", false, 0},
		"by user-data":    {maassim.Fault{}, "#cloud-config\nruncmd:\n- [true]\n", false, 0},
		"merged politely": {maassim.Fault{}, "#cloud-config\nmerge_how: list(append)+dict(recurse_array)\nruncmd:\n- [true]\n", true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			id := l.ready()
			if c.fault.Name != "" {
				l.fault(c.fault)
			}
			l.ok("machines/"+id+"/", "deploy", deployForm(c.data, true))
			l.await(id, maassim.Deployed)
			require.Equal(t, c.agent, l.view(id).SyncAgent)
			require.Equal(t, c.agent, len(l.hw.InstalledOS().VendorData) > 0)
			seen := map[time.Time]bool{}
			first := l.view(id).LastSync
			require.False(t, first.IsZero(), "set by the end of the deployment itself")
			for range 150 {
				l.tick(time.Minute)
				if at := l.view(id).LastSync; at.After(first) {
					seen[at] = true
				}
			}
			if c.syncs == 3 {
				require.GreaterOrEqual(t, len(seen), 3)
				return
			}
			require.Len(t, seen, c.syncs)
		})
	}
	t.Run("repaired by hand", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		id := l.ready()
		l.ok("machines/"+id+"/", "deploy", deployForm("", false))
		l.await(id, maassim.Deployed)
		a, err := l.try(http.MethodPut, "machines/"+id+"/", "", url.Values{"enable_hw_sync": {"true"}})
		require.NoError(t, err)
		out := a.object(t)
		require.Equal(t, true, out["enable_hw_sync"])
		require.InDelta(t, 900, out["sync_interval"], 0)
		require.Nil(t, out["last_sync"], "the flag installs no agent")
		for range 40 {
			l.tick(time.Minute)
		}
		require.True(t, l.view(id).LastSync.IsZero())
		require.True(t, l.srv.SetHWSyncAgent(id, true))
		l.until(func() bool { return !l.view(id).LastSync.IsZero() }, "the timer that was installed over SSH reports")
		require.True(t, l.srv.SetHWSyncAgent(id, false))
		at := l.view(id).LastSync
		for range 40 {
			l.tick(time.Minute)
		}
		require.Equal(t, at, l.view(id).LastSync)
		require.False(t, l.srv.SetHWSyncAgent("aaaaaa", true))
	})
}

func TestFaultsOfCommissioning(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, name string, want maassim.Status) (*lab, string) {
		t.Parallel()
		l := newLab(t)
		id := l.created()
		l.fault(maassim.Fault{Name: name, Machine: l.hw.Spec().NICs[0].MAC})
		l.ok("machines/"+id+"/", "commission", url.Values{"skip_bmc_config": {"1"}})
		l.await(id, want)
		return l, id
	}
	t.Run("fails", func(t *testing.T) {
		l, id := run(t, "commission_fail", maassim.FailedCommissioning)
		require.InDelta(t, 3, l.get("machines/"+id+"/", nil).object(t)["commissioning_status"], 0)
		require.True(t, l.sawEvent(id, "Failed commissioning"))
		l.ok("machines/"+id+"/", "commission", l.commissionForm())
		l.await(id, maassim.Ready)
	})
	t.Run("testing fails", func(t *testing.T) {
		l, id := run(t, "test_fail", maassim.FailedTesting)
		require.InDelta(t, 3, l.get("machines/"+id+"/", nil).object(t)["testing_status"], 0)
		l.ok("machines/"+id+"/", "override_failed_testing", nil)
		require.Equal(t, maassim.Ready, l.view(id).Status)
	})
	t.Run("no BOSS", func(t *testing.T) {
		l, id := run(t, "no_boss_disk", maassim.Ready)
		for _, d := range l.get("nodes/"+id+"/blockdevices/", nil).objects(t) {
			require.NotContains(t, d["model"], "BOSS")
		}
	})
	for _, name := range []string{"boss_renamed", "boss_reordered"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			id := l.ready()
			ids := func() map[any]any {
				out := map[any]any{}
				for _, d := range l.get("nodes/"+id+"/blockdevices/", nil).objects(t) {
					out[d["serial"]] = d["id"]
				}
				return out
			}
			before := ids()
			l.fault(maassim.Fault{Name: name})
			l.ok("machines/"+id+"/", "commission", l.commissionForm())
			l.await(id, maassim.Commissioning)
			l.await(id, maassim.Ready)
			require.NotEqual(t, before["B000001"], ids()["B000001"])
			require.Equal(t, name == "boss_renamed", before["S000001N0"] == ids()["S000001N0"])
			require.Nil(t, l.get("machines/"+id+"/", nil).object(t)["boot_disk"])
		})
	}
	t.Run("no VLAN", func(t *testing.T) {
		l, id := run(t, "boot_nic_no_vlan", maassim.Ready)
		require.Nil(t, l.get("machines/"+id+"/", nil).object(t)["boot_interface"].(map[string]any)["vlan"])
		require.JSONEq(t, `{"network":["Node must be configured to use a network"]}`, l.post("machines/"+id+"/", "deploy", nil).text())
	})
	t.Run("two AUTO links", func(t *testing.T) {
		l, id := run(t, "auto_link_duplicate", maassim.Ready)
		require.Len(t, l.get("machines/"+id+"/", nil).object(t)["boot_interface"].(map[string]any)["links"], 2)
	})
}
