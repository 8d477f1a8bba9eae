package maassim

import (
	"slices"
	"strings"
)

func siteConfig(o Options) map[string]any {
	out := map[string]any{
		"node_timeout": int(o.Durations.NodeTimeout.Minutes()), "hardware_sync_interval": o.Durations.SyncInterval.String(),
		"enable_disk_erasing_on_release": false, "default_storage_layout": "flat", "default_distro_series": "jammy", "default_osystem": "ubuntu",
		"maas_name": "simulated", "commissioning_distro_series": "jammy", "enable_disk_erasing": false,
	}
	for k, v := range o.Config {
		out[k] = v
	}
	return out
}

func (c *call) version() *reply {
	v := "3.7.3"
	if c.s.opt.Profile == "3.5" {
		v = "3.5.13"
	}
	return jsonReply(map[string]any{"version": v, "subversion": "simulated", "capabilities": []string{
		"networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management", "storage-deployment-ubuntu", "network-deployment-ubuntu",
	}})
}

func (c *call) user() map[string]any {
	return map[string]any{"username": c.s.opt.User, "email": c.s.opt.User + "@example.invalid", "is_superuser": !c.s.opt.Unprivileged,
		"is_local": true, "resource_uri": uri("users", c.s.opt.User)}
}

func (c *call) users() *reply  { return jsonReply([]any{c.user()}) }
func (c *call) whoami() *reply { return jsonReply(c.user()) }

func (c *call) sshKeys() *reply {
	out := []any{}
	for i, k := range c.s.opt.SSHKeys {
		out = append(out, map[string]any{"id": i + 1, "key": k, "keysource": nil, "resource_uri": uri("account", "prefs", "sshkeys", itoa(i+1))})
	}
	return jsonReply(out)
}

func (c *call) getConfig() *reply {
	v, ok := c.s.config[c.form.Get("name")]
	if !ok {
		return field("name", "%s is not a valid config setting (valid settings are: node_timeout, ...).", c.form.Get("name"))
	}
	return jsonReply(v)
}

func (c *call) setConfig() *reply {
	if _, ok := c.s.config[c.form.Get("name")]; !ok {
		return field("name", "%s is not a valid config setting.", c.form.Get("name"))
	}
	c.s.config[c.form.Get("name")] = c.form.Get("value")
	return text(200, "OK")
}

func (c *call) resource(i int, name string) map[string]any {
	return map[string]any{"id": i + 1, "type": "Synced", "name": name, "architecture": "amd64/generic", "resource_uri": uri("boot-resources", itoa(i+1)),
		"subarches": "generic", "title": name}
}

func (c *call) bootResources() *reply {
	out := []any{}
	for i, name := range c.s.opt.Images {
		out = append(out, c.resource(i, name))
	}
	return jsonReply(out)
}

func (c *call) bootResource() *reply {
	i := c.num("n") - 1
	if i < 0 || i >= len(c.s.opt.Images) {
		return notFound("BootResource")
	}
	return jsonReply(c.resource(i, c.s.opt.Images[i]))
}

func (c *call) rackControllers() *reply {
	return jsonReply([]any{map[string]any{"system_id": "3rackc", "hostname": "rack-1", "fqdn": "rack-1.maas", "node_type": 2, "resource_uri": uri("rackcontrollers", "3rackc")}})
}

func (c *call) discoveries() *reply { return jsonReply([]any{}) }

func (c *call) subnets() *reply {
	out := []any{}
	for i := range c.s.opt.Networks {
		out = append(out, c.s.subnetJSON(&c.s.opt.Networks[i]))
	}
	return jsonReply(out)
}

func (c *call) subnet() *reply {
	n := c.s.network(c.num("n"))
	if n == nil {
		return notFound("Subnet")
	}
	return jsonReply(c.s.subnetJSON(n))
}

func (c *call) fabricJSON(n *Network) map[string]any {
	return map[string]any{"id": n.VLAN, "name": "fabric-" + itoa(n.VLAN), "class_type": nil, "vlans": []any{c.s.vlanJSON(n.VLAN)}, "resource_uri": uri("fabrics", itoa(n.VLAN))}
}

func (c *call) fabrics() *reply {
	out := []any{}
	for i := range c.s.opt.Networks {
		out = append(out, c.fabricJSON(&c.s.opt.Networks[i]))
	}
	return jsonReply(out)
}

func (c *call) fabric() *reply {
	n := c.s.network(c.num("n"))
	if n == nil {
		return notFound("Fabric")
	}
	return jsonReply(c.fabricJSON(n))
}

func (c *call) vlans() *reply {
	n := c.s.network(c.num("n"))
	if n == nil {
		return notFound("Fabric")
	}
	return jsonReply([]any{c.s.vlanJSON(n.VLAN)})
}

func (c *call) domains() *reply {
	return jsonReply([]any{map[string]any{"id": 0, "name": "maas", "authoritative": true, "is_default": true, "ttl": nil, "resource_record_count": 0, "resource_uri": uri("domains", "0")}})
}

func (c *call) zones() *reply { return jsonReply([]any{named("zones", "default", 1)}) }

func (c *call) zone() *reply {
	if c.vars["z"] != "default" {
		return notFound("Zone")
	}
	return jsonReply(named("zones", "default", 1))
}

func (c *call) pools() *reply { return jsonReply([]any{named("resourcepool", "default", 0)}) }

func (c *call) tagJSON(name string) map[string]any {
	return map[string]any{"name": name, "definition": "", "comment": c.s.tags[name], "kernel_opts": "", "resource_uri": uri("tags", name)}
}

func (c *call) listTags() *reply {
	names := []string{}
	for name := range c.s.tags {
		names = append(names, name)
	}
	slices.Sort(names)
	out := []any{}
	for _, name := range names {
		out = append(out, c.tagJSON(name))
	}
	return jsonReply(out)
}

func (c *call) createTag() *reply {
	name := c.form.Get("name")
	if name == "" || strings.ContainsAny(name, " /") {
		return field("name", "Invalid tag name: '%s'.", name)
	}
	if _, ok := c.s.tags[name]; ok {
		return field("name", "Tag with this Name already exists.")
	}
	c.s.tags[name] = c.form.Get("comment")
	return jsonReply(c.tagJSON(name))
}

func (c *call) readTag() *reply {
	if _, ok := c.s.tags[c.vars["t"]]; !ok {
		return notFound("Tag")
	}
	return jsonReply(c.tagJSON(c.vars["t"]))
}

func (c *call) tagMachines() *reply {
	out := []any{}
	for _, m := range c.s.machines {
		if contains(m.tags, c.vars["t"]) {
			out = append(out, c.s.machineJSON(m))
		}
	}
	return jsonReply(out)
}

func (c *call) updateTagNodes() *reply {
	if _, ok := c.s.tags[c.vars["t"]]; !ok {
		return notFound("Tag")
	}
	added, removed := 0, 0
	for _, m := range c.s.machines {
		if contains(c.form["add"], m.id) {
			m.tags = retag(m.tags, c.vars["t"], true)
			added++
		}
		if contains(c.form["remove"], m.id) {
			m.tags = retag(m.tags, c.vars["t"], false)
			removed++
		}
	}
	return jsonReply(map[string]int{"added": added, "removed": removed})
}
