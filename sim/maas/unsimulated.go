package maassim

import "strings"

// notSimulated is the answer to what MAAS has and this region does not. A wrong answer would teach
// a client something that no MAAS does.
func notSimulated(what string) *reply {
	return text(501, "not simulated: %s. This region simulates what Slipway calls; see sim/maas/routes.go.", what)
}

// unsimulatedPaths are the first words of addresses of MAAS 3.4 to 3.7 of which nothing, or not
// all, is simulated.
const unsimulatedPaths = ` account boot-resources boot-sources commissioning-scripts devices dhcp-snippets discovery dnsresourcerecords dnsresources domains
 events fabrics files installation-results ipaddresses ipranges license-key license-keys machines maas networks nodes notifications
 package-repositories pods rackcontrollers raid regioncontrollers reservedips resourcepool resourcepools scripts space spaces static-routes subnets tags
 users vlans vm-hosts zones `

// unsimulatedOps are the further operations of the addresses that are simulated, by the pattern of
// the address.
var unsimulatedOps = map[string]string{
	"machines": " is_registered list_allocated accept accept_all add_chassis clone set_zone ",
	"machines/{id}": " details get_curtin_config lock unlock mark_broken mark_fixed rescue_mode exit_rescue_mode test restore_default_configuration" +
		" restore_networking_configuration restore_storage_configuration clear_default_gateways mount_special unmount_special set_owner_data ",
	"nodes/{id}/interfaces":       " create_physical create_bond create_vlan create_bridge ",
	"nodes/{id}/interfaces/{n}":   " GET DELETE remove_tag disconnect set_default_gateway ",
	"nodes/{id}/blockdevices":     " POST ",
	"nodes/{id}/blockdevices/{n}": " GET PUT DELETE add_tag remove_tag format unformat mount unmount ",
	"nodes/{id}/results/{n}":      " DELETE download ",
	"users":                       " GET POST ",
	"account/prefs/sshkeys":       " POST import ",
	"maas":                        " set_config ",
	"boot-resources":              " POST import is_importing stop_import ",
	"subnets":                     " POST ",
}

// isUnsimulatedPath reports whether MAAS has something at an address that is not in the table.
func isUnsimulatedPath(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(strings.ReplaceAll(unsimulatedPaths, "\n", " "), " "+first+" ")
}

// isUnsimulatedOp reports whether MAAS has the operation at an address of the table.
func (r *route) isUnsimulatedOp(method, op string) bool {
	if op == "" {
		op = method
	}
	return strings.Contains(unsimulatedOps[strings.Join(r.pattern, "/")], " "+op+" ")
}
