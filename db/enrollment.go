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

// NewEnrollmentToken is a token to issue.
type NewEnrollmentToken struct {
	NodeID string
	JobID  *string
	Hash   [32]byte // SHA-256 of the token's text
	// UserDataSHA256 is of the rendered user-data that carries the token, so
	// that it is known again after a lost answer; may be nil.
	UserDataSHA256 []byte
	ExpiresAt      time.Time
}

// IssueEnrollmentToken stores a token and revokes every earlier one of the
// node, so that at most one token of a node is good at a time.
func (tx *Tx) IssueEnrollmentToken(ctx context.Context, in NewEnrollmentToken) (EnrollmentToken, error) {
	what := "enrolment token of node " + in.NodeID
	if _, err := tx.LockNode(ctx, in.NodeID); err != nil {
		return EnrollmentToken{}, err
	}
	if _, err := tx.q.RevokeEnrollmentTokens(ctx, in.NodeID); err != nil {
		return EnrollmentToken{}, translate(what, err)
	}
	row, err := tx.q.InsertEnrollmentToken(ctx, gen.InsertEnrollmentTokenParams{
		ID: NewID("tok"), NodeID: in.NodeID, JobID: in.JobID, TokenHash: in.Hash[:], UserDataSHA256: in.UserDataSHA256, ExpiresAt: in.ExpiresAt,
	})
	return row, translate(what, err)
}

// RevokeEnrollmentTokens ends every token of a node and returns how many were
// not ended yet.
func (s statements) RevokeEnrollmentTokens(ctx context.Context, nodeID string) (int64, error) {
	n, err := s.q.RevokeEnrollmentTokens(ctx, nodeID)
	return n, translate("enrolment tokens of node "+nodeID, err)
}

// EnrollmentToken reads a token by its hash, or ErrNotFound.
func (s statements) EnrollmentToken(ctx context.Context, hash [32]byte) (EnrollmentToken, error) {
	row, err := s.q.EnrollmentToken(ctx, hash[:])
	return row, translate("enrolment token", err)
}

// LiveEnrollmentToken is the newest token of a node for a job that is used, or
// still can be; nil when there is none.
func (s statements) LiveEnrollmentToken(ctx context.Context, nodeID, jobID string) (*EnrollmentToken, error) {
	row, err := s.q.LiveEnrollmentToken(ctx, gen.LiveEnrollmentTokenParams{NodeID: nodeID, JobID: jobID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, translate("enrolment token of node "+nodeID, err)
	}
	return &row, nil
}

// RedeemEnrollmentToken uses a token for the key of a certificate request and
// says what it met. generation is what the token is traded for; on a replay
// the token says which generation that was (UsedGeneration), so that the same
// certificate is given again. Only first changes anything. A replay is good
// past the token's expiry, as it gives nothing that was not given in time.
func (tx *Tx) RedeemEnrollmentToken(ctx context.Context, hash, keyHash [32]byte, generation int64) (EnrollmentToken, TokenOutcome, error) {
	row, err := tx.q.LockEnrollmentToken(ctx, hash[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return EnrollmentToken{}, TokenUnknown, nil
	}
	if err != nil {
		return EnrollmentToken{}, "", translate("enrolment token", err)
	}
	t := row.EnrollmentToken
	switch {
	case t.RevokedAt != nil:
		return t, TokenRevoked, nil
	case t.UsedAt != nil && bytes.Equal(t.UsedKeyHash, keyHash[:]):
		return t, TokenReplay, nil
	case t.UsedAt != nil:
		return t, TokenUsedByOther, nil
	case row.Expired:
		return t, TokenExpired, nil
	}
	err = tx.q.UseEnrollmentToken(ctx, gen.UseEnrollmentTokenParams{ID: t.ID, UsedKeyHash: keyHash[:], UsedGeneration: &generation})
	if err != nil {
		return EnrollmentToken{}, "", translate("enrolment token", err)
	}
	t.UsedKeyHash, t.UsedGeneration = keyHash[:], &generation
	return t, TokenFirst, nil
}
