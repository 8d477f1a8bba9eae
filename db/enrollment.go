package db

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// EnrollmentToken is a one-time token as stored: its SHA-256, never its text.
type EnrollmentToken = gen.EnrollmentToken

// AgentCertificate is one certificate that was issued to a node.
type AgentCertificate = gen.AgentCertificate

// TokenOutcome is what presenting an enrolment token meets.
type TokenOutcome string

// The outcomes.
const (
	TokenFirst       TokenOutcome = "first"         // used now, for the first time
	TokenReplay      TokenOutcome = "replay"        // used before by the same key: a lost answer
	TokenUsedByOther TokenOutcome = "used_by_other" // used before by another key: an alarm
	TokenExpired     TokenOutcome = "expired"
	TokenRevoked     TokenOutcome = "revoked"
	TokenUnknown     TokenOutcome = "unknown"
)

// IssueEnrollmentToken stores the SHA-256 of a token and revokes every other
// one of the node, so that at most one token of a node is good at a time.
// Issuing the same token again changes nothing, unless it was revoked since:
// then it is a *ConflictError. jobID may be empty.
func (tx *Tx) IssueEnrollmentToken(ctx context.Context, nodeID, jobID string, hash []byte, expires time.Time) error {
	what := "enrolment token of node " + nodeID
	if _, err := tx.LockNode(ctx, nodeID); err != nil {
		return err
	}
	n, err := tx.q.InsertEnrollmentToken(ctx, gen.InsertEnrollmentTokenParams{
		ID: NewID("tok"), NodeID: nodeID, JobID: optional(jobID), TokenHash: hash, ExpiresAt: expires,
	})
	if err != nil {
		return MapError(what, err)
	}
	if n == 0 {
		if err := tx.sameToken(ctx, nodeID, hash); err != nil {
			return err
		}
	}
	_, err = tx.q.RevokeEnrollmentTokens(ctx, gen.RevokeEnrollmentTokensParams{NodeID: nodeID, ButNot: hash})
	return MapError(what, err)
}

func (tx *Tx) sameToken(ctx context.Context, nodeID string, hash []byte) error {
	t, err := tx.EnrollmentToken(ctx, hash)
	if err != nil {
		return err
	}
	if t.NodeID != nodeID || t.RevokedAt != nil {
		return &ConflictError{What: "enrollment_token", Existing: t.ID, Message: "this enrolment token was issued before and is revoked or another node's; make a new one"}
	}
	return nil
}

// ExtendEnrollmentToken lets a node's unused token live until expires at the
// least, for a job that waits for its agent longer than the token was made for.
// It reports whether the token is there, unused and not revoked. Repeatable.
func (s statements) ExtendEnrollmentToken(ctx context.Context, nodeID string, hash []byte, expires time.Time) (bool, error) {
	n, err := s.q.ExtendEnrollmentToken(ctx, gen.ExtendEnrollmentTokenParams{NodeID: nodeID, TokenHash: hash, ExpiresAt: expires})
	return n == 1, MapError("enrolment token of node "+nodeID, err)
}

// RevokeEnrollmentTokens ends every token of a node, used or not. Repeatable.
func (s statements) RevokeEnrollmentTokens(ctx context.Context, nodeID string) error {
	_, err := s.q.RevokeEnrollmentTokens(ctx, gen.RevokeEnrollmentTokensParams{NodeID: nodeID, ButNot: []byte{}})
	return MapError("enrolment tokens of node "+nodeID, err)
}

// OpenEnrollmentTokens counts a node's tokens that are not revoked, used or not.
func (s statements) OpenEnrollmentTokens(ctx context.Context, nodeID string) (int64, error) {
	n, err := s.q.OpenEnrollmentTokens(ctx, nodeID)
	return n, MapError("enrolment tokens of node "+nodeID, err)
}

// EnrolledGeneration is the generation that an agent has got by the node's
// present enrolment token; 0 where none has, since a token was issued or all
// were revoked.
func (s statements) EnrolledGeneration(ctx context.Context, nodeID string) (int64, error) {
	n, err := s.q.EnrolledGeneration(ctx, nodeID)
	return n, MapError("enrolment tokens of node "+nodeID, err)
}

// EnrollmentToken reads a token by its hash, or ErrNotFound.
func (s statements) EnrollmentToken(ctx context.Context, hash []byte) (EnrollmentToken, error) {
	row, err := s.q.EnrollmentToken(ctx, hash)
	return row, MapError("enrolment token", err)
}

// RedeemEnrollmentToken uses a token for the key of a certificate request and
// says what it met. generation is what the token is traded for; on a replay
// the token says which generation that was (UsedGeneration), so that the same
// certificate is given again. Only first changes anything. A replay is good
// past the token's expiry, as it gives nothing that was not given in time.
func (tx *Tx) RedeemEnrollmentToken(ctx context.Context, hash, keyHash []byte, generation int64) (EnrollmentToken, TokenOutcome, error) {
	row, err := tx.q.LockEnrollmentToken(ctx, hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return EnrollmentToken{}, TokenUnknown, nil
	}
	if err != nil {
		return EnrollmentToken{}, "", MapError("enrolment token", err)
	}
	t := row.EnrollmentToken
	switch {
	case t.RevokedAt != nil:
		return t, TokenRevoked, nil
	case t.UsedAt != nil && bytes.Equal(t.UsedKeyHash, keyHash):
		return t, TokenReplay, nil
	case t.UsedAt != nil:
		return t, TokenUsedByOther, nil
	case row.Expired:
		return t, TokenExpired, nil
	}
	err = tx.q.UseEnrollmentToken(ctx, gen.UseEnrollmentTokenParams{ID: t.ID, UsedKeyHash: keyHash, UsedGeneration: &generation})
	if err != nil {
		return EnrollmentToken{}, "", MapError("enrolment token", err)
	}
	t.UsedKeyHash, t.UsedGeneration = keyHash, &generation
	return t, TokenFirst, nil
}
