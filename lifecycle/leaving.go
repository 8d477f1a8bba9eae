package lifecycle

import "strings"

// accountLimit is the most bytes of a Linux account's name.
const accountLimit = 32

// TenantWouldMove is why disks are not moved into other hardware with a tenant,
// or what one left, on them.
const TenantWouldMove = "a tenant is on the node, or has left it and nothing proves it clean: with its disks that tenant's data would move into the new hardware; " +
	"migrate it to new disks (--disks new), with the old ones erased (--erase-old)"

// SystemDistrusted is why the installed system of a node is asked for nothing.
const SystemDistrusted = "a tenant who left the node was root there, so that nothing is proven by what its system says"

// TenantAccount is the name of a tenant's account on a node, made from the id of
// the allocation: "t-" and its letters and digits, the last of them where they
// are too many, since the beginning of an id is its time.
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
