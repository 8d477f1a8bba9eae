package lifecycle

// AddressSource is who named the addresses of a node.
type AddressSource string

// The sources of addresses. AddressesOfMAAS are those that a deployed machine has in MAAS,
// AddressesOfInstaller the one that a node had while it booted from the network, and
// AddressesOfAgent the one from which the agent reaches the control plane.
const (
	AddressesOfMAAS      AddressSource = "maas"
	AddressesOfInstaller AddressSource = "installer"
	AddressesOfAgent     AddressSource = "agent"
)
