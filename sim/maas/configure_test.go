package maassim_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

func modes(t *testing.T, nic map[string]any) []string {
	t.Helper()
	out := []string{}
	for _, l := range nic["links"].([]any) {
		out = append(out, l.(map[string]any)["mode"].(string))
	}
	return out
}

// TestLinks: what each mode pushes out, and what is refused.
func TestLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	nic := l.bootNIC(id)
	link := func(kv ...string) answer {
		form := url.Values{}
		for i := 0; i+1 < len(kv); i += 2 {
			form.Set(kv[i], kv[i+1])
		}
		return l.post(nic, "link_subnet", form)
	}
	require.Equal(t, []string{"auto"}, modes(t, l.nicView(nic)))
	require.Equal(t, []string{"auto", "auto"}, modes(t, link("mode", "AUTO", "subnet", "1").object(t)), "always one more")
	require.Equal(t, []string{"auto", "auto", "static"}, modes(t, link("mode", "STATIC", "subnet", "1", "ip_address", "10.10.7.7").object(t)))
	for want, a := range map[string]answer{
		`"mode"`:                    link("subnet", "1"),
		"is not a valid choice":     link("mode", "teleport", "subnet", "1"),
		"This field is required":    link("mode", "static"),
		"Select a valid choice":     link("mode", "auto", "subnet", "2"),
		"not in the given subnet":   link("mode", "static", "subnet", "1", "ip_address", "192.0.2.1"),
		"already in use":            link("mode", "static", "subnet", "1", "ip_address", "10.10.7.7"),
		"Enter a valid IPv4":        link("mode", "static", "subnet", "1", "ip_address", "here"),
		"while other links are alr": link("mode", "link_up"),
	} {
		require.Equal(t, 400, a.code, "%s", a.body)
		require.Contains(t, a.text(), want)
	}
	first := fmt.Sprint(l.nicView(nic)["links"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, 400, l.post(nic, "unlink_subnet", url.Values{"id": {"999999"}}).code)
	require.Equal(t, []string{"auto", "static"}, modes(t, l.ok(nic, "unlink_subnet", url.Values{"id": {first}}).object(t)))
	require.Equal(t, []string{"link_up"}, modes(t, link("mode", "LINK_UP", "force", "true").object(t)))
	require.Equal(t, []string{"dhcp"}, modes(t, link("mode", "dhcp", "subnet", "1").object(t)), "pushes out link_up")
	require.Equal(t, []string{"auto"}, modes(t, link("mode", "auto", "subnet", "1").object(t)), "pushes out DHCP")
	require.Equal(t, []string{"auto", "static"}, modes(t, link("mode", "static", "subnet", "1", "default_gateway", "true").object(t)))
	gw := l.get("machines/"+id+"/", nil).object(t)["default_gateways"].(map[string]any)["ipv4"].(map[string]any)
	require.Equal(t, "10.10.0.1", gw["gateway_ip"])
}

func TestInterfaces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	base := "nodes/" + id + "/interfaces/"
	nics := l.get(base, nil).objects(t)
	require.Len(t, nics, 4)
	a := fmt.Sprint(nics[2]["id"])
	put := func(form url.Values) answer {
		out, err := l.try(http.MethodPut, base+a+"/", "", form)
		require.NoError(t, err)
		return out
	}
	out := put(url.Values{"mtu": {"9000"}, "tags": {"roce,fast"}}).object(t)
	require.InDelta(t, 9000, out["effective_mtu"], 0)
	require.Equal(t, []any{"roce", "fast"}, out["tags"])
	for _, bad := range []url.Values{{"mtu": {"9"}}, {"mtu": {"x"}}, {"vlan": {"1"}}, {"name": {"eno1"}}, {"enabled": {"perhaps"}}} {
		require.Equal(t, 400, put(bad).code, "%v", bad)
	}
	for range 2 {
		require.Equal(t, []any{"roce", "fast", "x"}, l.ok(base+a+"/", "add_tag", url.Values{"tag": {"x"}}).object(t)["tags"])
	}
	require.Equal(t, 400, l.post(base+a+"/", "add_tag", nil).code)

	// A Deployed machine takes its form's fields and ignores the rest.
	l.srv.PutStatus(id, maassim.Deployed, "admin")
	out = put(url.Values{"name": {"fast0"}, "mtu": {"1500"}}).object(t)
	require.Equal(t, "fast0", out["name"])
	require.InDelta(t, 9000, out["effective_mtu"], 0)
	refused := l.post(base+a+"/", "link_subnet", url.Values{"mode": {"auto"}, "subnet": {"2"}})
	require.Equal(t, "Cannot link subnet interface because the machine is not New, Ready, Allocated, or Broken.", refused.text())
}

func TestStorageLayouts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	m := "machines/" + id + "/"
	layout := func(kv ...string) answer {
		form := url.Values{}
		for i := 0; i+1 < len(kv); i += 2 {
			form.Set(kv[i], kv[i+1])
		}
		return l.post(m, "set_storage_layout", form)
	}
	lvm := layout("storage_layout", "lvm").object(t)
	require.Len(t, lvm["volume_groups"], 1)
	virtual := lvm["virtualblockdevice_set"].([]any)
	require.Len(t, virtual, 1)
	vid := fmt.Sprint(virtual[0].(map[string]any)["id"])
	a := l.post("nodes/"+id+"/blockdevices/"+vid+"/", "set_boot_disk", nil)
	require.Equal(t, 400, a.code)
	require.Equal(t, "Cannot set a virtual block device as the boot disk.", a.text())
	require.Equal(t, "nvme0n1", l.view(id).RootDisk)
	require.Len(t, layout("storage_layout", "bcache").object(t)["bcaches"], 1)
	for want, a := range map[string]answer{
		"This field is required":                      layout(),
		"is not a valid storage_layout":               layout("storage_layout", "heap"),
		"Failed to configure storage layout 'custom'": layout("storage_layout", "custom"),
		"Size is too large":                           layout("storage_layout", "flat", "boot_size", "99999999999999"),
		"is not a valid root_device":                  layout("storage_layout", "flat", "root_device", vid),
	} {
		require.Equal(t, 400, a.code, "%s", a.body)
		require.Contains(t, a.text(), want)
	}
	require.Equal(t, 200, layout("storage_layout", "blank").code)
	require.JSONEq(t, `{"storage":["Mount the root '/' filesystem to be able to deploy this node."]}`, l.post(m, "deploy", nil).text())
	require.Equal(t, maassim.Ready, l.view(id).Status, "a 400 takes nothing")
	require.Equal(t, 200, layout("storage_layout", "flat").code)
	require.Equal(t, 400, l.post(m, "deploy", url.Values{"distro_series": {"trusty"}}).code)
	require.Contains(t, l.post(m, "deploy", url.Values{"distro_series": {"focal"}}).text(), "is unavailable for")
	a = l.ok(m, "deploy", nil)
	require.Equal(t, "jammy", a.object(t)["distro_series"], "the site's default")
	require.Contains(t, l.get(m, url.Values{"op": {"get_token"}}).object(t), "token_secret")
}

// TestNoMoreAddresses needs no fault: the subnet is really full.
func TestNoMoreAddresses(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *maassim.Options) {
		o.Networks = []maassim.Network{{VLAN: 1, Name: "small", CIDR: "10.9.0.0/28", Gateway: "10.9.0.1", DHCP: true}}
	})
	id := l.ready()
	nic := l.bootNIC(id)
	for range 4 {
		require.Equal(t, 200, l.post(nic, "link_subnet", url.Values{"mode": {"static"}, "subnet": {"1"}}).code)
	}
	require.Equal(t, 503, l.post(nic, "link_subnet", url.Values{"mode": {"static"}, "subnet": {"1"}}).code)
	require.Equal(t, 503, l.post("machines/"+id+"/", "deploy", nil).code)
	require.Equal(t, maassim.Allocated, l.view(id).Status, "after the commit: it is ours")
}

// TestReleaseOfAStranger: what MAAS never commissioned is released to New.
func TestReleaseOfAStranger(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	l.srv.PutStatus(id, maassim.Broken, "")
	l.ok("machines/"+id+"/", "release", nil)
	l.await(id, maassim.StatusNew)
}

// TestScenarioPort is the admin API over HTTP.
func TestScenarioPort(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	added := l.admin(http.MethodPost, "/_sim/faults/", maassim.Fault{Name: "http_403", Op: "list"})
	require.Equal(t, 201, added.code)
	require.Equal(t, 403, l.get("machines/", nil).code)
	require.Len(t, l.admin(http.MethodGet, "/_sim/faults/", nil).objects(t), 1)
	require.Equal(t, 204, l.admin(http.MethodDelete, fmt.Sprintf("/_sim/faults/%v", added.object(t)["id"]), nil).code)
	require.Equal(t, 204, l.admin(http.MethodDelete, "/_sim/faults/", nil).code)
	require.Equal(t, 400, l.admin(http.MethodDelete, "/_sim/faults/x", nil).code)
	require.Equal(t, 400, l.admin(http.MethodPost, "/_sim/faults/", map[string]string{"nme": "http_403"}).code)
	require.Contains(t, l.admin(http.MethodGet, "/_sim/fault-names", nil).object(t), "stuck_deploying")

	act := func(name, machine string) int {
		return l.admin(http.MethodPost, "/_sim/external", map[string]string{"act": name, "machine": machine}).code
	}
	require.Equal(t, 200, act("enlist", l.hw.Spec().ID))
	id := l.srv.Machines()[0].SystemID
	require.Equal(t, 409, act("enlist", l.hw.Spec().ID), "it is there already")
	require.Equal(t, 409, act("release", id))
	require.Equal(t, 400, act("explode", id))
	require.Equal(t, 200, act("lock", id))
	require.Equal(t, 200, act("unlock", id))
	require.Equal(t, 200, act("mark_broken", id))
	require.Equal(t, 409, act("mark_broken", id), "it is broken already")
	require.Equal(t, 200, act("mark_fixed", id))
	require.Equal(t, maassim.Ready, l.view(id).Status)
	l.ok("machines/"+id+"/", "commission", l.commissionForm())
	l.await(id, maassim.Ready)
	require.Equal(t, 200, act("deploy", id))
	l.await(id, maassim.Deployed)
	require.Equal(t, "other", l.view(id).Owner)
	require.Equal(t, 200, act("release", id))
	l.await(id, maassim.Ready)
	require.Equal(t, 200, act("allocate", id))
	require.Equal(t, "Can't allocate a machine belonging to another user.", l.post("machines/"+id+"/", "deploy", nil).text())
	require.Equal(t, 200, l.admin(http.MethodPost, "/_sim/hwsync", map[string]any{"machine": id, "healthy": true}).code)
	require.Equal(t, 409, l.admin(http.MethodPost, "/_sim/hwsync", map[string]any{"machine": "aaaaaa", "healthy": true}).code)

	state := l.admin(http.MethodGet, "/_sim/state", nil)
	require.Len(t, state.objects(t), 1)
	require.NotContains(t, string(state.body)+string(l.admin(http.MethodGet, "/_sim/machines", nil).body), bmcPass)
	require.NotEmpty(t, l.admin(http.MethodGet, "/_sim/history", nil).objects(t))
	require.Contains(t, l.admin(http.MethodGet, "/_sim/counters", nil).object(t)["total"], "enlistments")
	at, err := time.Parse(time.RFC3339, l.admin(http.MethodGet, "/_sim/clock", nil).object(t)["now"].(string))
	require.NoError(t, err)
	later, err := time.Parse(time.RFC3339, l.admin(http.MethodPost, "/_sim/clock/step?by=1h", nil).object(t)["now"].(string))
	require.NoError(t, err)
	require.GreaterOrEqual(t, later.Sub(at), time.Hour)
	require.Equal(t, 400, l.admin(http.MethodPost, "/_sim/clock/step?by=soon", nil).code)
	require.Equal(t, 200, act("delete", id))
	require.Equal(t, 404, l.get("machines/"+id+"/", nil).code)
	require.Equal(t, 200, l.admin(http.MethodPost, "/_sim/revoke-token", nil).code)
	require.Equal(t, 401, l.get("machines/", nil).code)
	require.Equal(t, 404, l.get("../../../_sim/state", nil).code, "never on the API port")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for want, o := range map[string]maassim.Options{
		"Fleet":              {APIKey: apiKey},
		"consumer:token":     {Fleet: l.fleet, APIKey: "one:two"},
		"profile":            {Fleet: l.fleet, APIKey: apiKey, Profile: "2.0"},
		"VLAN above 0":       {Fleet: l.fleet, APIKey: apiKey, Networks: []maassim.Network{{Name: "x", CIDR: "10.0.0.0/8"}}},
		"network \"x\" need": {Fleet: l.fleet, APIKey: apiKey, Networks: []maassim.Network{{VLAN: 1, Name: "x", CIDR: "ten"}}},
	} {
		_, err := maassim.New(o)
		require.ErrorContains(t, err, want)
	}
	_, _, err := l.srv.Start(t.Context(), l.addrs.API, "")
	require.ErrorContains(t, err, "cannot listen on")
	empty := newLab(t, func(o *maassim.Options) { o.Images, o.SSHKeys = []string{}, []string{} })
	require.Empty(t, empty.get("boot-resources/", nil).objects(t))
	require.Empty(t, empty.get("account/prefs/sshkeys/", nil).objects(t))
}
