package signing

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Actions is the purpose of the key with which the API signs actions on jobs.
const Actions Purpose = "action"

// ActionProofTTL is how long the proof of an action counts: longer than an action waits for its
// turn in a job, or for a database that is away. Both ends of it are times of the database's clock,
// so the clocks of hosts do not matter, and after a jump of the database's own the next proof is
// valid again.
const ActionProofTTL = 24 * time.Hour

// SignAction returns the proof of an action on a job. The texts of the request must fit.
func (r *Ring) SignAction(ctx context.Context, jobID string, e contract.ActionEntry) (*contract.ActionProof, error) {
	now, err := r.Store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	key, err := r.signer(ctx, Actions)
	if err != nil {
		return nil, err
	}
	p := &contract.ActionProof{KeyID: key.id, Nonce: rand.Text(), ExpiresAt: now.Add(ActionProofTTL).UTC()}
	message, err := p.Message(jobID, e)
	if err != nil {
		return nil, err
	}
	p.Signature = key.sign(message).Bytes
	return p, nil
}

// Why an action is not proven.
const (
	unprovenUnsigned = "it is not signed by the API"
	unprovenForeign  = "its signature is not the API's for this job, action, actor and reason"
	unprovenKey      = "the key that signed it has ended"
	unprovenExpired  = "its signature has expired"
	unprovenUsed     = "its signature was used before"
)

// VerifyAction returns why an action on a job is not proven, "" when it is. A proof counts once. A
// proof that the given workflow run has used, in an action that it does not remember, is no copy: a
// workflow task that was lost stored it, with the effect that is returned. recorded leaves this
// question out, for an action that is stored.
func VerifyAction(ctx context.Context, tx *db.Tx, jobID, runID string, e contract.ActionEntry, recorded bool) (why string, lost lifecycle.Effect, err error) {
	p := e.Proof
	if p == nil {
		return unprovenUnsigned, "", nil
	}
	keys, err := evidencedb.SigningKeys(ctx, tx, string(Actions))
	if err != nil {
		return "", "", err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return "", "", err
	}
	i := slices.IndexFunc(keys, func(k evidencedb.SigningKey) bool { return k.ID == p.KeyID })
	message, err := p.Message(jobID, e)
	switch {
	case err != nil || i < 0 || !p.WellFormed() || !ed25519.Verify(keys[i].Public, message, p.Signature):
		return unprovenForeign, "", nil
	case keys[i].RetiredAt != nil && !now.Before(*keys[i].RetiredAt):
		return unprovenKey, "", nil
	case !now.Before(p.ExpiresAt):
		return unprovenExpired, "", nil
	case recorded:
		return "", "", nil
	}
	first, err := tx.ActionOfNonce(ctx, jobID, p.Nonce)
	switch {
	case err != nil || first == nil:
		return "", "", err
	case !e.Seen && runID != "" && first.RunID == runID:
		return "", first.Effect, nil
	}
	return unprovenUsed, "", nil
}
