// Package protocol holds the wire types of the agent API: paths, bodies and problem types. It has
// no behaviour, and agent and control plane both import it.
package protocol

import (
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The paths of the agent API. Enroll is the only one that answers without a
// client certificate.
const (
	PathEnroll    = "/agent/v1/enroll"
	PathRenew     = "/agent/v1/renew"
	PathHeartbeat = "/agent/v1/heartbeat"
)

// EnrollRequest trades a one-time token for a first certificate. Sending it
// again with the same key gives the same certificate.
type EnrollRequest struct {
	Token  string `json:"token" maxLength:"200"`
	CSRPEM string `json:"csr_pem" maxLength:"16384"`
	// AfterGeneration is the generation that the node had before, 0 for none. The next one is
	// later.
	AfterGeneration int64 `json:"after_generation,omitempty" minimum:"0" maximum:"1000000000000"`
}

// RenewRequest asks for the next generation under a new key. Sending it again
// with the same new key gives the same certificate.
type RenewRequest struct {
	CSRPEM string `json:"csr_pem" maxLength:"16384"`
}

// CertificateResponse answers both. An interval of 0 leaves the agent's own.
type CertificateResponse struct {
	NodeID                   string    `json:"node_id"`
	Generation               int64     `json:"generation"`
	CertificatePEM           string    `json:"certificate_pem"`
	NotAfter                 time.Time `json:"not_after"`
	HeartbeatIntervalSeconds float64   `json:"heartbeat_interval_seconds,omitempty"`
	// TaskKeys are the public keys whose signature makes a task one of ours.
	TaskKeys []TaskKey `json:"task_keys,omitempty"`
}

// Heartbeat is the periodic report of an agent. Report is set when the agent has a
// new one.
type Heartbeat struct {
	BootID       string             `json:"boot_id" maxLength:"64"`
	AgentVersion string             `json:"agent_version" maxLength:"64"`
	Generation   int64              `json:"generation" minimum:"0" maximum:"9007199254740991"`
	SentAt       time.Time          `json:"sent_at"`
	UptimeSecs   float64            `json:"uptime_seconds" minimum:"0" maximum:"1000000000"` // of the agent
	Report       *spec.HealthReport `json:"report,omitempty"`
	// Allocation is the allocation that the node holds, "" for none. It is nil when that cannot be
	// read.
	Allocation *string `json:"allocation,omitempty" maxLength:"128"`
	// TaskKeyIDs are the keys of tasks that the agent knows.
	TaskKeyIDs []string `json:"task_key_ids,omitempty" maxItems:"64" itemMaxLength:"128"`
}

// Action is something that the server wants of the agent.
type Action string

// SendReportNow asks for a fresh health report at once. An agent ignores actions that it does not
// know.
const SendReportNow Action = "send_report_now"

// HeartbeatResponse answers a heartbeat. An interval of 0 leaves the agent's
// own.
type HeartbeatResponse struct {
	HeartbeatIntervalSeconds float64   `json:"heartbeat_interval_seconds,omitempty"`
	ServerTime               time.Time `json:"server_time"`
	Actions                  []Action  `json:"actions,omitempty"`
	// InService says that the node takes tenants' work: the drain that marked it
	// is over. It is of a moment after the heartbeat was sent.
	InService bool `json:"in_service,omitempty"`
	// TaskKeys are all keys of tasks, when the agent named others than these.
	TaskKeys []TaskKey `json:"task_keys,omitempty"`
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// The problem types of the agent API; they are stable.
const (
	ProblemTokenUnknown     = "urn:slipway:problem:enrolment-token-unknown"
	ProblemTokenExpired     = "urn:slipway:problem:enrolment-token-expired"
	ProblemTokenRevoked     = "urn:slipway:problem:enrolment-token-revoked"
	ProblemTokenUsed        = "urn:slipway:problem:enrolment-token-used-by-another-key"
	ProblemCertificate      = "urn:slipway:problem:client-certificate-required"
	ProblemCertificateEnded = "urn:slipway:problem:client-certificate-expired" // renew it
	ProblemNodeRemoved      = "urn:slipway:problem:node-removed"
	ProblemLocked           = "urn:slipway:problem:identity-locked"
	ProblemSuperseded       = "urn:slipway:problem:generation-superseded"
	ProblemFormer           = "urn:slipway:problem:former-enrolment"   // the node enrolled again since
	ProblemDenied           = "urn:slipway:problem:certificate-denied" // its identity ended, or was never given
	ProblemGraceOver        = "urn:slipway:problem:renewal-grace-over" // it expired too long ago to be renewed
	ProblemInvalid          = "urn:slipway:problem:invalid-request"
	ProblemTooLarge         = "urn:slipway:problem:request-too-large"
	ProblemTooMany          = "urn:slipway:problem:too-many-requests"
	ProblemUnavailable      = "urn:slipway:problem:unavailable"
	ProblemBusy             = "urn:slipway:problem:busy"
	ProblemNotFound         = "urn:slipway:problem:not-found"
	ProblemMethod           = "urn:slipway:problem:method-not-allowed"
	ProblemInternal         = "urn:slipway:problem:internal"
)

// The paths of the workers of instances. Both are POST, without a client certificate.
const (
	PathInstanceEnroll    = "/agent/v1/instance/enroll"
	PathInstanceHeartbeat = "/agent/v1/instance/heartbeat"
)

// InstanceEnroll binds the key that a worker has made to its instance. It may be repeated with the
// same key.
type InstanceEnroll struct {
	Token string `json:"token" maxLength:"200"`
	Key   string `json:"key" maxLength:"200"`
}

// InstanceHeartbeat says how a worker is. Its key comes as a bearer token.
type InstanceHeartbeat struct {
	InstanceID string    `json:"instance_id" maxLength:"64"`
	Sequence   int64     `json:"sequence" minimum:"1" maximum:"9007199254740991"`
	Ready      bool      `json:"ready"`
	Model      string    `json:"model,omitempty" maxLength:"200"`
	Checksum   string    `json:"checksum" maxLength:"64"`
	Version    string    `json:"version,omitempty" maxLength:"50"`
	Active     int       `json:"active,omitempty" minimum:"0" maximum:"1000000000"`
	SentAt     time.Time `json:"sent_at,omitzero"`
}

// InstanceAnswer is the answer to both.
type InstanceAnswer struct {
	InstanceID string `json:"instance_id"`
}
