package maassim_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now()
	for name, c := range map[string]struct {
		path, auth string
		code       int
		body       string
	}{
		"good":               {"machines/", oauth(apiKey, now), 200, "[]"},
		"none on machines":   {"machines/", "", 400, "Unrecognised signature: method=GET op=None"},
		"none elsewhere":     {"subnets/", "", 401, "Authorization Error"},
		"basic is none":      {"machines/", "Basic abc", 400, "Unrecognised signature: method=GET op=None"},
		"version needs none": {"version/", "", 200, "subversion"},
		"unknown consumer":   {"machines/", oauth("nobody:tokenkey:secretkey", now), 401, "Authorization Error: Invalid API key."},
		"unknown token":      {"machines/", oauth("consumer:gone:secretkey", now), 401, "Authorization Error: 'Invalid access token: gone'"},
		"wrong secret":       {"machines/", oauth("consumer:tokenkey:wrong", now), 401, "Authorization Error: 'Invalid signature.'"},
		"slow clock":         {"machines/", oauth(apiKey, now.Add(-time.Hour)), 401, "has a greater difference than threshold 300"},
		"fast clock":         {"machines/", oauth(apiKey, now.Add(time.Hour)), 401, "Authorization Error: 'Expired timestamp: given "},
		"within the skew":    {"machines/", oauth(apiKey, now.Add(-4*time.Minute)), 200, "[]"},
		"no number":          {"machines/", strings.Replace(oauth(apiKey, now), fmt.Sprintf(`timestamp="%d"`, now.Unix()), `timestamp="soon"`, 1), 400, "timestamp"},
		"no nonce":           {"machines/", strings.Replace(oauth(apiKey, now), "oauth_nonce", "other", 1), 401, "oauth_nonce"},
		"signed otherwise":   {"machines/", strings.Replace(oauth(apiKey, now), "PLAINTEXT", "HMAC-SHA1", 1), 401, "HMAC-SHA1"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := l.request(http.MethodGet, c.path, "", nil, c.auth)
			require.NoError(t, err)
			require.Equal(t, c.code, a.code, "%s", a.body)
			require.Contains(t, a.text(), c.body)
			require.NotContains(t, a.text(), "secretkey")
		})
	}
	l.srv.RevokeToken()
	require.Equal(t, 401, l.get("machines/", nil).code)
	l.srv.ClearFaults(0)
	require.Equal(t, 200, l.get("machines/", nil).code)
}

// TestWhereAnOpMayStand: query, form, path suffix; an empty op is none.
func TestWhereAnOpMayStand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	auth := oauth(apiKey, time.Now())
	a, err := l.request(http.MethodPost, "machines/", "op=", l.createForm(), auth)
	require.NoError(t, err)
	require.Equal(t, 200, a.code, "%s", a.body)
	id, _ := a.object(t)["system_id"].(string)
	for name, f := range map[string]func() (answer, error){
		"query": func() (answer, error) { return l.request(http.MethodGet, "users/", "op=whoami", nil, auth) },
		"path":  func() (answer, error) { return l.request(http.MethodGet, "users/op-whoami", "", nil, auth) },
		"form": func() (answer, error) {
			return l.request(http.MethodPost, "machines/"+id+"/", "", url.Values{"op": {"power_off"}}, auth)
		},
	} {
		a, err := f()
		require.NoError(t, err)
		if name == "path" {
			require.Equal(t, 301, a.code, "no trailing slash")
			a, err = l.request(http.MethodGet, "users/op-whoami/", "", nil, auth)
			require.NoError(t, err)
		}
		require.Equal(t, 200, a.code, "%s: %s", name, a.body)
	}
	a, err = l.request(http.MethodPost, "machines", "", l.createForm(), auth)
	require.NoError(t, err)
	require.Equal(t, 301, a.code)
	require.True(t, strings.HasSuffix(a.header.Get("Location"), "/machines/"))
	a = l.post("machines/"+id+"/", "fly", nil)
	require.Equal(t, 400, a.code)
	require.Equal(t, "Unrecognised signature: method=POST op=fly", a.text())
	a, err = l.request(http.MethodDelete, "machines/", "", nil, auth)
	require.NoError(t, err)
	require.Equal(t, 405, a.code)
	a = l.get("nonsense/", nil)
	require.Equal(t, 404, a.code)
	require.Equal(t, "Unknown API endpoint: /MAAS/api/2.0/nonsense/.", a.text())
	require.NotEmpty(t, a.header.Get("X-Maas-Api-Hash"))
	require.NotEmpty(t, a.header.Get("Maas-Trace-Id"))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	m := "machines/" + id + "/"
	with := func(key, value string) url.Values { f := l.createForm(); f.Set(key, value); return f }
	other := url.Values{"mac_addresses": {"52:54:00:aa:aa:aa"}, "architecture": {"amd64"}, "hostname": {"gpu-1"}}
	for name, c := range map[string]struct {
		path, op string
		form     url.Values
		code     int
		body     string
	}{
		"same MAC":             {"machines/", "", l.createForm(), 400, "already in use on gpu-1."},
		"bad MAC":              {"machines/", "", with("mac_addresses", "x"), 400, "One or more MAC addresses is invalid"},
		"same name":            {"machines/", "", other, 400, `{"hostname":["Node with this Hostname already exists."]}`},
		"unknown power key":    {"machines/", "", with("power_parameters_x", "1"), 400, `{"power_parameters":["Unknown parameter(s): x."]}`},
		"unknown power type":   {"machines/", "", with("power_type", "magic"), 400, "power_type"},
		"bad bool":             {"machines/", "", with("commission", "perhaps"), 400, "Value should be 'true' or 'false'"},
		"absent":               {"machines/aaaaaa/", "commission", nil, 404, "No Machine matches the given query."},
		"test of none":         {m, "override_failed_testing", nil, 409, "not in 'Failed testing'"},
		"deploy in New":        {m, "deploy", nil, 409, "Can't deploy a machine that is in the 'New' state"},
		"release in New":       {m, "release", nil, 409, "Machine cannot be released in its current state ('New')."},
		"abort in New":         {m, "abort", nil, 409, "Cannot abort in current state: node " + id + " is in state New."},
		"layout in New":        {m, "set_storage_layout", url.Values{"storage_layout": {"flat"}}, 409, "not Ready"},
		"annotate not ours":    {m, "set_workload_annotations", url.Values{"a": {"b"}}, 409, ""},
		"allocate in New":      {"machines/", "allocate", url.Values{"system_id": {id}}, 409, "No machine with system ID " + id + " available."},
		"query as a change":    {m, "query_power_state", nil, 400, "Unrecognised"},
		"disk that is not":     {"nodes/" + id + "/blockdevices/99/", "set_boot_disk", nil, 404, "No BlockDevice matches the given query."},
		"NIC that is not":      {"nodes/" + id + "/interfaces/99/", "link_subnet", nil, 404, "No Interface matches the given query."},
		"release of nobody":    {"machines/", "release", url.Values{"machines": {"aaaaaa"}}, 400, "Unknown machine(s): aaaaaa."},
		"no such method":       {"events/", "", nil, 405, ""},
		"interface state text": {"nodes/" + id + "/interfaces/1/", "link_subnet", url.Values{"mode": {"AUTO"}}, 400, `{"subnet":["This field is required."]}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := l.post(c.path, c.op, c.form)
			require.Equal(t, c.code, a.code, "%s", a.body)
			require.Contains(t, a.text(), c.body)
			require.Empty(t, a.header.Get("Retry-After"))
		})
	}
	a := l.get("machines/", url.Values{"mac_address": {"zz"}})
	require.Equal(t, 400, a.code)
	require.JSONEq(t, `{"mac_address":["'zz' is not a valid MAC address."]}`, a.text())
	require.Equal(t, 2, l.total("duplicates_refused"), "the same MAC and the same name were counted")
	require.Equal(t, 1, l.total("creates"))
}

// TestCommissionInWrongStateIs400, and a locked machine refuses with 403.
func TestCommissionInWrongStateIs400(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.deployed()
	m := "machines/" + id + "/"
	a := l.post(m, "commission", nil)
	require.Equal(t, 400, a.code)
	require.JSONEq(t, `{"__all__":["Commission is not available because of the current state of the node."]}`, a.text())
	a = l.post(l.bootNIC(id), "link_subnet", url.Values{"mode": {"auto"}, "subnet": {"1"}})
	require.Equal(t, 409, a.code, "interfaces are not changed on a deployed machine")
	disk := fmt.Sprintf("nodes/%s/blockdevices/1/", id)
	require.Equal(t, 409, l.post(disk, "set_boot_disk", nil).code)

	require.NoError(t, l.srv.External("lock", id))
	for _, op := range []string{"release", "power_off", "power_on", "abort"} {
		require.Equal(t, 403, l.post(m, op, nil).code, op)
	}
	a, err := l.try(http.MethodDelete, m, "", nil)
	require.NoError(t, err)
	require.Equal(t, 403, a.code)
	a, err = l.try(http.MethodPut, m, "", url.Values{"description": {"x"}})
	require.NoError(t, err)
	require.Equal(t, 403, a.code)
	require.NoError(t, l.srv.External("unlock", id))
	l.ok(m, "release", nil)
}

func TestUnprivilegedUser(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *maassim.Options) { o.Unprivileged = true })
	require.Equal(t, false, l.get("users/", url.Values{"op": {"whoami"}}).object(t)["is_superuser"])
	id := l.created()
	for _, op := range []string{"commission", "override_failed_testing", "set_storage_layout"} {
		require.Equal(t, 403, l.post("machines/"+id+"/", op, nil).code, op)
	}
	require.Equal(t, 403, l.get("machines/", url.Values{"op": {"power_parameters"}}).code)
	a, err := l.try(http.MethodDelete, "machines/"+id+"/", "", nil)
	require.NoError(t, err)
	require.Equal(t, 403, a.code)
}
