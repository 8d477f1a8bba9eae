package contract

// BMCRotationInput is the accepted request. Hostname is the node's, "" for a
// BMC that no node has.
type BMCRotationInput struct {
	BMCID    string `json:"bmc_id"`
	Hostname string `json:"hostname,omitempty"`
	Reason   string `json:"reason,omitempty"`
}
