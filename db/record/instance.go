package record

import "time"

// CloudResource is one thing that a cloud provider has made for an instance.
type CloudResource struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// CloudResources are the things that a cloud provider has made for an instance.
type CloudResources []CloudResource

// WorkerHeartbeat is what the last heartbeat of an instance's worker said.
type WorkerHeartbeat struct {
	Ready    bool   `json:"ready"`
	Model    string `json:"model,omitempty"`
	Checksum string `json:"checksum,omitempty"`
	Version  string `json:"version,omitempty"`
	Active   int    `json:"active"` // requests that it works on
	// SentAt is the worker's own time, for operators alone.
	SentAt time.Time `json:"sent_at,omitzero"`
}
