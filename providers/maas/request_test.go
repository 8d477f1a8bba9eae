package maas_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// seen is one request as it arrived.
type seen struct {
	method, path, op string
	query, form      url.Values
	header           http.Header
}

// recorder answers each request by the first matching "METHOD path?op" entry
// and keeps what came.
type recorder struct {
	*stub
	mu  sync.Mutex
	got []seen
}

func record(t *testing.T, answers map[string]string) *recorder {
	t.Helper()
	r := &recorder{}
	r.stub = newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_ = req.ParseForm()
		s := seen{
			method: req.Method, path: strings.TrimPrefix(req.URL.Path, "/MAAS/api/2.0/"), op: req.URL.Query().Get("op"),
			query: req.URL.Query(), form: req.PostForm, header: req.Header,
		}
		r.mu.Lock()
		r.got = append(r.got, s)
		r.mu.Unlock()
		key := s.method + " " + s.path
		if s.op != "" {
			key += "?" + s.op
		}
		body, ok := answers[key]
		if !ok {
			answer(404, "text/plain", "No stub for "+key)(w, req)
			return
		}
		answer(200, "application/json", body)(w, req)
	})
	return r
}

func (r *recorder) requests() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]seen(nil), r.got...)
}

func TestOAuthHeader(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{"GET machines/" + id + "/": machineJSON(id, 4)})
	_, err := open(t, r.URL).Machine(within(t), id)
	require.NoError(t, err)
	got := r.requests()[0].header
	auth := got.Get("Authorization")
	require.True(t, strings.HasPrefix(auth, "OAuth "))
	fields := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(auth, -1) {
		fields[m[1]] = m[2]
	}
	require.Equal(t, "consumerQ1", fields["oauth_consumer_key"])
	require.Equal(t, "tokenQ2", fields["oauth_token"])
	require.Equal(t, "PLAINTEXT", fields["oauth_signature_method"])
	require.Equal(t, "%26signatureQ3", fields["oauth_signature"])
	require.Equal(t, "1.0", fields["oauth_version"])
	require.Regexp(t, `^\d+$`, fields["oauth_timestamp"])
	require.NotEmpty(t, fields["oauth_nonce"])
	require.Empty(t, got.Get("Cookie"))
}

// TestRequests checks the wire form of every mutation.
func TestRequests(t *testing.T) {
	t.Parallel()
	const m = "POST machines/" + id + "/?"
	const nic = "nodes/" + id + "/interfaces/3/"
	machine := machineJSON(id, providers.MAASReady)
	iface := `{"id":3,"resource_uri":"/MAAS/api/2.0/nodes/x/interfaces/3/"}`
	script := "#!/bin/sh\necho \"hi\"\n"
	for name, c := range map[string]struct {
		key, body string
		form      url.Values
		run       func(context.Context, providers.MAAS) error
	}{
		"commission": {m + "commission", machine,
			url.Values{"skip_bmc_config": {"1"}, "skip_networking": {"0"}, "skip_storage": {"1"}, "testing_scripts": {"none"}},
			func(ctx context.Context, c providers.MAAS) error {
				_, err := c.Commission(ctx, id, providers.MAASCommission{SkipStorage: true, TestingScripts: "none"})
				return err
			}},
		"override": {m + "override_failed_testing", machine, url.Values{"comment": {"two lines"}},
			func(ctx context.Context, c providers.MAAS) error {
				return c.OverrideFailedTesting(ctx, id, "two\nlines")
			}},
		"boot disk": {"POST nodes/" + id + "/blockdevices/7/?set_boot_disk", "OK", url.Values{},
			func(ctx context.Context, c providers.MAAS) error { return c.SetBootDisk(ctx, id, 7) }},
		"layout": {m + "set_storage_layout", machine, url.Values{"storage_layout": {"flat"}, "root_device": {"7"}},
			func(ctx context.Context, c providers.MAAS) error { return c.SetStorageLayout(ctx, id, "flat", 7) }},
		"layout, boot disk": {m + "set_storage_layout", machine, url.Values{"storage_layout": {"blank"}},
			func(ctx context.Context, c providers.MAAS) error { return c.SetStorageLayout(ctx, id, "blank", 0) }},
		"link": {"POST " + nic + "?link_subnet", iface, url.Values{"mode": {"AUTO"}, "subnet": {"9"}, "default_gateway": {"false"}},
			func(ctx context.Context, c providers.MAAS) error { return c.LinkSubnet(ctx, id, 3, 9, "auto") }},
		"link up": {"POST " + nic + "?link_subnet", iface, url.Values{"mode": {"LINK_UP"}, "default_gateway": {"false"}},
			func(ctx context.Context, c providers.MAAS) error { return c.LinkSubnet(ctx, id, 3, 0, "link_up") }},
		"link static": {"POST " + nic + "?link_subnet", iface,
			url.Values{"mode": {"STATIC"}, "subnet": {"9"}, "ip_address": {"10.1.2.3"}, "default_gateway": {"false"}},
			func(ctx context.Context, c providers.MAAS) error { return c.LinkStatic(ctx, id, 3, 9, "10.1.2.3") }},
		"unlink": {"POST " + nic + "?unlink_subnet", iface, url.Values{"id": {"12"}},
			func(ctx context.Context, c providers.MAAS) error { return c.UnlinkSubnet(ctx, id, 3, 12) }},
		"mtu": {"PUT " + nic, iface, url.Values{"mtu": {"9000"}},
			func(ctx context.Context, c providers.MAAS) error { return c.UpdateInterface(ctx, id, 3, 9000, nil) }},
		"tag": {"POST " + nic + "?add_tag", iface, url.Values{"tag": {"roce"}},
			func(ctx context.Context, c providers.MAAS) error {
				return c.UpdateInterface(ctx, id, 3, 0, []string{"roce"})
			}},
		"allocate": {"POST machines/?allocate", machine, url.Values{"system_id": {id}, "agent_name": {"slipway"}, "comment": {"why"}},
			func(ctx context.Context, c providers.MAAS) error {
				_, err := c.Allocate(ctx, id, "slipway", "why")
				return err
			}},
		"annotate": {m + "set_workload_annotations", machine, url.Values{"slipway.onboarding": {"o1"}, "old": {""}},
			func(ctx context.Context, c providers.MAAS) error {
				return c.SetWorkloadAnnotations(ctx, id, map[string]string{"slipway.onboarding": "o1", "old": ""})
			}},
		"deploy": {m + "deploy", machine,
			url.Values{"distro_series": {"ubuntu/jammy"}, "hwe_kernel": {"hwe-22.04"}, "enable_hw_sync": {"true"},
				"user_data": {base64.StdEncoding.EncodeToString([]byte(script))}, "comment": {"c"}},
			func(ctx context.Context, c providers.MAAS) error {
				_, err := c.Deploy(ctx, id, providers.MAASDeploy{
					DistroSeries: "ubuntu/jammy", HWEKernel: "hwe-22.04", EnableHWSync: true, UserData: []byte(script), Comment: "c",
				})
				return err
			}},
		"abort": {m + "abort", machine, url.Values{}, func(ctx context.Context, c providers.MAAS) error { return c.Abort(ctx, id, "") }},
		"release": {m + "release", machine, url.Values{},
			func(ctx context.Context, c providers.MAAS) error { return c.Release(ctx, id, providers.MAASRelease{}) }},
		"release, erased": {m + "release", machine,
			url.Values{"erase": {"true"}, "secure_erase": {"true"}, "quick_erase": {"true"}, "force": {"true"}, "comment": {"c"}},
			func(ctx context.Context, c providers.MAAS) error {
				return c.Release(ctx, id, providers.MAASRelease{Erase: true, SecureErase: true, QuickErase: true, Force: true, Comment: "c"})
			}},
		"power on": {m + "power_on", machine, url.Values{},
			func(ctx context.Context, c providers.MAAS) error { return c.PowerOn(ctx, id) }},
		"power off": {m + "power_off", "null", url.Values{"stop_mode": {"hard"}},
			func(ctx context.Context, c providers.MAAS) error { return c.PowerOff(ctx, id, true) }},
		"soft off": {m + "power_off", machine, url.Values{"stop_mode": {"soft"}},
			func(ctx context.Context, c providers.MAAS) error { return c.PowerOff(ctx, id, false) }},
		"hardware sync": {"PUT machines/" + id + "/", strings.Replace(machine, "{", `{"enable_hw_sync":true,`, 1),
			url.Values{"enable_hw_sync": {"true"}},
			func(ctx context.Context, c providers.MAAS) error { return c.SetHardwareSync(ctx, id, true) }},
		"create": {"POST machines/", machine,
			url.Values{"commission": {"false"}, "architecture": {"amd64/generic"}, "mac_addresses": {"3c:ec:ef:00:00:01"}, "hostname": {"n1"},
				"power_type": {"redfish"}, "power_parameters_power_address": {"10.0.0.1"}, "power_parameters_power_user": {"root"},
				"power_parameters_power_pass": {password}, "power_parameters_node_id": {"1"}, "pool": {"gpu"}},
			func(ctx context.Context, c providers.MAAS) error {
				in := newMachine()
				in.Pool, in.PowerNodeID = "gpu", "1"
				got, err := c.CreateMachine(ctx, in)
				if err == nil && got.SystemID != id {
					return fmt.Errorf("created %q", got.SystemID)
				}
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, map[string]string{c.key: c.body})
			require.NoError(t, c.run(within(t), open(t, r.URL)))
			got := r.requests()
			require.Len(t, got, 1)
			require.Equal(t, c.form, got[0].form)
			if got[0].method != http.MethodGet {
				require.Equal(t, "application/x-www-form-urlencoded", got[0].header.Get("Content-Type"))
			}
		})
	}
}

func TestUpdateInterfaceSendsOneRequestAnItem(t *testing.T) {
	t.Parallel()
	iface := `{"id":3,"resource_uri":"/x/"}`
	r := record(t, map[string]string{"PUT nodes/" + id + "/interfaces/3/": iface, "POST nodes/" + id + "/interfaces/3/?add_tag": iface})
	m := open(t, r.URL)
	require.NoError(t, m.UpdateInterface(within(t), id, 3, 9000, []string{"a", "b"}))
	require.Len(t, r.requests(), 3)
	require.NoError(t, m.UpdateInterface(within(t), id, 3, 0, nil))
	require.Len(t, r.requests(), 3, "nothing to do sends nothing")
	requireKind(t, m.UpdateInterface(within(t), id, 3, 0, make([]string, 17)), providers.KindInvalid)
}

func TestHardwareSyncIgnoredByMAAS(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{"PUT machines/" + id + "/": strings.Replace(machineJSON(id, 6), "{", `{"enable_hw_sync":false,`, 1)})
	requireKind(t, open(t, r.URL).SetHardwareSync(within(t), id, true), providers.KindUnsupported)
}

func TestCreateIsCheckedFirst(t *testing.T) {
	t.Parallel()
	r := record(t, nil)
	m := open(t, r.URL)
	for name, change := range map[string]func(*providers.MAASCreate){
		"power type": func(c *providers.MAASCreate) { c.PowerType = "virsh" },
		"address":    func(c *providers.MAASCreate) { c.PowerAddress = "" },
		"password":   func(c *providers.MAASCreate) { c.PowerPassword = providers.Secret{} },
		"mac":        func(c *providers.MAASCreate) { c.MACs = []string{"1"} },
		"no mac":     func(c *providers.MAASCreate) { c.MACs = nil },
		"arch":       func(c *providers.MAASCreate) { c.Architecture = "amd64 generic" },
		"host":       func(c *providers.MAASCreate) { c.Hostname = "a b" },
		"pool":       func(c *providers.MAASCreate) { c.Pool = "a&b" },
		"node id":    func(c *providers.MAASCreate) { c.PowerType, c.PowerNodeID = "ipmi", "1" },
	} {
		in := newMachine()
		change(&in)
		_, err := m.CreateMachine(within(t), in)
		pe := requireKind(t, err, providers.KindInvalid)
		require.NotContains(t, pe.Error(), password, name)
	}
	require.Empty(t, r.requests())
}

func TestProbe(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"GET version/":               `{"version":"3.7.0","subversion":"17","capabilities":[]}`,
		"GET users/?whoami":          `{"username":"admin","email":"a@b","is_superuser":true,"resource_uri":"/x/"}`,
		"GET account/prefs/sshkeys/": `[{"id":1,"key":"ssh-ed25519 AAAA","keysource":""}]`,
		"GET maas/?get_config":       `"15m"`,
		"GET boot-resources/":        `[{"id":1,"name":"ubuntu/noble"},{"id":2,"name":"ubuntu/jammy"},{"id":3,"name":"ubuntu/jammy"}]`,
	}
	r := record(t, answers)
	info, err := open(t, r.URL).Probe(within(t))
	require.NoError(t, err)
	require.Equal(t, "3.7.0", info.Version)
	require.Equal(t, "admin", info.User)
	require.True(t, info.IsSuperuser)
	require.Equal(t, 1, info.SSHKeys)
	require.Equal(t, []string{"ubuntu/jammy", "ubuntu/noble"}, info.Images)
	require.Equal(t, "15m", info.Config["hardware_sync_interval"])
	for _, got := range r.requests() {
		require.Equal(t, http.MethodGet, got.method)
	}

	// A setting that this version does not know is left out.
	s := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		switch name := req.URL.Query().Get("name"); name {
		case "":
			key := "GET " + strings.TrimPrefix(req.URL.Path, "/MAAS/api/2.0/")
			if op := req.URL.Query().Get("op"); op != "" {
				key += "?" + op
			}
			answer(200, "application/json", answers[key])(w, req)
		case "node_timeout":
			answer(200, "application/json", "30")(w, req)
		case "enable_disk_erasing_on_release":
			answer(200, "application/json", "null")(w, req)
		default:
			answer(400, "application/json", `{"name":["not a valid config setting"]}`)(w, req)
		}
	})
	info, err = open(t, s.URL).Probe(within(t))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"node_timeout": "30", "enable_disk_erasing_on_release": ""}, info.Config)
}

func TestMachineDecoding(t *testing.T) {
	t.Parallel()
	full := `{"system_id":"abc4ef","hostname":"n1","fqdn":"n1.maas","status":6,"status_message":null,"error_description":"time-out during deployment",
	"power_state":"on","power_type":"redfish","owner":"admin","locked":true,"osystem":"ubuntu","distro_series":"jammy",
	"zone":{"name":"z1","id":1},"pool":{"name":"gpu","id":0},"architecture":"amd64/generic","hardware_uuid":"4C4C4544-0035-4D10-8051-B7C04F4E5A32",
	"hardware_info":{"system_serial":"SER1","system_vendor":null},"boot_disk":{"id":75},
	"boot_interface":{"id":112,"mac_address":"3C:EC:EF:00:00:01","vlan":{"id":5001}},
	"interface_set":[{"id":112,"mac_address":"3C:EC:EF:00:00:01","vlan":null},{"id":113,"mac_address":"3c:ec:ef:00:00:00","vlan":null}],
	"ip_addresses":["10.0.0.5",null,"fd00::5"],"enable_hw_sync":true,"sync_interval":900,"last_sync":"2026-11-21T01:02:03.456Z",
	"next_sync":"2026-11-21T01:17:03.456+00:00","workload_annotations":{"slipway":"o1"},"testing_status":-1,"commissioning_status":2}`
	r := record(t, map[string]string{"GET machines/" + id + "/": full})
	m, err := open(t, r.URL).Machine(within(t), id)
	require.NoError(t, err)
	last := time.Date(2026, 11, 21, 1, 2, 3, 456e6, time.UTC)
	require.Equal(t, providers.MAASMachine{
		SystemID: id, Hostname: "n1", FQDN: "n1.maas", Status: providers.MAASDeployed, ErrorDescription: "time-out during deployment",
		PowerState: "on", PowerType: "redfish", Owner: "admin", Locked: true, OSystem: "ubuntu", DistroSeries: "jammy",
		Zone: "z1", Pool: "gpu", Architecture: "amd64/generic", Serial: "SER1", UUID: "4c4c4544-0035-4d10-8051-b7c04f4e5a32", BootDiskID: 75,
		BootInterfaceID: 112, BootInterfaceMAC: "3c:ec:ef:00:00:01", BootVLANID: 5001,
		MACs: []string{"3c:ec:ef:00:00:00", "3c:ec:ef:00:00:01"}, IPAddresses: []string{"10.0.0.5", "fd00::5"},
		EnableHWSync: true, SyncInterval: 15 * time.Minute, LastSync: last, NextSync: last.Add(15 * time.Minute),
		Annotations: map[string]string{"slipway": "o1"}, TestingStatus: -1, CommissionStatus: 2,
	}, m)

	// Off but with times left over from an earlier deployment: gomaasclient
	// would call that on.
	bare := `{"system_id":"abc4ef","status":0,"owner":null,"zone":null,"boot_disk":null,"boot_interface":null,"hardware_uuid":null,
	"hardware_info":{"system_serial":"Unknown"},"enable_hw_sync":false,"sync_interval":900,"last_sync":"yesterday","next_sync":null,
	"workload_annotations":null,"ip_addresses":[],"interface_set":[]}`
	r = record(t, map[string]string{"GET machines/" + id + "/": bare})
	m, err = open(t, r.URL).Machine(within(t), id)
	require.NoError(t, err)
	require.Equal(t, providers.MAASMachine{SystemID: id, SyncInterval: 15 * time.Minute}, m)

	for _, none := range []string{"null", "{}", `{"system_id":"abc4ef"}`, `{"system_id":"","status":4}`, "[]", `{"status":"x"}`} {
		r = record(t, map[string]string{"GET machines/" + id + "/": none})
		_, err = open(t, r.URL).Machine(within(t), id)
		requireKind(t, err, providers.KindProtocol)
	}
}
