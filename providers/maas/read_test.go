package maas_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
)

// fleet answers the machine list with MAAS's own filters.
func fleet(t *testing.T) *recorder {
	t.Helper()
	one := func(systemID, serial, uuid, powerType string) string {
		return fmt.Sprintf(`{"system_id":%q,"status":4,"power_type":%q,"hardware_uuid":%q,"hardware_info":{"system_serial":%q}}`,
			systemID, powerType, uuid, serial)
	}
	all := map[string]string{
		"aaaaaa": one("aaaaaa", "SER-A", "4c4c4544-0042-3510-8054-b7c04f503031", "redfish"),
		"bbbbbb": one("bbbbbb", "SER-B", "uuid-b", "redfish"),
		"cccccc": one("cccccc", "Unknown", "", "ipmi"),
		"dddddd": one("dddddd", "", "", "manual"),
	}
	r := &recorder{}
	r.stub = newStub(t, func(w http.ResponseWriter, req *http.Request) {
		q := req.URL.Query()
		r.mu.Lock()
		r.got = append(r.got, seen{op: q.Get("op"), query: q})
		r.mu.Unlock()
		var out []string
		switch {
		case q.Get("op") == "power_parameters":
			answer(200, "application/json", `{"aaaaaa":{"power_address":"10.0.0.1","power_pass":"`+"hunter2"+`"},
				"bbbbbb":{"power_address":"https://10.0.0.2:443/redfish/v1","power_pass":"hunter2"},
				"cccccc":{"power_address":"10.0.0.3","power_pass":12}}`)(w, req)
			return
		case q.Has("mac_address"):
			for _, m := range q["mac_address"] {
				if m == "3c:ec:ef:00:00:0a" {
					out = append(out, all["aaaaaa"])
				}
			}
		case q.Has("hostname"):
			if q.Get("hostname") == "node-b" {
				out = append(out, all["bbbbbb"])
			}
		case q.Has("id"):
			for _, i := range q["id"] {
				out = append(out, all[i])
			}
		default:
			out = []string{all["dddddd"], all["aaaaaa"], all["bbbbbb"], all["cccccc"]}
		}
		answer(200, "application/json", "["+strings.Join(out, ",")+"]")(w, req)
	})
	return r
}

func TestFindMachines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q        providers.MAASQuery
		want     []string
		requests int
		asked    []string // ids whose power parameters were asked for
	}{
		"nothing given":     {providers.MAASQuery{}, nil, 0, nil},
		"by mac":            {providers.MAASQuery{MACs: []string{"3C:EC:EF:00:00:0A", "3c:ec:ef:00:00:0b"}}, []string{"aaaaaa"}, 1, nil},
		"by name":           {providers.MAASQuery{Hostname: "node-b"}, []string{"bbbbbb"}, 1, nil},
		"by serial":         {providers.MAASQuery{Serial: "ser-b"}, []string{"bbbbbb"}, 1, nil},
		"by uuid":           {providers.MAASQuery{Serial: "4C4C4544-0042-3510-8054-B7C04F503031"}, []string{"aaaaaa"}, 1, nil},
		"placeholder":       {providers.MAASQuery{Serial: "Unknown"}, nil, 0, nil},
		"unknown serial":    {providers.MAASQuery{Serial: "SER-X"}, nil, 1, nil},
		"by bmc":            {providers.MAASQuery{BMCAddress: "https://10.0.0.3"}, []string{"cccccc"}, 3, []string{"aaaaaa", "bbbbbb", "cccccc"}},
		"by bmc url":        {providers.MAASQuery{BMCAddress: "10.0.0.2"}, []string{"bbbbbb"}, 3, []string{"aaaaaa", "bbbbbb", "cccccc"}},
		"bmc unknown":       {providers.MAASQuery{BMCAddress: "10.9.9.9"}, nil, 2, []string{"aaaaaa", "bbbbbb", "cccccc"}},
		"all facts, joined": {providers.MAASQuery{MACs: []string{"3c:ec:ef:00:00:0a"}, Serial: "SER-A", Hostname: "node-b", BMCAddress: "10.0.0.3"}, []string{"aaaaaa", "bbbbbb", "cccccc"}, 5, []string{"cccccc"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fleet(t)
			got, err := open(t, r.URL).FindMachines(within(t), c.q)
			require.NoError(t, err)
			var ids, asked []string
			for _, m := range got {
				ids = append(ids, m.SystemID)
			}
			for _, s := range r.requests() {
				if s.op == "power_parameters" {
					asked = append(asked, s.query["id"]...)
				}
			}
			require.Equal(t, c.want, ids)
			require.Len(t, r.requests(), c.requests)
			require.ElementsMatch(t, c.asked, asked)
			require.NotContains(t, fmt.Sprintf("%+v", got), "hunter2")
		})
	}
}

// TestWholeListMayBeLargerThanAnAnswer: the list is not paged, so it is read
// one machine at a time.
func TestWholeListMayBeLargerThanAnAnswer(t *testing.T) {
	t.Parallel()
	const count = 3000
	s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("["))
		for i := range count {
			_, _ = fmt.Fprintf(w, `{"system_id":"a%05d","status":4,"description":%q,"hardware_info":{"system_serial":"S%d"}},`, i, strings.Repeat("x", 200), i)
		}
		_, _ = w.Write([]byte(machineJSON(id, 4) + "]"))
	})
	m := open(t, s.URL, maas.Options{MaxBody: 64 << 10})
	got, err := m.FindMachines(within(t), providers.MAASQuery{Serial: "S2999"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "a02999", got[0].SystemID)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{"GET events/?query": `{"count":3,"next_uri":"http://elsewhere/","events":[
		{"id":5,"node":"abc4ef","level":"INFO","type":"Deploying","description":"","created":"Fri, 07 Dec. 2018 20:11:08"},
		{"id":9,"node":"abc4ef","level":"DEBUG","type":"Node installation","description":"'cloudinit' searching\nfor data","created":"odd"},
		{"id":7,"node":"zzzzzz","level":"INFO","type":"Other","created":""}]}`})
	m := open(t, r.URL)
	got, err := m.Events(within(t), id, "debug", 50)
	require.NoError(t, err)
	require.Equal(t, []providers.MAASEvent{
		{ID: 9, Level: "DEBUG", Type: "Node installation", Description: "'cloudinit' searching for data"},
		{ID: 5, Level: "INFO", Type: "Deploying", At: time.Date(2018, 12, 7, 20, 11, 8, 0, time.UTC)},
	}, got)
	q := r.requests()[0].query
	require.Equal(t, []string{id, "DEBUG", "50"}, []string{q.Get("id"), q.Get("level"), q.Get("limit")})
	got, err = m.Events(within(t), id, "DEBUG", 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, 9, got[0].ID)
}

func TestResults(t *testing.T) {
	t.Parallel()
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	long := strings.Repeat("é", 20000) + "the error"
	results := "GET nodes/" + id + "/results/"
	r := record(t, map[string]string{
		results: `[{"id":3,"results":[{"name":"old","status":2}]},{"id":8,"results":[{"name":"install","status":3}]}]`,
		results + "8/": `{"id":8,"results":[{"name":"install","status":3,"output":"` + b64(long) + `"},
			{"name":"logs.tar","status":2,"output":"` + b64("a\x00b") + `"},{"name":"bad","status":2,"output":"` + b64("\xff\xfe") + `"},
			{"name":"none","status":0}]}`,
	})
	got, err := open(t, r.URL).Results(within(t), id, "installation")
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, "install", got[0].Name)
	require.Equal(t, 3, got[0].Status)
	require.LessOrEqual(t, len(got[0].Output), 16<<10)
	require.True(t, strings.HasSuffix(got[0].Output, "éthe error"))
	require.True(t, strings.HasPrefix(got[0].Output, "é"))
	require.Equal(t, "(binary, 3 bytes)", got[1].Output)
	require.Equal(t, "?", got[2].Output)
	require.Empty(t, got[3].Output)
	require.Equal(t, "installation", r.requests()[0].query.Get("type"))
	require.Equal(t, "true", r.requests()[1].query.Get("include_output"))

	none := record(t, map[string]string{results: "[]"})
	got, err = open(t, none.URL).Results(within(t), id, "testing")
	require.NoError(t, err)
	require.Empty(t, got)

	// Over the size limit the statuses remain.
	big := record(t, map[string]string{
		results:        `[{"id":8,"results":[{"name":"install","status":3}]}]`,
		results + "8/": `{"id":8,"results":[{"name":"install","status":3,"output":"` + b64(long) + `"}]}`,
	})
	got, err = open(t, big.URL, maas.Options{MaxBody: 4096}).Results(within(t), id, "installation")
	require.NoError(t, err)
	require.Equal(t, []providers.MAASResult{{Name: "install", Status: 3}}, got)
}

func TestHardware(t *testing.T) {
	t.Parallel()
	r := record(t, map[string]string{
		"GET nodes/" + id + "/blockdevices/": `[{"id":7,"name":"sda","model":"DELLBOSS VD","serial":"x","id_path":null,"size":480036847616,"type":"physical",
			"tags":["ssd"],"filesystem":null,"numa_node":null,"partitions":[{"id":1,"filesystem":{"mount_point":"/boot/efi"}},{"id":2,"filesystem":{"mount_point":"/"}},{"id":3,"filesystem":null}]}]`,
		"GET nodes/" + id + "/interfaces/": `[{"id":3,"name":"eth0","mac_address":"3C:EC:EF:00:00:01","type":"physical","enabled":true,"vlan":{"id":5001,"relay_vlan":null},
			"effective_mtu":9000,"tags":["roce"],"link_connected":true,"link_speed":400000,"params":"","discovered":null,"numa_node":null,
			"links":[{"id":12,"mode":"auto","subnet":{"id":9,"cidr":"10.0.0.0/24","gateway_ip":null,"dns_servers":[],"vlan":{"id":5001}}},{"id":13,"mode":"link_up"}]},
			{"id":4,"name":"eth1","mac_address":"3c:ec:ef:00:00:02","vlan":null,"params":{},"links":[]}]`,
		"GET subnets/": `[{"id":9,"cidr":"10.0.0.0/24","name":"pxe","vlan":{"id":5001},"gateway_ip":null,"dns_servers":[]}]`,
		"GET machines/" + id + "/?query_power_state": `{"state":"unknown"}`,
		"GET machines/" + id + "/?get_token":         `{"consumer_key":"c","token_key":"t","token_secret":"s"}`,
	})
	m := open(t, r.URL)
	disks, err := m.BlockDevices(within(t), id)
	require.NoError(t, err)
	require.Equal(t, []providers.MAASBlockDevice{{
		ID: 7, Name: "sda", Model: "DELLBOSS VD", Serial: "x", SizeBytes: 480036847616, Type: "physical",
		Tags: []string{"ssd"}, MountPoints: []string{"/boot/efi", "/"},
	}}, disks)
	nics, err := m.Interfaces(within(t), id)
	require.NoError(t, err)
	require.Equal(t, []providers.MAASInterface{
		{ID: 3, Name: "eth0", MAC: "3c:ec:ef:00:00:01", Type: "physical", Enabled: true, VLANID: 5001, MTU: 9000, Tags: []string{"roce"},
			LinkConnected: true, LinkSpeed: 400000, Links: []providers.MAASLink{{ID: 12, Mode: "auto", SubnetID: 9}, {ID: 13, Mode: "link_up"}}},
		{ID: 4, Name: "eth1", MAC: "3c:ec:ef:00:00:02", Links: nil},
	}, nics)
	subnets, err := m.Subnets(within(t))
	require.NoError(t, err)
	require.Equal(t, []providers.MAASSubnet{{ID: 9, CIDR: "10.0.0.0/24", Name: "pxe", VLANID: 5001}}, subnets)
	state, err := m.QueryPower(within(t), id)
	require.NoError(t, err)
	require.Equal(t, "unknown", state)
	token, err := m.MachineToken(within(t), id)
	require.NoError(t, err)
	require.Equal(t, "c:t:s", token.Reveal())

	odd := record(t, map[string]string{"GET machines/" + id + "/?query_power_state": `{"state":"maybe"}`, "GET machines/" + id + "/?get_token": `null`})
	_, err = open(t, odd.URL).QueryPower(within(t), id)
	requireKind(t, err, providers.KindProtocol)
	_, err = open(t, odd.URL).MachineToken(within(t), id)
	requireKind(t, err, providers.KindNotFound)
}
