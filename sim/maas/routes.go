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

// routes is the endpoint table.
func (s *Server) routes() []route {
	all := [][]route{s.machineRoutes(), s.nodeRoutes(), s.siteRoutes()}
	return slices.Concat(all...)
}

func (s *Server) machineRoutes() []route {
	machines := at("machines", "", map[string]operation{
		"GET ":                 read("list", (*call).listMachines),
		"GET power_parameters": {name: "all_power_parameters", run: (*call).allPowerParameters, admin: true},
		"GET list_allocated":   read("list_allocated", (*call).listAllocated),
		"GET is_registered":    {name: "is_registered", run: (*call).isRegistered, anon: true},
		"POST ":                {name: "create", run: (*call).createMachine, mutating: true},
		"POST allocate":        {name: "allocate", run: (*call).allocate, mutating: true},
		"POST release":         {name: "release_many", run: (*call).releaseMany, mutating: true},
		"POST accept":          {name: "accept", run: (*call).accept, mutating: true, admin: true},
		"POST accept_all":      {name: "accept_all", run: (*call).acceptAll, mutating: true, admin: true},
	})
	machines.anonymous = true
	machine := at("machines/{id}", "Machine", map[string]operation{
		"GET ":                                  read("read", (*call).readMachine),
		"PUT ":                                  admin("update", (*call).updateMachine),
		"DELETE ":                               admin("delete", (*call).deleteMachine),
		"POST commission":                       admin("commission", (*call).commission),
		"POST test":                             admin("test", (*call).test),
		"POST override_failed_testing":          admin("override_failed_testing", (*call).overrideFailedTesting),
		"POST deploy":                           change("deploy", (*call).deploy),
		"POST release":                          change("release", (*call).release),
		"POST abort":                            change("abort", (*call).abort),
		"POST lock":                             {name: "lock", run: (*call).lock, mutating: true},
		"POST unlock":                           {name: "unlock", run: (*call).unlock, mutating: true},
		"POST mark_broken":                      change("mark_broken", (*call).markBroken),
		"POST mark_fixed":                       admin("mark_fixed", (*call).markFixed),
		"POST rescue_mode":                      admin("rescue_mode", (*call).rescueMode),
		"POST exit_rescue_mode":                 admin("exit_rescue_mode", (*call).exitRescueMode),
		"POST power_on":                         change("power_on", (*call).powerOn),
		"POST power_off":                        change("power_off", (*call).powerOff),
		"GET query_power_state":                 read("query_power_state", (*call).queryPowerState),
		"GET power_parameters":                  {name: "power_parameters", run: (*call).powerParameters, admin: true},
		"POST set_storage_layout":               admin("set_storage_layout", (*call).setStorageLayout),
		"POST set_workload_annotations":         change("set_workload_annotations", (*call).setWorkloadAnnotations),
		"POST restore_default_configuration":    admin("restore_default_configuration", (*call).restoreDefault),
		"POST restore_networking_configuration": admin("restore_networking_configuration", (*call).restoreNetworking),
		"POST restore_storage_configuration":    admin("restore_storage_configuration", (*call).restoreStorage),
		"POST clear_default_gateways":           admin("clear_default_gateways", (*call).clearDefaultGateways),
		"GET get_curtin_config":                 read("get_curtin_config", (*call).curtinConfig),
		"GET get_token":                         read("get_token", (*call).getToken),
	})
	return []route{machines, machine}
}

func (s *Server) nodeRoutes() []route {
	return []route{
		at("nodes/{id}/interfaces", "Node", map[string]operation{
			"GET ":                 read("interfaces", (*call).listInterfaces),
			"POST create_physical": admin("create_physical", (*call).createPhysical),
			"POST create_bond":     admin("create_bond", (*call).createBond),
			"POST create_vlan":     admin("create_vlan", (*call).createVLAN),
		}),
		at("nodes/{id}/interfaces/{n}", "Node", map[string]operation{
			"GET ":                     read("interface", (*call).readInterface),
			"PUT ":                     admin("update_interface", (*call).updateInterface),
			"DELETE ":                  admin("delete_interface", (*call).deleteInterface),
			"POST link_subnet":         admin("link_subnet", (*call).linkSubnet),
			"POST unlink_subnet":       admin("unlink_subnet", (*call).unlinkSubnet),
			"POST disconnect":          admin("disconnect", (*call).disconnect),
			"POST set_default_gateway": admin("set_default_gateway", (*call).setDefaultGateway),
			"POST add_tag":             admin("add_interface_tag", (*call).addInterfaceTag),
			"POST remove_tag":          admin("remove_interface_tag", (*call).removeInterfaceTag),
		}),
		at("nodes/{id}/blockdevices", "Node", map[string]operation{"GET ": read("blockdevices", (*call).listDisks)}),
		at("nodes/{id}/blockdevices/{n}", "Node", map[string]operation{
			"GET ":               read("blockdevice", (*call).readDisk),
			"POST set_boot_disk": admin("set_boot_disk", (*call).setBootDisk),
			"POST add_tag":       admin("add_disk_tag", (*call).addDiskTag),
			"POST remove_tag":    admin("remove_disk_tag", (*call).removeDiskTag),
		}),
		at("nodes/{id}/results", "Node", map[string]operation{"GET ": read("results", (*call).listResults)}),
		at("nodes/{id}/results/{n}", "Node", map[string]operation{"GET ": read("result", (*call).readResult)}),
	}
}

func (s *Server) siteRoutes() []route {
	version := operation{name: "version", run: (*call).version, anon: true}
	return []route{
		at("version", "", map[string]operation{"GET ": version}),
		at("users", "", map[string]operation{"GET ": read("users", (*call).users), "GET whoami": read("whoami", (*call).whoami)}),
		at("account/prefs/sshkeys", "", map[string]operation{"GET ": read("sshkeys", (*call).sshKeys)}),
		at("maas", "", map[string]operation{
			"GET get_config":  read("get_config", (*call).getConfig),
			"POST set_config": {name: "set_config", run: (*call).setConfig, mutating: true, admin: true},
		}),
		at("boot-resources", "", map[string]operation{"GET ": read("boot_resources", (*call).bootResources)}),
		at("boot-resources/{n}", "", map[string]operation{"GET ": read("boot_resource", (*call).bootResource)}),
		at("rackcontrollers", "", map[string]operation{"GET ": read("rackcontrollers", (*call).rackControllers)}),
		at("events", "", map[string]operation{"GET query": read("events", (*call).queryEvents)}),
		at("installation-results", "", map[string]operation{"GET ": read("installation_results", (*call).installationResults)}),
		at("discovery", "", map[string]operation{"GET ": read("discovery", (*call).discoveries)}),
		at("subnets", "", map[string]operation{"GET ": read("subnets", (*call).subnets)}),
		at("subnets/{n}", "", map[string]operation{"GET ": read("subnet", (*call).subnet)}),
		at("fabrics", "", map[string]operation{"GET ": read("fabrics", (*call).fabrics)}),
		at("fabrics/{n}", "", map[string]operation{"GET ": read("fabric", (*call).fabric)}),
		at("fabrics/{n}/vlans", "", map[string]operation{"GET ": read("vlans", (*call).vlans)}),
		at("domains", "", map[string]operation{"GET ": read("domains", (*call).domains)}),
		at("tags", "", map[string]operation{
			"GET ":  read("tags", (*call).listTags),
			"POST ": {name: "create_tag", run: (*call).createTag, mutating: true, admin: true},
		}),
		at("tags/{t}", "", map[string]operation{
			"GET ":              read("tag", (*call).readTag),
			"GET machines":      read("tag_machines", (*call).tagMachines),
			"POST update_nodes": {name: "update_nodes", run: (*call).updateTagNodes, mutating: true, admin: true},
		}),
		at("zones", "", map[string]operation{"GET ": read("zones", (*call).zones)}),
		at("zones/{z}", "", map[string]operation{"GET ": read("zone", (*call).zone)}),
		at("resourcepools", "", map[string]operation{"GET ": read("pools", (*call).pools)}),
	}
}
