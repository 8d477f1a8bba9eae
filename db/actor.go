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

// The longest texts that are stored, in characters: what an operator wrote, and what an outside
// system or a job says.
const (
	MaxComment = 2000
	MaxMessage = 4000
)

const maxMetadata = 64 << 10 // bytes of JSON

// AuditStamp holds the columns of an audit row that say who changed something and why.
type AuditStamp struct {
	AuditID     string
	TriggeredBy string
	Owner       string
	ActorID     *string
	Comment     *string
	Metadata    json.RawMessage
	WorkflowID  *string
}

// Stamp returns the audit columns of a change by a. It is called by the function that creates a
// row; CommitTransition calls it for a change of state.
func (a Actor) Stamp(proof lifecycle.Proof) (AuditStamp, error) {
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
			return AuditStamp{}, fmt.Errorf("audit metadata: %w", err)
		}
		b = CleanJSON(b)
	}
	if len(b) > maxMetadata {
		return AuditStamp{}, fmt.Errorf("audit metadata: %w: %d bytes, at most %d", ErrInvalid, len(b), maxMetadata)
	}
	return AuditStamp{
		AuditID: NewID("evt"), TriggeredBy: a.Owner.TriggeredBy(), Owner: string(a.Owner), ActorID: optional(a.ID),
		Comment: optional(ClipText(a.Comment, MaxComment)), Metadata: b, WorkflowID: optional(a.WorkflowID),
	}, nil
}
