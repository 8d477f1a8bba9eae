package redfishsim_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

func onEach(t *testing.T, f func(t *testing.T, vendor string)) {
	onVendors(t, redfishsim.Names(), f)
}

func onVendors(t *testing.T, vendors []string, f func(t *testing.T, vendor string)) {
	for _, vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			f(t, vendor)
		})
	}
}

// Every link that a vendor's tree shows leads to a resource with that id.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		token, _ := r.login()
		seen, queue := map[string]bool{}, []string{"/redfish/v1"}
		for len(queue) > 0 {
			path := queue[0]
			queue = queue[1:]
			if seen[strings.TrimSuffix(path, "/")] {
				continue
			}
			seen[strings.TrimSuffix(path, "/")] = true
			a := r.get(path, "X-Auth-Token", token)
			require.Equal(t, strings.TrimSuffix(path, "/"), strings.TrimSuffix(a.obj["@odata.id"].(string), "/"))
			require.NotEmpty(t, a.obj["Name"], path)
			require.NotEmpty(t, a.header.Get("ETag"), path)
			queue = append(queue, linksIn(a.obj)...)
		}
		require.Greater(t, len(seen), 60, "the tree is too small to be a server")
	})
}

func linksIn(v any) []string {
	var out []string
	switch x := v.(type) {
	case m:
		for k, e := range x {
			if s, ok := e.(string); ok && (k == "@odata.id" || k == "@Redfish.ActionInfo") && !strings.Contains(s, "#") {
				out = append(out, s)
			}
			out = append(out, linksIn(e)...)
		}
	case []any:
		for _, e := range x {
			out = append(out, linksIn(e)...)
		}
	}
	return out
}

func TestServiceRootNeedsNoLoginAndNamesTheVendor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		a := r.get("/redfish/v1/", "Authorization", "")
		require.Equal(t, vendor, a.obj["Vendor"])
		for _, path := range []string{"/redfish", "/redfish/v1/odata", "/redfish/v1/$metadata"} {
			r.get(path, "Authorization", "")
		}
		require.Equal(t, 401, r.do("GET", "/redfish/v1/Systems", nil, "Authorization", "").status)
		require.Equal(t, 404, r.do("GET", "/redfish/v1/Nothing", nil).status)
		require.Equal(t, 405, r.do("PUT", "/redfish/v1/Systems", m{}).status)
		require.Equal(t, r.url, r.m.Spec().BMCAddress)
		require.Zero(t, r.s.Counters().FailedLogins, "no credentials sent is no failed login")
	})
}

func TestPowerPassesThroughItsTransitions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		power := func() any { return r.get(r.system()).obj["PowerState"] }
		require.Equal(t, "Off", power())
		require.Less(t, r.reset("On").status, 300)
		require.Equal(t, "PoweringOn", power())
		r.settle(simhw.On)
		require.Equal(t, "On", power())
		first := r.m.BootID()
		require.Less(t, r.reset("ForceRestart").status, 300)
		r.settle(simhw.On)
		require.NotEqual(t, first, r.m.BootID())
		require.Less(t, r.reset("ForceOff").status, 300)
		require.Equal(t, "PoweringOff", power())
		r.settle(simhw.Off)
		c := r.s.Counters()
		require.Equal(t, map[string]int{"On": 1, "ForceRestart": 1, "ForceOff": 1}, c.Resets)
		require.Equal(t, 1, c.PowerCycles)
		require.Equal(t, 400, r.reset("Explode").status)
		require.Equal(t, 400, r.do("POST", r.system()+"/Actions/ComputerSystem.Reset", m{}).status)
		require.Equal(t, 400, r.do("POST", r.system()+"/Actions/ComputerSystem.Reset", "not json").status)
	})
}

func TestResetToThePresentStateByVendor(t *testing.T) {
	t.Parallel()
	want := map[string]int{"Dell": 409, "HPE": 400, "Supermicro": 204, "Lenovo": 204, "NVIDIA": 204}
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		require.Equal(t, want[vendor], r.reset("ForceOff").status)
		require.GreaterOrEqual(t, r.reset("ForceRestart").status, 400, "a restart of a system that is off")
		require.Empty(t, r.s.Counters().Resets)
		require.Equal(t, simhw.Counters{}, r.m.Counters())
	})
}

func TestPowerCycleGoesThroughOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, "NVIDIA")
	r.reset("On")
	r.settle(simhw.On)
	require.Equal(t, 204, r.reset("PowerCycle").status)
	require.Equal(t, simhw.PoweringOff, r.m.Power())
	r.settle(simhw.On)
	require.Equal(t, 2, r.m.Counters().PowerOns)
	require.Equal(t, 1, r.m.Counters().PowerOffs)
}

func TestDellRefusesOnShortlyAfterOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.reset("On")
	r.settle(simhw.On)
	r.reset("ForceOff")
	r.settle(simhw.Off)
	a := r.reset("On")
	require.Equal(t, 409, a.status)
	require.Equal(t, "Base.1.12.ActionParameterValueConflict", a.messageID())
	require.Equal(t, simhw.Off, r.m.Power())
	r.m.Clock().Step(11 * time.Second)
	require.Less(t, r.reset("On").status, 300)
}

func TestDellDrivesHaveALocationArray(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	var store struct {
		Drives []struct {
			ID string `json:"@odata.id"`
		}
	}
	require.NoError(t, json.Unmarshal(r.get(r.system()+"/Storage/CPU.1").raw, &store))
	require.Len(t, store.Drives, 4)
	d := r.get(store.Drives[0].ID).obj
	require.IsType(t, []any{}, d["Location"])
	require.Equal(t, "S000007N0", d["SerialNumber"])
}

func TestSupermicroRevertsAPartialBootPatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Supermicro")
	sys := r.get(r.system()).obj
	action := sys["Actions"].(m)["#ComputerSystem.Reset"].(m)
	require.NotContains(t, action, "ResetType@Redfish.AllowableValues")
	info := r.get(action["@Redfish.ActionInfo"].(string)).obj
	require.Contains(t, info["Parameters"].([]any)[0].(m)["AllowableValues"], "ForceOff")
	require.Contains(t, sys["Boot"].(m)["BootSourceOverrideTarget@Redfish.AllowableValues"], "UsbCd")

	partial := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
	require.Equal(t, 200, r.patch(r.system(), partial).status)
	require.Equal(t, "Disabled", r.get(r.system()).boot("BootSourceOverrideEnabled"))
	full := m{"Boot": m{"BootSourceOverrideTarget": "UsbCd", "BootSourceOverrideEnabled": "Once", "BootSourceOverrideMode": "UEFI"}}
	require.Equal(t, 200, r.patch(r.system(), full).status)
	require.Equal(t, simhw.Override{Target: "UsbCd", Enabled: "Once", Mode: "UEFI"}, r.m.BootOverride())
}

func TestHPELocksBootDuringPOSTAndHasASettingsObject(t *testing.T) {
	t.Parallel()
	r := newRig(t, "HPE")
	sys := r.get(r.system())
	settings := sys.obj["@Redfish.Settings"].(m)["SettingsObject"].(m)["@odata.id"].(string)
	require.Equal(t, "/redfish/v1/Systems/1/settings/", settings)
	require.True(t, strings.HasPrefix(sys.header.Get("ETag"), "W/"))
	pxe := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
	r.reset("On")
	a := r.patch(settings, pxe)
	require.Equal(t, 400, a.status)
	require.Contains(t, a.messageID(), "UnableToModifyDuringSystemPOST")
	r.settle(simhw.On)
	require.Equal(t, 200, r.patch(settings, pxe).status)
	require.Equal(t, "Pxe", r.get(r.system()).boot("BootSourceOverrideTarget"))
	require.Equal(t, "Pxe", r.get(settings).boot("BootSourceOverrideTarget"))
}

func TestLenovoPendingCarriesTheBootOrderOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Lenovo")
	pending := r.system() + "/Pending"
	p := r.get(pending)
	require.NotNil(t, p.boot("BootOrder"))
	require.Nil(t, p.boot("BootSourceOverrideTarget"))
	require.Equal(t, p.header.Get("ETag"), p.obj["@odata.etag"])
	once := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
	require.Equal(t, 400, r.patch(pending, once).status)
	require.Equal(t, 200, r.patch(pending, m{"Boot": m{"BootOrder": []string{"Boot0002", "Boot0000"}}}).status)
	require.Equal(t, []any{"Boot0002", "Boot0000"}, r.get(pending).boot("BootOrder"))
	require.Equal(t, 200, r.patch(r.system(), once).status)
	require.Equal(t, "Once", r.get(r.system()).boot("BootSourceOverrideEnabled"))
	always := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Continuous"}}
	require.Equal(t, 400, r.patch(r.system(), always).status, "this vendor has no Continuous")
}

func TestNVIDIAHasTwoSystemsAndWritesAtTheSettingsObject(t *testing.T) {
	t.Parallel()
	r := newRig(t, "NVIDIA")
	require.Len(t, r.get("/redfish/v1/Systems").members(), 2)
	board := r.get("/redfish/v1/Systems/HGX_Baseboard_0").obj
	require.NotContains(t, board["Actions"], "#ComputerSystem.Reset")
	host := r.get(r.system()).obj
	require.Empty(t, host["Model"])
	require.Empty(t, host["SerialNumber"])
	require.Equal(t, r.m.Spec().Serial, r.get("/redfish/v1/Chassis/Chassis_0").obj["SerialNumber"])
	require.NotContains(t, host["Boot"], "BootSourceOverrideMode")
	gpus := r.get("/redfish/v1/Systems/HGX_Baseboard_0/Processors").members()
	require.Len(t, gpus, 8)
	require.Equal(t, "GPU", r.get(gpus[0]).obj["ProcessorType"])

	once := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
	a := r.patch(r.system(), once)
	require.Equal(t, 400, a.status)
	require.Contains(t, a.messageID(), "OperationSupportedInFutureStateURI")
	require.Equal(t, 428, r.do("PATCH", r.system()+"/Settings", once).status)
	require.Equal(t, 412, r.do("PATCH", r.system()+"/Settings", once, "If-Match", `"old"`).status)
	require.Equal(t, "None", r.m.BootOverride().Target)
	require.Equal(t, 204, r.patch(r.system()+"/Settings", once).status)
	require.Equal(t, "Pxe", r.m.BootOverride().Target)
	require.Equal(t, 204, r.do("PATCH", r.system()+"/Settings", once, "If-Match", "*").status)
}

func TestBootPatchRefusesNullsAndUnknownsAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	before := r.m.BootOverride()
	for _, boot := range []any{
		m{"BootSourceOverrideTarget": "Pxe", "BootOrder": nil},
		m{"BootSourceOverrideTarget": "Pxe", "BootNext": ""},
		m{"BootSourceOverrideTarget": "Toaster"},
		m{"BootSourceOverrideTarget": 7},
		"Pxe",
	} {
		require.Equal(t, 400, r.patch(r.system(), m{"Boot": boot}).status, "%v", boot)
	}
	require.Equal(t, 400, r.patch(r.system(), m{"AssetTag": "x", "Colour": "red"}).status)
	require.Equal(t, before, r.m.BootOverride())
	require.Equal(t, "", r.get(r.system()).obj["AssetTag"])
}

func TestOnceIsSpentByTheNextBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Dell")
	r.patch(r.system(), m{"Boot": m{"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Once"}})
	r.reset("On")
	r.settle(simhw.On)
	require.Equal(t, "Disabled", r.get(r.system()).boot("BootSourceOverrideEnabled"))
	require.Contains(t, string(r.get("/redfish/v1/Managers/iDRAC.Embedded.1/LogServices/Sel/Entries").raw), "booted from disk")
}

func TestAStaleETagIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "Lenovo")
	tag := r.get(r.system()).header.Get("ETag")
	once := m{"Boot": m{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
	a := r.do("PATCH", r.system(), once, "If-Match", tag)
	require.Equal(t, 200, a.status)
	require.NotEqual(t, tag, a.header.Get("ETag"))
	require.Equal(t, 412, r.do("PATCH", r.system(), m{"AssetTag": "x"}, "If-Match", tag).status)
	require.Equal(t, 200, r.do("PATCH", r.system(), m{"AssetTag": "x"}, "If-Match", a.header.Get("ETag")).status)
	require.Equal(t, 2, r.s.Counters().Patches)
}

func TestIdentifyLight(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		p := r.s.Personality()
		for _, path := range []string{r.system(), "/redfish/v1/Chassis/" + p.ChassisID} {
			if p.LED {
				require.Less(t, r.patch(path, m{"IndicatorLED": "Blinking"}).status, 300)
				require.True(t, r.m.Identify())
				require.Equal(t, "Blinking", r.get(path).obj["IndicatorLED"])
				require.Less(t, r.patch(path, m{"IndicatorLED": "Off"}).status, 300)
			}
			if p.Locator {
				require.Less(t, r.patch(path, m{"LocationIndicatorActive": true}).status, 300)
				require.True(t, r.m.Identify())
				require.Less(t, r.patch(path, m{"LocationIndicatorActive": false}).status, 300)
			}
			require.False(t, r.m.Identify())
			require.Equal(t, 400, r.patch(path, m{"IndicatorLED": "Purple"}).status)
		}
	})
}
