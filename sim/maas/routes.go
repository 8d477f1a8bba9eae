package maassim

import (
	"maps"
	"slices"
	"strings"
)

// route is one address with its operations, keyed "METHOD op".
type route struct {
	pattern   []string // "{x}" matches one segment
	kind      string   // what a 404 of {id} calls the record
	anonymous bool     // MAAS has an anonymous handler here: 400 instead of 401
	ops       map[string]operation
}

func (r route) methods() string {
	set := map[string]bool{}
	for k := range r.ops {
		m, _, _ := strings.Cut(k, " ")
		set[m] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

func find(routes []route, segs []string) (*route, map[string]string) {
next:
	for i := range routes {
		p := routes[i].pattern
		if len(p) != len(segs) {
			continue
		}
		vars := map[string]string{"kind": routes[i].kind}
		for j, want := range p {
			switch {
			case strings.HasPrefix(want, "{"):
				vars[strings.Trim(want, "{}")] = segs[j]
			case want != segs[j]:
				continue next
			}
		}
		if routes[i].kind == "" {
			delete(vars, "kind")
		}
		return &routes[i], vars
	}
	return nil, nil
}

func at(path, kind string, ops map[string]operation) route {
	return route{pattern: strings.Split(strings.Trim(path, "/"), "/"), kind: kind, ops: ops}
}

// read and change make the two usual sorts of operations; change needs rights
// on the machine and is refused when it is locked.
func read(name string, f func(*call) *reply) operation { return operation{name: name, run: f} }

func change(name string, f func(*call) *reply) operation {
	return operation{name: name, run: f, mutating: true, edit: true}
}

func admin(name string, f func(*call) *reply) operation {
	return operation{name: name, run: f, mutating: true, edit: true, admin: true}
}

// routes is the endpoint table: the operations that Slipway calls, and what juju's gomaasapi needs
// for an allocation. unsimulated.go has the others.
func (s *Server) routes() []route {
	all := [][]route{s.machineRoutes(), s.nodeRoutes(), s.siteRoutes()}
	return slices.Concat(all...)
}

func (s *Server) machineRoutes() []route {
	machines := at("machines", "", map[string]operation{
		"GET ":                 read("list", (*call).listMachines),
		"GET power_parameters": {name: "all_power_parameters", run: (*call).allPowerParameters, admin: true},
		"POST ":                {name: "create", run: (*call).createMachine, mutating: true},
		"POST allocate":        {name: "allocate", run: (*call).allocate, mutating: true},
		"POST release":         {name: "release_many", run: (*call).releaseMany, mutating: true},
	})
	machines.anonymous = true
	machine := at("machines/{id}", "Machine", map[string]operation{
		"GET ":                          read("read", (*call).readMachine),
		"PUT ":                          admin("update", (*call).updateMachine),
		"DELETE ":                       admin("delete", (*call).deleteMachine),
		"POST commission":               admin("commission", (*call).commission),
		"POST override_failed_testing":  admin("override_failed_testing", (*call).overrideFailedTesting),
		"POST deploy":                   change("deploy", (*call).deploy),
		"POST release":                  change("release", (*call).release),
		"POST abort":                    change("abort", (*call).abort),
		"POST power_on":                 change("power_on", (*call).powerOn),
		"POST power_off":                change("power_off", (*call).powerOff),
		"GET query_power_state":         read("query_power_state", (*call).queryPowerState),
		"GET power_parameters":          {name: "power_parameters", run: (*call).powerParameters, admin: true},
		"POST set_storage_layout":       admin("set_storage_layout", (*call).setStorageLayout),
		"POST set_workload_annotations": change("set_workload_annotations", (*call).setWorkloadAnnotations),
		"GET get_token":                 read("get_token", (*call).getToken),
	})
	return []route{machines, machine}
}

func (s *Server) nodeRoutes() []route {
	return []route{
		at("nodes/{id}/interfaces", "Node", map[string]operation{"GET ": read("interfaces", (*call).listInterfaces)}),
		at("nodes/{id}/interfaces/{n}", "Node", map[string]operation{
			"PUT ":               admin("update_interface", (*call).updateInterface),
			"POST link_subnet":   admin("link_subnet", (*call).linkSubnet),
			"POST unlink_subnet": admin("unlink_subnet", (*call).unlinkSubnet),
			"POST add_tag":       admin("add_interface_tag", (*call).addInterfaceTag),
		}),
		at("nodes/{id}/blockdevices", "Node", map[string]operation{"GET ": read("blockdevices", (*call).listDisks)}),
		at("nodes/{id}/blockdevices/{n}", "Node", map[string]operation{"POST set_boot_disk": admin("set_boot_disk", (*call).setBootDisk)}),
		at("nodes/{id}/results", "Node", map[string]operation{"GET ": read("results", (*call).listResults)}),
		at("nodes/{id}/results/{n}", "Node", map[string]operation{"GET ": read("result", (*call).readResult)}),
	}
}

func (s *Server) siteRoutes() []route {
	version := operation{name: "version", run: (*call).version, anon: true}
	return []route{
		at("version", "", map[string]operation{"GET ": version}),
		at("users", "", map[string]operation{"GET whoami": read("whoami", (*call).whoami)}),
		at("account/prefs/sshkeys", "", map[string]operation{"GET ": read("sshkeys", (*call).sshKeys)}),
		at("maas", "", map[string]operation{"GET get_config": read("get_config", (*call).getConfig)}),
		at("boot-resources", "", map[string]operation{"GET ": read("boot_resources", (*call).bootResources)}),
		at("events", "", map[string]operation{"GET query": read("events", (*call).queryEvents)}),
		at("subnets", "", map[string]operation{"GET ": read("subnets", (*call).subnets)}),
	}
}
