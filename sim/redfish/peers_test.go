package redfishsim_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The distribution's Python: another one earlier on PATH lacks its packages.
const python = "/usr/bin/python3"

// peerMissing skips, or fails where peers are required (CI).
func peerMissing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func needRedfishtool(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/redfishtool"); err != nil {
		peerMissing(t, "redfishtool is not installed (apt-get install redfishtool): no independent client tests the simulator")
	}
}

func needSushy(t *testing.T) {
	t.Helper()
	if err := exec.Command(python, "-c", "import sushy").Run(); err != nil {
		peerMissing(t, "sushy is not installed (apt-get install python3-sushy): no independent client tests the simulator")
	}
}

func peer(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(60*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Stdin = strings.NewReader(stdin)
	for _, e := range os.Environ() { // a CA bundle of the environment would override verify=False
		name, _, _ := strings.Cut(e, "=")
		if lower := strings.ToLower(name); name != "REQUESTS_CA_BUNDLE" && name != "CURL_CA_BUNDLE" && !strings.HasSuffix(lower, "_proxy") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// vendors returns every vendor in `make proof AREA=peers`, and one that the run's
// seed chooses in `make test`: a peer takes seconds for each.
func vendors(t *testing.T) []string {
	t.Helper()
	names := redfishsim.Names()
	if runenv.Proof() {
		return names
	}
	seed := runenv.Seed(t)
	chosen := names[seed%uint64(len(names))]
	t.Logf("%s of %v, seed %d", chosen, names, seed)
	return []string{chosen}
}

// tool runs redfishtool against the rig's host system.
func (r *rig) tool(args ...string) (string, error) {
	r.t.Helper()
	secure := "Never"
	if strings.HasPrefix(r.url, "https") {
		secure = "Always"
	}
	_, host, _ := strings.Cut(r.url, "://")
	full := []string{"/usr/bin/redfishtool", "-r", host, "-u", r.user, "-p", r.pw, "-S", secure, "-n", "-T", "20"}
	return peer(r.t, "", append(full, args...)...)
}

func (r *rig) onSystem(args ...string) string {
	r.t.Helper()
	out, err := r.tool(append([]string{"Systems", "-I", r.s.Personality().SystemID}, args...)...)
	require.NoError(r.t, err, "redfishtool %v: %s", args, out)
	return out
}

func (r *rig) waitPower(p simhw.Power) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.m.Power() == p }, runenv.Patience(10*time.Second), 5*time.Millisecond, "power never became %s", p)
}

func TestRedfishtoolDrivesEveryPersonality(t *testing.T) {
	t.Parallel()
	needRedfishtool(t)
	onVendors(t, vendors(t), func(t *testing.T, vendor string) {
		r := newRigAt(t, vendor, 100, func(o *redfishsim.Options) { o.TLS = vendor == "Dell" || vendor == "NVIDIA" })
		p := r.s.Personality()
		r.onSystem("reset", "On")
		r.waitPower(simhw.On)
		r.redfishtoolLight(p)
		r.redfishtoolBoot(p)
		first := r.m.BootID()
		r.onSystem("reset", "ForceRestart")
		require.Eventually(t, func() bool { return r.m.BootID() != first }, runenv.Patience(10*time.Second), 5*time.Millisecond)
		r.onSystem("reset", "ForceOff")
		r.waitPower(simhw.Off)
		out := r.onSystem("-A", "Session", "-P", "PowerState")
		require.Contains(t, out, `"Off"`)
		require.Equal(t, map[string]int{"On": 1, "ForceRestart": 1, "ForceOff": 1}, r.s.Counters().Resets)
		require.Equal(t, 1, r.s.Counters().Logins)
		require.Zero(t, r.s.Counters().Sessions, "redfishtool logs out")
		require.Zero(t, r.s.Counters().FailedLogins)
	})
}

func (r *rig) redfishtoolLight(p redfishsim.Personality) {
	r.t.Helper()
	if p.LED {
		require.Contains(r.t, r.onSystem("setIndicatorLed", "Lit"), "Lit")
	} else {
		r.onSystem("patch", `{"LocationIndicatorActive": true}`)
	}
	require.True(r.t, r.m.Identify())
}

func (r *rig) redfishtoolBoot(p redfishsim.Personality) {
	r.t.Helper()
	raw := func(path, body string) {
		out, err := r.tool("raw", "PATCH", path, "-d", body)
		require.NoError(r.t, err, out)
	}
	switch p.Name {
	case "NVIDIA": // redfishtool knows no settings object
		out, err := r.tool("Systems", "-I", p.SystemID, "setBootOverride", "Once", "Pxe")
		require.Error(r.t, err)
		require.Contains(r.t, out, "400")
		raw(r.system()+"/Settings", `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}`)
	case "Supermicro": // redfishtool sends no mode, so the override is gone again
		require.Contains(r.t, r.onSystem("setBootOverride", "Once", "Pxe"), "Disabled")
		require.Equal(r.t, "None", r.m.BootOverride().Target)
		raw(r.system(), `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI"}}`)
	default:
		require.Contains(r.t, r.onSystem("setBootOverride", "Once", "Pxe"), "Pxe")
	}
	require.Equal(r.t, "Pxe", r.m.BootOverride().Target)
	require.Equal(r.t, "Once", r.m.BootOverride().Enabled)
}

func TestRedfishtoolReadsTheServices(t *testing.T) {
	t.Parallel()
	runenv.ProofOnly(t, "peers")
	needRedfishtool(t)
	r := newRigAt(t, "Dell", 100)
	for want, args := range map[string][]string{
		"Vendor":                  {"root"},
		"AccountLockoutThreshold": {"AccountService"},
		"SessionTimeout":          {"SessionService"},
		"iDRAC.Embedded.1":        {"Managers", "list"},
		"SerialNumber":            {"Chassis", "-1"},
		"edmx":                    {"metadata"},
		"Singleton":               {"odata"},
	} {
		out, err := r.tool(args...)
		require.NoError(t, err, out)
		require.Contains(t, out, want)
	}
}

// sushyScript prints one JSON object of what sushy read and did. Arguments:
// url, user, password, system path, boot mode or "".
const sushyScript = `
import json, sys, time
import sushy
from sushy import exceptions
url, user, password, path, mode = sys.argv[1:6]
conn = sushy.Sushy(url, auth=sushy.auth.SessionOrBasicAuth(user, password), verify=False)
out = {"systems": len(conn.get_system_collection().members_identities)}
s = conn.get_system(path)

def wait(state):
    end = time.time() + 20
    while s.power_state != state:
        if time.time() > end:
            raise SystemExit("power never became %s" % state)
        time.sleep(0.02)
        s.refresh(force=True)

def attempt(name, f):
    try:
        f()
        out[name] = "ok"
    except exceptions.HTTPError as e:
        out[name] = e.status_code

out["manufacturer"], out["uuid"] = s.manufacturer, s.uuid
out["resets"] = sorted(v.value for v in s.get_allowed_reset_system_values())
out["macs"] = len(s.ethernet_interfaces.summary)
out["processors"] = len(s.processors.get_members())
out["memory"] = s.memory_summary.size_gib
out["drives"] = sorted(d.serial_number for st in s.storage.get_members() for d in st.drives)
out["media"] = [v.identity for m in s.managers for v in m.virtual_media.get_members()]
out["temperatures"] = len(s.chassis[0].thermal.temperatures)
out["firmware"] = len(conn.get_update_service().firmware_inventory.get_members())
s.reset_system(sushy.ResetType.ON)
wait(sushy.PowerState.ON)
kw = {"target": sushy.BootSource.PXE, "enabled": sushy.BootSourceOverrideEnabled.ONCE}
if mode:
    kw["mode"] = sushy.BootSourceOverrideMode(mode)
attempt("boot", lambda: s.set_system_boot_options(**kw))
s.refresh(force=True)
out["target"], out["enabled"] = s.boot.target.value, s.boot.enabled.value
attempt("led", lambda: s.set_indicator_led(sushy.IndicatorLED.BLINKING))
s.reset_system(sushy.ResetType.FORCE_RESTART)
wait(sushy.PowerState.ON)
s.reset_system(sushy.ResetType.FORCE_OFF)
wait(sushy.PowerState.OFF)
conn._auth.close()
print(json.dumps(out))
`

type sushySaw struct {
	Systems, Macs, Processors, Temperatures, Firmware int
	Manufacturer, UUID, Target, Enabled               string
	Resets, Drives, Media                             []string
	Memory                                            float64
	Boot, LED                                         any
}

func TestSushyDrivesEveryPersonality(t *testing.T) {
	t.Parallel()
	needSushy(t)
	onVendors(t, vendors(t), func(t *testing.T, vendor string) {
		r := newRigAt(t, vendor, 100)
		p, spec := r.s.Personality(), r.m.Spec()
		mode := "UEFI"
		if !p.BootMode {
			mode = ""
		}
		text, err := peer(t, sushyScript, "-W", "ignore", "-", r.url, r.user, r.pw, r.system(), mode)
		require.NoError(t, err, text)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var saw sushySaw
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &saw), text)

		require.Equal(t, p.Manufacturer, saw.Manufacturer)
		require.Equal(t, spec.UUID, saw.UUID)
		require.Equal(t, len(spec.NICs), saw.Macs)
		require.InDelta(t, 1024, saw.Memory, 1)
		require.Equal(t, 10, saw.Firmware)
		require.Equal(t, 11, saw.Temperatures)
		require.Len(t, saw.Drives, len(spec.Disks))
		require.Len(t, saw.Media, len(p.Media))
		want := 10
		if p.BaseboardID != "" {
			want = 2
		}
		require.Equal(t, want, saw.Processors)
		if !p.ResetByInfo {
			require.ElementsMatch(t, p.ResetTypes, saw.Resets)
		}
		r.sushyBootAndLight(p, saw)
		require.Equal(t, map[string]int{"On": 1, "ForceRestart": 1, "ForceOff": 1}, r.s.Counters().Resets)
		require.Equal(t, 1, r.s.Counters().Logins)
		require.Zero(t, r.s.Counters().Sessions, "sushy logs out")
		require.Equal(t, simhw.Off, r.m.Power())
	})
}

func (r *rig) sushyBootAndLight(p redfishsim.Personality, saw sushySaw) {
	r.t.Helper()
	require.Equal(r.t, "ok", saw.Boot)
	require.Equal(r.t, "Pxe", saw.Target)
	require.Equal(r.t, "Once", saw.Enabled)
	if p.NeedsIfMatch { // sushy sends no If-Match with the light
		require.EqualValues(r.t, 428, saw.LED)
		require.False(r.t, r.m.Identify())
		return
	}
	require.Equal(r.t, "ok", saw.LED)
	require.True(r.t, r.m.Identify())
}
