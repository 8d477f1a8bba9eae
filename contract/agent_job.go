package contract

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// AgentReissueInput is the accepted request to give a node's agent a new identity. SystemID is the
// node's machine in MAAS, "" for none.
type AgentReissueInput struct {
	Hostname string `json:"hostname"`
	SystemID string `json:"system_id,omitempty"`
	Reason   string `json:"reason"`
}

// AgentUpdateInput is the accepted request to install a release of the agent. The agent checks the
// signature of the manifest, and the program by what the manifest says.
type AgentUpdateInput struct {
	Hostname  string `json:"hostname"`
	Version   string `json:"version"`
	Manifest  []byte `json:"manifest"`
	Signature []byte `json:"signature"`
	BinaryURL string `json:"binary_url"`
	Reason    string `json:"reason"`
}

// AgentTokenFacts is where the enrolment token of a reissue stands. Ref is its reference in the
// secret store.
type AgentTokenFacts struct {
	Ref      string    `json:"ref"`
	IssuedAt time.Time `json:"issued_at,omitzero"`
	// Used is set when the agent has traded the token for its new identity.
	Used bool   `json:"used,omitempty"`
	Note string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the facts.
func (f AgentTokenFacts) TimelineNote() string { return f.Note }

// AgentSeen is the agent as its newest heartbeat shows it.
type AgentSeen struct {
	Done       bool   `json:"done,omitempty"` // it is as it was asked for
	Generation int64  `json:"generation,omitempty"`
	Version    string `json:"version,omitempty"`
	Note       string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says of the agent.
func (f AgentSeen) TimelineNote() string { return f.Note }

// ActionMetadata is what the action log says of the agent.
func (f AgentSeen) ActionMetadata() lifecycle.ActionMetadata { return agentVersion(f.Version) }
