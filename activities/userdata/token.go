package userdata

// MachineToken is the secret that holds a machine's own MAAS token while the
// hardware sync of its node is repaired.
func MachineToken(nodeID string) string { return "nodes/" + nodeID + "/maas-token" }
