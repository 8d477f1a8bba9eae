package protocol

import (
	"encoding/json"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// The paths of tasks. All are POST with a client certificate.
const (
	PathTaskClaim  = "/agent/v1/tasks/claim"
	PathTaskRenew  = "/agent/v1/tasks/renew"
	PathTaskResult = "/agent/v1/tasks/result"
)

// ClaimRequest asks for the next task and waits for one up to WaitSeconds (at
// most 30). An agent asks for one task at a time.
type ClaimRequest struct {
	BootID      string  `json:"boot_id" maxLength:"64"`
	WaitSeconds float64 `json:"wait_seconds" minimum:"0" maximum:"30"`
	// ClaimID is a random name of this claim that the agent keeps until it has
	// the answer: a delivery whose answer was lost is then given again, where it
	// would otherwise wait for its lease to end.
	ClaimID string `json:"claim_id,omitempty" maxLength:"64"`
	// Unfinished are tasks that the agent's journal says were begun and not
	// finished: the server gives the delivery that the node still holds again and
	// renews its lease, waits for the results of others, or tells to drop them.
	Unfinished []string `json:"unfinished,omitempty" maxItems:"64" itemMaxLength:"100"`
}

// ClaimResponse holds at most one task.
type ClaimResponse struct {
	Task *SignedTask `json:"task,omitempty"`
	// Dropped are tasks of Unfinished that the server no longer waits for.
	Dropped []string `json:"dropped,omitempty"`
}

// SignedTask is a task as the control plane signed it: Payload is the JSON of
// a Task, Signature is ed25519 over "slipway-task-v1\n" and Payload.
type SignedTask struct {
	Payload   []byte `json:"payload"`
	KeyID     string `json:"key_id"`
	Signature []byte `json:"signature"`
}

// TaskContext goes before a payload when it is signed, so that a signature for
// something else is never one for a task.
const TaskContext = "slipway-task-v1\n"

// Task is one delivery of a task: attempt, lease, node, boot and generation
// are the fence around it.
type Task struct {
	ID             string             `json:"id"`
	Kind           lifecycle.TaskKind `json:"kind"`
	SchemaVersion  int                `json:"schema_version"`
	Args           json.RawMessage    `json:"args"`
	NodeID         string             `json:"node_id"`
	BootID         string             `json:"boot_id"`
	Generation     int64              `json:"generation"`
	Attempt        int                `json:"attempt"`
	LeaseID        string             `json:"lease_id"`
	LeaseSeconds   float64            `json:"lease_seconds"`
	IssuedAt       time.Time          `json:"issued_at"`
	Deadline       time.Time          `json:"deadline"`
	IdempotencyKey string             `json:"idempotency_key"`
}

// RenewTaskRequest keeps a lease; the agent sends it each quarter of the lease.
type RenewTaskRequest struct {
	TaskID   string `json:"task_id" maxLength:"100"`
	LeaseID  string `json:"lease_id" maxLength:"100"`
	Attempt  int    `json:"attempt" minimum:"0" maximum:"1073741824"`
	Progress string `json:"progress,omitempty" maxLength:"200" text:"clean"` // the step that runs, for people
}

// RenewTaskResponse tells until when the lease holds.
type RenewTaskResponse struct {
	LeaseSeconds float64 `json:"lease_seconds"`
}

// ResultRequest ends a task. Sending it again is success.
type ResultRequest struct {
	TaskID  string               `json:"task_id" maxLength:"100"`
	LeaseID string               `json:"lease_id" maxLength:"100"`
	Attempt int                  `json:"attempt" minimum:"0" maximum:"1073741824"`
	Result  lifecycle.TaskResult `json:"result"`
}

// ResultResponse says what became of the report.
type ResultResponse struct {
	Status lifecycle.TaskStatus `json:"status"`
}

// The problem types of tasks.
const (
	ProblemLeaseLost = "urn:slipway:problem:task-lease-lost"
	ProblemTaskEnded = "urn:slipway:problem:task-ended"
)

// TaskKey is a public key that signs tasks; the agent learns it at enrolment and
// renewal, over the connection that its CA protects, and from heartbeats.
type TaskKey struct {
	KeyID  string `json:"key_id"`
	Public []byte `json:"public"` // 32 bytes, ed25519
	// Generation counts the control plane's keys from 1.
	Generation int64 `json:"generation,omitempty"`
	// Until is when the key expires; nil while it has no successor.
	Until *time.Time `json:"until,omitempty"`
	// Link is the signature by the previous generation's key; nil for the first key.
	Link *KeyLink `json:"link,omitempty"`
}

// KeyLink is the signature of the previous key over this one: ed25519 over taskkeys.Message.
// PreviousUntil is when the previous key, and every older one, expires.
type KeyLink struct {
	PreviousKeyID string    `json:"previous_key_id"`
	PreviousUntil time.Time `json:"previous_until"`
	Signature     []byte    `json:"signature"`
}
