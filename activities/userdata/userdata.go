// Package userdata seals a node's first-boot document. What it holds is secret:
// the enrolment token and the private host key. Only the reference and a digest
// travel through workflows.
package userdata

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// Sealed is the envelope as stored.
type Sealed struct {
	Document  []byte    `json:"document"`
	TokenHash []byte    `json:"token_hash"`
	HostKey   string    `json:"host_key"` // public, authorized_keys form
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Digest is the SHA-256 of the document in hex.
func (s Sealed) Digest() string {
	sum := sha256.Sum256(s.Document)
	return hex.EncodeToString(sum[:])
}

// Name is the secret's name for one deployment attempt of a job.
func Name(jobID string, attempt int) string {
	return "userdata/" + jobID + "/" + strconv.Itoa(attempt)
}

// Seal stores the envelope and returns its reference.
func Seal(ctx context.Context, s providers.Secrets, name string, e Sealed) (providers.SecretRef, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	return s.Put(ctx, name, providers.NewSecret(string(raw)))
}

// Open reads an envelope; KindNotFound when there is none.
func Open(ctx context.Context, s providers.Secrets, ref providers.SecretRef) (Sealed, error) {
	raw, err := s.Resolve(ctx, ref)
	if err != nil {
		return Sealed{}, err
	}
	var e Sealed
	if err := json.Unmarshal([]byte(raw.Reveal()), &e); err != nil {
		return Sealed{}, &providers.Error{Kind: providers.KindProtocol, Op: "userdata.open", Message: "the sealed user-data is not readable; restart the job clean"}
	}
	return e, nil
}
