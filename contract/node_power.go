package contract

// NodePowerWorkflow reads the power of the node of a live job from MAAS and from its BMC. It
// changes nothing and returns a NodePower.
const NodePowerWorkflow = "NodePower"

// NodePowerInput names the machine of a job's node. SystemID and BMCID are "" where there is none.
type NodePowerInput struct {
	Job      JobRef `json:"job"`
	SystemID string `json:"system_id,omitempty"`
	BMCID    string `json:"bmc_id,omitempty"`
	BMCCAPEM string `json:"bmc_ca_pem,omitempty"`
}

// NodePower is the power of a node as each of both says now: "on", "off" or "unknown", and "" where
// one could not be asked.
type NodePower struct {
	BMC  string `json:"bmc,omitempty"`
	MAAS string `json:"maas,omitempty"`
}

// NodePowerWorkflowID is the workflow id of a reading, so that asking twice at once asks once.
func NodePowerWorkflowID(in NodePowerInput) string { return "power/" + in.Job.JobID }
