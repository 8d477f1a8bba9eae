package db

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Actor is who causes a change and why, as the audit row will say.
type Actor struct {
	Owner      lifecycle.Owner
	ID         string // user, token or workflow; "" when there is none
	Comment    string
	WorkflowID string
	// Metadata is free; keep it small and without secrets.
	Metadata map[string]any
}

const (
	maxComment  = 2000
	maxMetadata = 64 << 10 // bytes of JSON
)

// stamp is an Actor as the columns of an audit row.
type stamp struct {
	AuditID     string
	TriggeredBy string
	Owner       string
	ActorID     *string
	Comment     *string
	Metadata    json.RawMessage
	WorkflowID  *string
}

func (a Actor) stamp(proof lifecycle.Proof) (stamp, error) {
	meta := maps.Clone(a.Metadata)
	if len(proof) > 0 {
		if meta == nil {
			meta = map[string]any{}
		}
		meta["proof"] = proof
	}
	b := json.RawMessage("{}")
	if len(meta) > 0 {
		var err error
		if b, err = json.Marshal(meta); err != nil {
			return stamp{}, fmt.Errorf("audit metadata: %w", err)
		}
		b = storable(b)
	}
	if len(b) > maxMetadata {
		return stamp{}, fmt.Errorf("audit metadata: %w: %d bytes, at most %d", ErrInvalid, len(b), maxMetadata)
	}
	return stamp{
		AuditID: NewID("evt"), TriggeredBy: a.Owner.TriggeredBy(), Owner: string(a.Owner), ActorID: optional(a.ID),
		Comment: optional(clip(a.Comment, maxComment)), Metadata: b, WorkflowID: optional(a.WorkflowID),
	}, nil
}
