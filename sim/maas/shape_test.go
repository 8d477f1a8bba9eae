package maassim_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/juju/gomaasapi/v2"
	"github.com/stretchr/testify/require"

	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// kinds of JSON values; "?" in front allows null.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		if v == float64(int64(v)) {
			return "int"
		}
		return "float"
	case []any:
		return "array"
	default:
		return "object"
	}
}

func requireShape(t *testing.T, want map[string]string, got map[string]any) {
	t.Helper()
	for words, kind := range want {
		for f := range strings.FieldsSeq(words) {
			v, there := got[f]
			require.True(t, there, "field %s is missing", f)
			have := kindOf(v)
			if base, nullable := strings.CutPrefix(kind, "?"); nullable {
				require.Contains(t, []string{base, "null"}, have, "field %s", f)
				continue
			}
			if kind == "float" && have == "int" {
				continue
			}
			require.Equal(t, kind, have, "field %s", f)
		}
	}
}

var machineShape = map[string]string{
	"architecture bios_boot_method description distro_series fqdn hostname node_type_name osystem power_state power_type resource_uri": "string",
	"status_action status_name system_id error_description commissioning_status_name testing_status_name cpu_test_status_name":         "string",
	"memory_test_status_name network_test_status_name storage_test_status_name interface_test_status_name other_test_status_name":      "string",
	"status_message owner hwe_kernel min_hwe_kernel hardware_uuid last_sync next_sync":                                                 "?string",
	"status node_type cpu_count cpu_speed memory commissioning_status testing_status cpu_test_status memory_test_status":               "int",
	"network_test_status storage_test_status interface_test_status other_test_status":                                                  "int",
	"current_commissioning_result_id current_testing_result_id current_installation_result_id sync_interval address_ttl swap_size":     "?int",
	"storage": "float",
	"disable_ipv4 locked netboot ephemeral_deploy enable_hw_sync enable_kernel_crash_dump is_dpu":                         "bool",
	"bcaches raids volume_groups cache_sets blockdevice_set physicalblockdevice_set virtualblockdevice_set interface_set": "array",
	"ip_addresses special_filesystems tag_names numanode_set":                                                             "array",
	"domain zone pool hardware_info owner_data workload_annotations default_gateways":                                     "object",
	"parent boot_disk boot_interface pod virtualmachine_id":                                                               "?object",
}

func TestShapes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	fresh := l.get("machines/"+id+"/", nil).object(t)
	requireShape(t, machineShape, fresh)
	require.Nil(t, fresh["boot_disk"])
	require.Nil(t, fresh["last_sync"])
	require.InDelta(t, -1, fresh["testing_status"], 0)
	require.NotContains(t, fresh, "constraints_by_type")

	l.ok("machines/"+id+"/", "commission", l.commissionForm())
	l.await(id, maassim.Ready)
	m := l.ok("machines/", "allocate", url.Values{"system_id": {id}, "agent_name": {"slipway"}}).object(t)
	requireShape(t, machineShape, m)
	require.Contains(t, m, "constraints_by_type")
	require.Len(t, m["hardware_info"], 18)
	require.Equal(t, l.hw.Spec().Serial, m["hardware_info"].(map[string]any)["system_serial"])
	for _, o := range []string{"domain", "zone", "pool"} {
		require.Contains(t, m[o], "resource_uri")
	}
	for _, nic := range m["interface_set"].([]any) {
		nic := nic.(map[string]any)
		requireShape(t, map[string]string{
			"id effective_mtu interface_speed link_speed sriov_max_vf": "int", "numa_node": "?int", "name type mac_address system_id resource_uri": "string",
			"vlan": "?object", "enabled link_connected": "bool", "parents children tags links": "array", "discovered": "?array",
			"vendor product firmware_version": "?string",
		}, nic)
		require.Contains(t, []string{"string", "object"}, kindOf(nic["params"]))
		for _, link := range nic["links"].([]any) {
			requireShape(t, map[string]string{"id": "int", "mode": "string"}, link.(map[string]any))
			require.Contains(t, []any{"auto", "link_up"}, link.(map[string]any)["mode"], "modes are lower case")
		}
	}
	for _, d := range m["blockdevice_set"].([]any) {
		requireShape(t, map[string]string{
			"id size block_size used_size available_size": "int", "numa_node": "?int", "name used_for type path system_id resource_uri": "string",
			"model serial id_path partition_table_type firmware_version storage_pool uuid": "?string", "partitions tags": "array", "filesystem": "?object",
		}, d.(map[string]any))
	}
	require.Equal(t, "nvme0n1", m["boot_disk"].(map[string]any)["name"], "enumeration order, not the BOSS")
	requireShape(t, map[string]string{"ipv4 ipv6": "object"}, m["default_gateways"].(map[string]any))
}

// TestProfile35 has no is_dpu field.
func TestProfile35(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *maassim.Options) { o.Profile = "3.5" })
	require.NotContains(t, l.get("machines/"+l.created()+"/", nil).object(t), "is_dpu")
	require.Equal(t, "3.5.13", l.get("version/", nil).object(t)["version"])
}

func TestSite(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *maassim.Options) { o.Zones, o.Pools = []string{"hall-2"}, []string{"gpu"} })
	requireShape(t, map[string]string{"version subversion": "string", "capabilities": "array"}, l.get("version/", nil).object(t))
	require.Equal(t, true, l.get("users/", url.Values{"op": {"whoami"}}).object(t)["is_superuser"])
	require.Len(t, l.get("account/prefs/sshkeys/", nil).objects(t), 1)
	config := func(name string) answer { return l.get("maas/", url.Values{"op": {"get_config"}, "name": {name}}) }
	require.Equal(t, `"15m"`, config("hardware_sync_interval").text())
	require.Equal(t, "false", config("enable_disk_erasing_on_release").text())
	require.Equal(t, 400, config("nonsense").code)
	images := l.get("boot-resources/", nil).objects(t)
	require.Equal(t, "ubuntu/jammy", images[0]["name"])
	subnets := l.get("subnets/", nil).objects(t)
	require.Len(t, subnets, 2)
	require.Nil(t, subnets[1]["gateway_ip"], "the fast fabric has none")

	form := l.createForm()
	form.Set("zone", "hall-9")
	require.Equal(t, 400, l.post("machines/", "", form).code)
	form.Set("zone", "hall-2")
	form.Set("pool", "gpu")
	id, _ := l.ok("machines/", "", form).object(t)["system_id"].(string)
	require.Equal(t, id, l.get("machines/", url.Values{"zone": {"hall-2"}, "pool": {"gpu"}, "status": {"new"}}).objects(t)[0]["system_id"])
	require.Empty(t, l.get("machines/", url.Values{"status": {"deployed"}}).objects(t))
}

// TestSecondClient lets an independent client, which checks every answer
// against schemas of its own, take a machine through its life.
func TestSecondClient(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	c, err := gomaasapi.NewController(gomaasapi.ControllerArgs{BaseURL: l.addrs.URL(), APIKey: apiKey, HTTPClient: &http.Client{Timeout: runenv.Patience(20 * time.Second)}})
	require.NoError(t, err)
	require.True(t, c.Capabilities().Contains("network-deployment-ubuntu"))
	found, err := c.Machines(gomaasapi.MachinesArgs{MACAddresses: []string{l.hw.Spec().NICs[0].MAC}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, id, found[0].SystemID())
	require.NotNil(t, found[0].BootInterface())
	require.Len(t, found[0].PhysicalBlockDevices(), 5)
	m, _, err := c.AllocateMachine(gomaasapi.AllocateMachineArgs{Hostname: "gpu-1", AgentName: "juju"})
	require.NoError(t, err)
	require.NoError(t, m.Start(gomaasapi.StartArgs{DistroSeries: "jammy", UserData: base64.StdEncoding.EncodeToString([]byte("#cloud-config\n"))}))
	require.Equal(t, "Deploying", m.StatusName())
	l.await(id, maassim.Deployed)
	require.NoError(t, c.ReleaseMachines(gomaasapi.ReleaseMachinesArgs{SystemIDs: []string{id}}))
	l.await(id, maassim.Ready)
	_, _, err = c.AllocateMachine(gomaasapi.AllocateMachineArgs{Hostname: "nobody"})
	require.True(t, gomaasapi.IsNoMatchError(err), "%v", err)
	err = c.ReleaseMachines(gomaasapi.ReleaseMachinesArgs{SystemIDs: []string{"aaaaaa"}})
	require.True(t, gomaasapi.IsBadRequestError(err), "%v", err)
}

// TestEventPaging: newest first, limits, before and after, levels.
func TestEventPaging(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	all := l.events(id, "DEBUG")
	require.Greater(t, len(all), 6)
	require.True(t, slices.IsSortedFunc(all, func(a, b map[string]any) int { return int(b["id"].(float64) - a["id"].(float64)) }))
	requireShape(t, map[string]string{"username node hostname level created type description": "string", "id": "int"}, all[0])
	_, err := time.Parse("Mon, 02 Jan. 2006 15:04:05", all[0]["created"].(string))
	require.NoError(t, err)
	for _, e := range l.events(id, "INFO") {
		require.NotEqual(t, "DEBUG", e["level"])
	}
	page := l.get("events/", url.Values{"op": {"query"}, "id": {id}, "level": {"DEBUG"}, "limit": {"2"}}).object(t)
	require.InDelta(t, 2, page["count"], 0)
	prev, err := url.Parse(page["prev_uri"].(string))
	require.NoError(t, err)
	older := l.get("events/", prev.Query()).object(t)["events"].([]any)
	require.Equal(t, all[2]["id"], older[0].(map[string]any)["id"])
	newer := l.get("events/", url.Values{"op": {"query"}, "level": {"DEBUG"}, "after": {fmt.Sprint(all[3]["id"])}, "limit": {"2"}}).object(t)["events"].([]any)
	require.Equal(t, all[1]["id"], newer[0].(map[string]any)["id"], "the oldest of the newer ones")
	for _, bad := range []url.Values{{"limit": {"1001"}}, {"level": {"LOUD"}}, {"before": {"x"}}, {"before": {"1"}, "after": {"1"}}} {
		bad.Set("op", "query")
		require.Equal(t, 400, l.get("events/", bad).code, "%v", bad)
	}
	change := slices.ContainsFunc(all, func(e map[string]any) bool {
		return e["type"] == "Node changed status" && e["description"] == "From 'New' to 'Commissioning'" && e["level"] == "DEBUG"
	})
	require.True(t, change)
}
