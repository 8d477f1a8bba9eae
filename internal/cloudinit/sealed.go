package cloudinit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// Sealed is user-data as it is stored, as a secret: it holds the enrolment token and the private
// host key. Only its reference and its digest travel through workflows.
type Sealed struct {
	Document  []byte    `json:"document"`
	TokenHash []byte    `json:"token_hash"`
	HostKey   string    `json:"host_key"` // public, authorized_keys form
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Digest returns the SHA-256 of the document in hex.
func (s Sealed) Digest() string {
	sum := sha256.Sum256(s.Document)
	return hex.EncodeToString(sum[:])
}

// maxAttempts is one more than the most deployment retries that a profile may ask for.
const maxAttempts = 11

// SecretName returns the name of the secret that holds the user-data of one deployment attempt of a
// job. Attempts count from 1.
func SecretName(jobID string, attempt int) string {
	return "userdata/" + jobID + "/" + strconv.Itoa(attempt)
}

// SecretNames returns the names that the user-data of a job can have.
func SecretNames(jobID string) []string {
	names := make([]string, maxAttempts)
	for i := range names {
		names[i] = SecretName(jobID, i+1)
	}
	return names
}

// MachineTokenName returns the name of the secret that holds a machine's own MAAS token while the
// hardware sync of its node is repaired.
func MachineTokenName(nodeID string) string { return "nodes/" + nodeID + "/maas-token" }

// Seal stores user-data under a name and returns its reference.
func Seal(ctx context.Context, s providers.Secrets, name string, e Sealed) (providers.SecretRef, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	return s.Put(ctx, name, providers.NewSecret(string(raw)))
}

// OpenSealed reads stored user-data. It returns KindNotFound when there is none.
func OpenSealed(ctx context.Context, s providers.Secrets, ref providers.SecretRef) (Sealed, error) {
	raw, err := s.Resolve(ctx, ref, providers.OwnUse())
	if err != nil {
		return Sealed{}, err
	}
	var e Sealed
	if err := json.Unmarshal([]byte(raw.Reveal()), &e); err != nil {
		return Sealed{}, &providers.Error{Kind: providers.KindProtocol, Op: "userdata.open", Message: "the sealed user-data is not readable; restart the job clean"}
	}
	return e, nil
}

// DeleteSealed deletes the user-data of a job, whichever attempts stored any. Repeating it is
// harmless.
func DeleteSealed(ctx context.Context, s providers.Secrets, jobID string) error {
	for _, name := range SecretNames(jobID) {
		if err := s.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
