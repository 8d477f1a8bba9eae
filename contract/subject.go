package contract

import (
	"encoding/json"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// SubjectKind names what a job is about.
type SubjectKind string

// The kinds of subject. Package intent/subject has the code of each.
const (
	SubjectNode       SubjectKind = "node"
	SubjectAllocation SubjectKind = "allocation"
	SubjectInstance   SubjectKind = "instance"
	SubjectRun        SubjectKind = "run"
	SubjectPayment    SubjectKind = "payment"
)

// Move asks a subject for a change in the transaction of a projection. Only the subject reads Data.
type Move struct {
	Subject SubjectKind `json:"subject"`
	// ID is the subject's; "" stands for the one that the job names itself.
	ID string `json:"id,omitempty"`
	// Once says that the end of a job makes the move once: a job that has ended refuses it.
	Once bool            `json:"once,omitempty"`
	Data json.RawMessage `json:"data"`
}

func newMove(kind SubjectKind, id string, once bool, data any) *Move {
	raw, _ := json.Marshal(data) // a plain struct
	return &Move{kind, id, once, raw}
}

// Step is what a job says of a step to those that add moves to it.
type Step struct {
	Failure *Failure
	// Entered is the status that the job enters with the step, "" where it stays as it is.
	Entered lifecycle.JobStatus
}
