package lifecycle

import (
	"cmp"
	"strings"
)

// ActionStatus is the state of one row of the action log.
type ActionStatus string

// The states of a row of the action log.
const (
	ActionInProgress ActionStatus = "in_progress"
	ActionSuccess    ActionStatus = "success"
	ActionFailed     ActionStatus = "failed"
)

// The components that an action belongs to.
const (
	ComponentAPI          = "api"
	ComponentOrchestrator = "orchestrator"
)

// ActionComponent returns the component that an action type belongs to: the API receives requests,
// the orchestrator does the rest.
func ActionComponent(actionType string) string {
	if strings.HasPrefix(actionType, "REQUEST_") {
		return ComponentAPI
	}
	return ComponentOrchestrator
}

// ActionMetadata is what an action was about and what it did, without secrets. Its JSON is at most
// 16 KiB.
type ActionMetadata struct {
	// CorrelationID is the run id of the workflow.
	CorrelationID string     `json:"correlation_id,omitempty"`
	IPAddress     string     `json:"ip_address,omitempty"`
	ServerID      string     `json:"server_id,omitempty"` // at the provider, such as the MAAS system id
	Zone          string     `json:"zone,omitempty"`
	Phases        []string   `json:"phases,omitempty"`
	LastPhase     string     `json:"last_phase,omitempty"`
	SSHExitStatus string     `json:"ssh_exit_status,omitempty"`
	AgentInfo     *AgentInfo `json:"agent_info,omitempty"`
	// Payment is what was received for a payment session.
	Payment *PaymentInfo `json:"payment,omitempty"`
}

// PaymentInfo is what the payment provider has received for a payment session, in minor units.
type PaymentInfo struct {
	SessionID     string `json:"session_id,omitempty"`
	Status        string `json:"status,omitempty"`
	ReceivedMinor int64  `json:"received_minor,omitempty"`
	Currency      string `json:"currency,omitempty"`
}

// With returns the metadata with what more is known now. An empty field of more leaves the field.
func (m ActionMetadata) With(more ActionMetadata) ActionMetadata {
	m.CorrelationID = cmp.Or(more.CorrelationID, m.CorrelationID)
	m.IPAddress = cmp.Or(more.IPAddress, m.IPAddress)
	m.ServerID = cmp.Or(more.ServerID, m.ServerID)
	m.Zone = cmp.Or(more.Zone, m.Zone)
	m.LastPhase = cmp.Or(more.LastPhase, m.LastPhase)
	m.SSHExitStatus = cmp.Or(more.SSHExitStatus, m.SSHExitStatus)
	m.AgentInfo = cmp.Or(more.AgentInfo, m.AgentInfo)
	m.Payment = cmp.Or(more.Payment, m.Payment)
	if len(more.Phases) > 0 {
		m.Phases = more.Phases
	}
	return m
}

// AgentInfo is what an agent says of its program.
type AgentInfo struct {
	Version   string `json:"version,omitempty"`
	BuildDate string `json:"build_date,omitempty"`
	Checksum  string `json:"checksum,omitempty"`
}
