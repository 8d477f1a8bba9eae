package maassim_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

// TestOnboardingPath is the whole way of a machine, with what MAAS leaves behind
// at each step.
func TestOnboardingPath(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	m := "machines/" + id + "/"
	require.Equal(t, maassim.StatusNew, l.view(id).Status)
	out := l.ok(m, "commission", url.Values{"skip_bmc_config": {"1"}}).object(t)
	require.InDelta(t, 1, out["status"], 0)
	require.Equal(t, "admin", out["owner"])
	l.await(id, maassim.Testing)
	l.await(id, maassim.Ready)
	require.Empty(t, l.view(id).Owner)

	boss := ""
	for _, d := range l.get("nodes/"+id+"/blockdevices/", nil).objects(t) {
		if d["name"] == "sda" {
			boss = fmt.Sprint(d["id"])
		}
	}
	a := l.ok("nodes/"+id+"/blockdevices/"+boss+"/", "set_boot_disk", nil)
	require.Equal(t, "OK", a.text())
	require.Equal(t, "nvme0n1", l.view(id).RootDisk, "the layout stays where it was")
	a = l.post(m, "set_storage_layout", url.Values{"storage_layout": {"flat"}, "root_device": {"/dev/sda"}})
	require.Equal(t, 400, a.code, "root_device is an id")
	l.ok(m, "set_storage_layout", url.Values{"storage_layout": {"flat"}, "root_device": {boss}})
	require.Equal(t, "sda", l.view(id).RootDisk)

	l.ok("machines/", "allocate", url.Values{"system_id": {id}})
	l.ok(m, "set_workload_annotations", url.Values{"onboarding": {"42"}})
	out = l.ok(m, "deploy", deployForm("#cloud-config\npackages: [jq]\n", true)).object(t)
	require.InDelta(t, 9, out["status"], 0)
	require.InDelta(t, 900, out["sync_interval"], 0)
	l.await(id, maassim.Deployed)
	os := l.hw.InstalledOS()
	require.Equal(t, "sda", os.Disk)
	require.Contains(t, string(os.UserData), "jq")
	require.Contains(t, string(os.VendorData), "maas_hardware_sync.timer")
	now := l.get(m, nil).object(t)
	require.Equal(t, "ubuntu", now["osystem"])
	require.Equal(t, "42", now["workload_annotations"].(map[string]any)["onboarding"])
	require.Len(t, now["ip_addresses"], 1)
	require.NotNil(t, now["last_sync"], "set at the end of the deployment although nothing has synced")
	stamp, err := time.Parse("2006-01-02T15:04:05.000Z", now["last_sync"].(string))
	require.NoError(t, err)
	l.until(func() bool { return l.view(id).LastSync.After(stamp.Add(time.Second)) }, "a real sync is strictly later")
	for _, kind := range []string{"Deploying", "Deployed", "Node installation", "Node changed status"} {
		require.True(t, l.sawEvent(id, kind), kind)
	}
	sets := l.get("nodes/"+id+"/results/", url.Values{"type": {"installation"}, "include_output": {"true"}}).objects(t)
	results := sets[0]["results"].([]any)
	require.Equal(t, "/tmp/install.log", results[0].(map[string]any)["name"])
	log, err := base64.StdEncoding.DecodeString(results[0].(map[string]any)["output"].(string))
	require.NoError(t, err)
	require.Contains(t, string(log), "finished")
	require.Equal(t, sets[0]["id"], l.get("nodes/"+id+"/results/current-installation/", nil).object(t)["id"])

	out = l.ok(m, "release", nil).object(t)
	require.InDelta(t, 12, out["status"], 0)
	require.Equal(t, "admin", out["owner"], "the owner stays until the end")
	l.await(id, maassim.Ready)
	now = l.get(m, nil).object(t)
	require.Equal(t, false, now["enable_hw_sync"])
	require.Empty(t, now["workload_annotations"])
	require.Empty(t, now["ip_addresses"])
	require.Equal(t, "sda", l.view(id).RootDisk, "the layout persists")
	require.True(t, l.sawEvent(id, "Released"))
	require.NotNil(t, l.hw.InstalledOS(), "nothing was erased")
	c := l.srv.Counters().Machines[id]
	require.Equal(t, map[string]int{"creates": 1, "commissions": 1, "boot_disks": 1, "layouts": 1, "allocations": 1, "annotations": 1,
		"deploys": 1, "releases": 1, "power_ons": 2, "power_offs": 2}, c)
	a, err = l.try(http.MethodDelete, m, "", nil)
	require.NoError(t, err)
	require.Equal(t, 204, a.code)
	require.Empty(t, a.body)
	require.Equal(t, 404, l.get(m, nil).code)
}

// TestAnswersComeBeforeTheEffect: abort shows the old status.
func TestAnswersComeBeforeTheEffect(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	m := "machines/" + id + "/"
	l.ok(m, "deploy", deployForm("", false))
	require.InDelta(t, 9, l.ok(m, "abort", nil).object(t)["status"], 0)
	require.Equal(t, maassim.Allocated, l.view(id).Status)
	l.ok(m, "release", nil)
	l.await(id, maassim.Ready)
	l.ok(m, "commission", nil)
	require.InDelta(t, 1, l.ok(m, "abort", nil).object(t)["status"], 0)
	require.Equal(t, maassim.StatusNew, l.view(id).Status)
	l.ok(m, "commission", nil)
	l.await(id, maassim.Testing)
	l.ok(m, "abort", nil)
	require.Equal(t, maassim.Ready, l.view(id).Status)
}

func TestEraseOnRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.deployed()
	m := "machines/" + id + "/"
	require.InDelta(t, 14, l.ok(m, "release", url.Values{"erase": {"true"}}).object(t)["status"], 0)
	require.Equal(t, 409, l.post(m, "release", nil).code, "not while erasing")
	l.await(id, maassim.Ready)
	require.Nil(t, l.hw.InstalledOS())
	require.True(t, l.sawEvent(id, "Disks erased"))
	require.True(t, l.sawEvent(id, "Released"))
	l.ok(m, "release", nil) // a no-op
	require.Equal(t, 1, l.total("releases"))

	l = newLab(t, func(o *maassim.Options) { o.Config = map[string]any{"enable_disk_erasing_on_release": true} })
	id = l.deployed()
	m = "machines/" + id + "/"
	require.InDelta(t, 14, l.ok(m, "release", nil).object(t)["status"], 0, "the site's setting counts too")
	l.ok(m, "abort", nil)
	require.Equal(t, maassim.FailedDiskErasing, l.view(id).Status)
}

func TestPower(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.deployed()
	m := "machines/" + id + "/"
	state := func() any { return l.get(m, url.Values{"op": {"query_power_state"}}).object(t)["state"] }
	require.Equal(t, "on", state())
	l.ok(m, "power_off", url.Values{"stop_mode": {"gently"}}) // what is not soft is hard
	require.Equal(t, "off", state())
	out := l.ok(m, "power_on", nil).object(t)
	require.Equal(t, "off", out["power_state"], "rendered before the effect")
	require.Equal(t, simhw.On, l.hw.Power(), "the call ends when the power action does")
	require.Equal(t, "on", state())
	l.ok(m, "power_off", url.Values{"stop_mode": {"soft"}})
	require.Equal(t, "off", state())
	l.hw.PowerOn("someone")
	require.Equal(t, "off", l.get(m, nil).object(t)["power_state"], "MAAS has not looked yet")
	l.until(func() bool { return l.view(id).PowerState == "on" }, "the poll sees it")

	l.hw.SetBMC("https://192.0.2.10", bmcUser, "changed")
	require.Equal(t, 500, l.post(m, "power_off", nil).code)
	require.Equal(t, 500, l.post(m, "power_on", nil).code)
	require.Equal(t, "error", state())
	l.hw.SetBMCDown(true)
	a := l.post(m, "power_off", nil)
	require.Equal(t, 503, a.code)
	require.Equal(t, "No rack controllers can access the BMC of node "+id, a.text())
	require.Empty(t, a.header.Get("Retry-After"))
	require.Equal(t, bmcPass, l.get(m, url.Values{"op": {"power_parameters"}}).object(t)["power_pass"])

	l.hw.SetBMCDown(false)
	a, err := l.try(http.MethodPut, m, "", url.Values{"power_type": {"manual"}})
	require.NoError(t, err)
	require.Equal(t, 200, a.code, "%s", a.body)
	require.Equal(t, "null", l.post(m, "power_off", nil).text(), "MAAS cannot control it")
	require.Equal(t, "unknown", state())
}

// TestCommissioningMakesALogin of its own on the BMC unless skip_bmc_config=1, and leaves the
// others.
func TestCommissioningMakesALogin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	l.ok("machines/"+id+"/", "commission", url.Values{"testing_scripts": {"none"}})
	l.await(id, maassim.Ready)
	require.NoError(t, l.hw.CheckBMC(bmcUser, bmcPass))
	p := l.get("machines/", url.Values{"op": {"power_parameters"}}).object(t)[id].(map[string]any)
	require.Equal(t, "maas", p["power_user"])
	require.NoError(t, l.hw.CheckBMC("maas", p["power_pass"].(string)))
	l.ok("machines/"+id+"/", "power_off", nil)

	l = newLab(t)
	l.ready()
	require.Empty(t, l.hw.BMCLogins(), "skip_bmc_config=1")
}

// An unknown machine that boots from the network becomes New. A machine whose record has no MAC
// addresses is merged by its BMC.
func TestEnlist_UnknownMachines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.hw.PowerOn("someone")
	l.until(func() bool { return len(l.srv.Machines()) == 1 && l.hw.Power() == simhw.Off }, "enlisted and switched off")
	v := l.srv.Machines()[0]
	require.Equal(t, maassim.StatusNew, v.Status)
	require.Equal(t, 400, l.post("machines/", "", l.createForm()).code, "its MACs are taken now")
	l.ok("machines/"+v.SystemID+"/", "commission", nil) // by the login that the enlistment made
	l.await(v.SystemID, maassim.Ready)

	other := newLab(t)
	form := url.Values{"power_type": {"ipmi"}, "hostname": {"bare"}}
	for _, k := range []string{"address", "user", "pass"} {
		form.Set("power_parameters_power_"+k, other.createForm().Get("power_parameters_power_"+k))
	}
	id, _ := other.ok("machines/", "", form).object(t)["system_id"].(string)
	require.Equal(t, maassim.Commissioning, other.view(id).Status, "commissioned by default")
	other.await(id, maassim.Ready)
	require.Len(t, other.srv.Machines(), 1)
	require.Len(t, other.get("nodes/"+id+"/interfaces/", nil).objects(t), 4)
}

// TestTimersOfMAAS are the region's own deadlines.
func TestTimersOfMAAS(t *testing.T) {
	t.Parallel()
	for profile, want := range map[string]string{"3.7": "time-out during deployment", "3.5": "Node operation 'Deploying' timed out after 30 minutes."} {
		t.Run("deploy "+profile, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *maassim.Options) {
				o.Profile, o.Durations.DeployTimeout = profile, map[string]time.Duration{"3.7": time.Hour, "3.5": 30 * time.Minute}[profile]
			})
			id := l.ready()
			l.ok("machines/"+id+"/", "deploy", deployForm("", false))
			l.hw.PowerOff("someone", true) // nothing will ever boot
			l.await(id, maassim.FailedDeployment)
			require.Equal(t, want, l.view(id).Error)
			require.Equal(t, 409, l.post("machines/"+id+"/", "deploy", nil).code)
			l.ok("machines/"+id+"/", "release", nil)
			l.await(id, maassim.Ready)
		})
	}
	t.Run("commissioning", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, func(o *maassim.Options) { o.Durations = maassim.Durations{NetBoot: 1000 * time.Hour} })
		id := l.created()
		l.ok("machines/"+id+"/", "commission", nil)
		l.await(id, maassim.FailedCommissioning)
		require.Equal(t, "Node has not been heard from for the last 30 minutes", l.view(id).Error)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, func(o *maassim.Options) { o.Durations.ReleaseExpiry = 0 })
		id := l.deployed()
		l.hw.SetBMCDown(true)
		require.Equal(t, 503, l.post("machines/"+id+"/", "release", nil).code)
		l.await(id, maassim.FailedReleasing)
		require.Equal(t, "Releasing failed", l.get("machines/"+id+"/", nil).object(t)["status_name"])
	})
}
