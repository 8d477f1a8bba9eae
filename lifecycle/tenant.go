package lifecycle

import "strings"

// accountLimit is the most bytes of a Linux account's name.
const accountLimit = 32

// TenantWouldMove says why the disks of a node are not moved into other hardware while they hold a
// tenant's data.
const TenantWouldMove = "a tenant is on the node, or has left it and nothing proves it clean: with its disks that tenant's data would move into the new hardware; " +
	"migrate it to new disks, with the old ones erased"

// SystemDistrusted says why no job asks the installed system of a node for anything.
const SystemDistrusted = "a tenant who left the node was root there, so that nothing is proven by what its system says"

// TenantAccount returns the name of a tenant's account on a node: "t-" and the letters and digits
// of the allocation's id. Of a long id it takes the last ones, since ids begin with their time and
// those made at the same time would share a name.
func TenantAccount(allocationID string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(allocationID) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		}
	}
	name := b.String()
	if most := accountLimit - len("t-"); len(name) > most {
		name = name[len(name)-most:]
	}
	return "t-" + name
}
