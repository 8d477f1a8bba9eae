package maassim_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	maassim "github.com/slipway-cloud/slipway/sim/maas"
)

const statusColumns = 34 // where the cells of testdata/status-operations.txt begin

// cellRequest sends the operation of a row. It is right but for the machine's status.
func (l *lab) cellRequest(row, id string) answer {
	l.t.Helper()
	m := "machines/" + id + "/"
	send := func(method, path, op string, form url.Values) answer {
		a, err := l.try(method, path, op, form)
		require.NoError(l.t, err)
		return a
	}
	nic := func() string { return l.bootNIC(id) }
	switch row {
	case "read":
		return send(http.MethodGet, m, "", nil)
	case "update":
		return send(http.MethodPut, m, "", url.Values{"description": {"x"}})
	case "delete":
		return send(http.MethodDelete, m, "", nil)
	case "allocate":
		return send(http.MethodPost, "machines/", "allocate", url.Values{"system_id": {id}})
	case "release erase":
		return send(http.MethodPost, m, "release", url.Values{"erase": {"true"}})
	case "release_many":
		return send(http.MethodPost, "machines/", "release", url.Values{"machines": {id}})
	case "query_power_state", "power_parameters", "get_token":
		return send(http.MethodGet, m, row, nil)
	case "set_storage_layout":
		return send(http.MethodPost, m, row, url.Values{"storage_layout": {"flat"}})
	case "set_boot_disk":
		return send(http.MethodPost, "nodes/"+id+"/blockdevices/1/", row, nil)
	case "link_subnet":
		return send(http.MethodPost, nic(), row, url.Values{"mode": {"auto"}, "subnet": {"1"}})
	case "unlink_subnet":
		link := l.get("nodes/"+id+"/interfaces/", nil).objects(l.t)[0]["links"].([]any)[0].(map[string]any)["id"]
		return send(http.MethodPost, nic(), row, url.Values{"id": {fmt.Sprint(link)}})
	case "update_interface":
		return send(http.MethodPut, nic(), "", url.Values{"mtu": {"9000"}})
	case "add_interface_tag":
		return send(http.MethodPost, nic(), "add_tag", url.Values{"tag": {"fast"}})
	}
	op, _, _ := strings.Cut(row, " ")
	if op == "set_annotations" {
		return send(http.MethodPost, m, "set_workload_annotations", url.Values{"a": {"b"}})
	}
	return send(http.MethodPost, m, op, nil)
}

// TestOperationsInEveryStatus holds the region to testdata/status-operations.txt, cell by cell.
func TestOperationsInEveryStatus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/status-operations.txt")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "operation ") {
			rows[strings.TrimSpace(line[:statusColumns])] = strings.Fields(line[statusColumns:])
		}
	}
	require.Len(t, rows, 25)
	for row, cells := range rows {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			require.Len(t, cells, int(maassim.FailedTesting)+1)
			l := newLab(t)
			id := l.ready()
			manual := url.Values{"power_type": {"manual"}} // an effect on power would outlive its cell
			for status, cell := range cells {
				if row == "delete" && status > 0 {
					id = l.created()
				}
				a, err := l.try(http.MethodPut, "machines/"+id+"/", "", manual)
				require.NoError(t, err)
				require.Equal(t, 200, a.code, "%s", a.body)
				owner := "admin"
				if strings.Contains(row, "nobody's") || status == int(maassim.Ready) {
					owner = ""
				}
				l.srv.PutStatus(id, maassim.Status(status), owner)
				if row == "power_on by the owner" || row == "set_annotations by the owner" {
					l.srv.PutStatus(id, maassim.Status(status), "admin")
				}
				code, next, moves := strings.Cut(cell, ">")
				then := strconv.Itoa(status)
				if moves {
					then = next
				}
				a = l.cellRequest(row, id)
				require.Equal(t, code, strconv.Itoa(a.code), "%s in %s: %s", row, maassim.Status(status), a.body)
				if row != "delete" {
					require.Equal(t, then, strconv.Itoa(int(l.view(id).Status)), "%s in %s", row, maassim.Status(status))
				}
			}
		})
	}
}

// TestOperationsThatAreNotSimulated: a region that guesses would teach a client what no MAAS does.
func TestOperationsThatAreNotSimulated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.created()
	m, nics := "machines/"+id+"/", "nodes/"+id+"/interfaces/"
	for _, c := range [][3]string{
		{"POST", m, "rescue_mode"}, {"POST", m, "mark_broken"}, {"POST", m, "lock"}, {"POST", m, "test"}, {"GET", m, "get_curtin_config"},
		{"POST", "machines/", "accept_all"}, {"GET", "machines/", "list_allocated"}, {"GET", "users/", ""}, {"POST", "maas/", "set_config"},
		{"POST", nics, "create_bond"}, {"POST", nics, "create_vlan"}, {"DELETE", nics + "1/", ""}, {"POST", nics + "1/", "disconnect"},
		{"GET", "zones/", ""}, {"GET", "zones/default/", ""}, {"POST", "tags/", ""}, {"GET", "fabrics/0/vlans/", ""}, {"GET", "subnets/1/", ""},
		{"GET", "nodes/" + id + "/", "details"}, {"GET", "installation-results/", ""}, {"POST", "nodes/" + id + "/blockdevices/1/", "add_tag"},
	} {
		a, err := l.try(c[0], c[1], c[2], nil)
		require.NoError(t, err)
		require.Equal(t, 501, a.code, "%v: %s", c, a.body)
		require.True(t, strings.HasPrefix(a.text(), "not simulated: "), "%s", a.body)
	}
	for _, unknown := range [][3]string{{"POST", m, "fly"}, {"POST", "machines/", "fly"}} {
		require.Equal(t, 400, l.post(unknown[1], unknown[2], nil).code, "MAAS does not have it either")
	}
	require.Equal(t, 404, l.get("zebras/", nil).code)
	require.Equal(t, maassim.StatusNew, l.view(id).Status)
}

// TestConstraintsOfAllocate: what MAAS's form refuses is 400, what no machine fits is 409.
func TestConstraintsOfAllocate(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *maassim.Options) { o.Zones = []string{"hall-2"} })
	id := l.ready()
	for _, c := range []struct {
		form url.Values
		code int
		body string
	}{
		{url.Values{"tags": {"fast, hairy"}}, 400, `{"tags":["No such tag(s): 'fast', 'hairy'."]}`},
		{url.Values{"zone": {"moon"}}, 400, `{"zone":["No such zone: 'moon'."]}`},
		{url.Values{"pool": {"deep"}}, 400, `{"pool":["No such pool: 'deep'."]}`},
		{url.Values{"arch": {"vax"}}, 400, `{"arch":["Architecture not recognised."]}`},
		{url.Values{"mem": {"much"}}, 400, `{"mem":["Invalid memory: number of MiB required."]}`},
		{url.Values{"cpu_count": {"many"}}, 400, `{"cpu_count":["Invalid CPU count: number required."]}`},
		{url.Values{"colour": {"red"}}, 400, `{"colour":["No such constraint."]}`},
		{url.Values{"subnets": {"x"}}, 501, "not simulated: allocate with subnets"},
		{url.Values{"zone": {"hall-2"}}, 409, `No available machine matches constraints: [('zone', ['hall-2'])] (resolved to "zone=hall-2")`},
		{url.Values{"mem": {"99999999999"}}, 409, "No available machine"},
		{url.Values{"cpu_count": {"99999"}}, 409, "No available machine"},
		{url.Values{"arch": {"arm64"}}, 409, "No available machine"},
		{url.Values{"name": {"nobody"}}, 409, `(resolved to "name=nobody")`},
		{url.Values{"system_id": {"aaaaaa"}}, 409, "No machine with system ID aaaaaa available."},
		{url.Values{"name": {"gpu-1"}, "mem": {"1024"}, "cpu_count": {"1"}, "arch": {"amd64"}, "zone": {"default"}, "dry_run": {"true"}}, 200, id},
	} {
		a := l.post("machines/", "allocate", c.form)
		require.Equal(t, c.code, a.code, "%v: %s", c.form, a.body)
		require.Contains(t, a.text(), c.body)
		require.Equal(t, maassim.Ready, l.view(id).Status)
	}
	l.ok("machines/", "allocate", nil)
	require.Equal(t, "No machine available.", l.post("machines/", "allocate", nil).text())
	require.Equal(t, 1, l.total("allocations"))
}

// TestPowerOnDeploysAnAllocatedMachine with the site's default image, as MAAS does.
func TestPowerOnDeploysAnAllocatedMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	m := "machines/" + id + "/"
	require.Equal(t, "Can't start node: it hasn't been allocated.", l.post(m, "power_on", nil).text())
	l.ok("machines/", "allocate", url.Values{"system_id": {id}})
	require.InDelta(t, 9, l.ok(m, "power_on", nil).object(t)["status"], 0)
	l.await(id, maassim.Deployed)
	require.Equal(t, "jammy", l.hw.InstalledOS().Series)
}

// TestBulkReleaseRefusesAll when one machine cannot be released.
func TestBulkReleaseRefusesAll(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.ready()
	l.ok("machines/", "allocate", nil)
	other := l.ok("machines/", "", url.Values{"architecture": {"amd64"}, "hostname": {"b"}, "mac_addresses": {"52:54:00:aa:aa:aa"}, "commission": {"false"}}).object(t)["system_id"].(string)
	a := l.post("machines/", "release", url.Values{"machines": {id, other}})
	require.Equal(t, 409, a.code)
	require.Equal(t, "Machine(s) cannot be released in their current state: "+other+" ('New').", a.text())
	require.Equal(t, maassim.Allocated, l.view(id).Status)
}
