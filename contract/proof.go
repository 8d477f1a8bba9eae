package contract

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Limits of an action's texts, in bytes.
const (
	MaxActor  = 200
	MaxReason = 2000
	maxProof  = 64 // of the key's name and of the nonce
)

// ActionProof is the API's signature of an action: this actor asked for this action on this job,
// for this reason, and the API let them. It is valid for one job, once, until it expires.
type ActionProof struct {
	KeyID     string    `json:"key_id"`
	Nonce     string    `json:"nonce"`
	ExpiresAt time.Time `json:"expires_at"` // by the clock of the database
	Signature []byte    `json:"signature"`
}

// WellFormed reports whether the parts have the sizes that the API makes.
func (p *ActionProof) WellFormed() bool {
	return p == nil || len(p.KeyID) <= maxProof && len(p.Nonce) <= maxProof && p.Nonce != "" && len(p.Signature) == ed25519.SignatureSize
}

// Message returns what the signature of a proof covers. The entry needs only what was asked for.
func (p ActionProof) Message(jobID string, e ActionEntry) ([]byte, error) {
	signed, err := json.Marshal(struct {
		Job        string           `json:"job"`
		Action     lifecycle.Action `json:"action"`
		Actor      string           `json:"actor"`
		Reason     string           `json:"reason"`
		AcceptRisk bool             `json:"accept_risk"`
		Nonce      string           `json:"nonce"`
		Expires    int64            `json:"expires"`
		Customer   bool             `json:"customer,omitempty"`

		Resolution lifecycle.Resolution `json:"resolution,omitempty"`
	}{jobID, e.Action, e.Actor, e.Reason, e.AcceptRisk, p.Nonce, p.ExpiresAt.Unix(), e.Customer, e.Resolution})
	return append([]byte("slipway-action/1\n"), signed...), err
}

// Fit returns the request with texts that fit into an audit row.
func (r ActionRequest) Fit() ActionRequest {
	r.Actor, r.Reason = fitText(r.Actor, MaxActor), fitText(r.Reason, MaxReason)
	return r
}

// Entry returns the part of an audit row that the request determines.
func (r ActionRequest) Entry(a lifecycle.Action) ActionEntry {
	return ActionEntry{Action: a, Actor: r.Actor, Reason: r.Reason, Customer: r.Customer, AcceptRisk: r.AcceptRisk, Resolution: r.Resolution, Proof: r.Proof}
}

// fitText makes a text from outside fit for an audit row.
func fitText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// ActionCheck asks whether an action on a job is proven.
type ActionCheck struct {
	JobID string      `json:"job_id"`
	RunID string      `json:"run_id,omitempty"`
	Entry ActionEntry `json:"entry"`
}

// ActionVerdict answers an ActionCheck. Unproven says why the action is not proven, "" when it is.
type ActionVerdict struct {
	Unproven string `json:"unproven,omitempty"`
}
