package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// AgentIdentity is the present certificate of a node's agent. The newest
// generation is the one that counts; a lost answer to a renewal is given again
// from it, to the same key.
type AgentIdentity struct {
	AgentCertificate
	LockedAt     *time.Time // set: shut out until a new token is redeemed
	LockedReason string
	// EnrolledFrom is when the first certificate of the present enrolment begins; what is older is
	// a former system's.
	EnrolledFrom time.Time
}

// AgentIdentity reads a node's identity, or ErrNotFound before it enrolled.
func (s statements) AgentIdentity(ctx context.Context, nodeID string) (AgentIdentity, error) {
	row, err := s.q.AgentIdentity(ctx, nodeID)
	if err != nil {
		return AgentIdentity{}, MapError("agent identity of node "+nodeID, err)
	}
	return AgentIdentity{row.AgentCertificate, row.LockedAt, row.LockedReason, row.EnrolledFrom}, nil
}

// AgentStanding is how a node and its agent stand: Generation is 0 before it enrolled, ReportedBoot
// "" before its first health report. Certificates up to EndedEnrolment, and certificates without an
// enrolment up to EndedGeneration, are of an identity that has ended.
type AgentStanding = gen.AgentStandingsRow

// AgentStandings reads how nodes stand, by node. Nodes that do not exist are missing.
func (s statements) AgentStandings(ctx context.Context, nodeIDs []string) (map[string]AgentStanding, error) {
	rows, err := s.q.AgentStandings(ctx, nodeIDs)
	out := make(map[string]AgentStanding, len(rows))
	for _, r := range rows {
		out[r.NodeID] = r
	}
	return out, MapError("how nodes stand", err)
}

// AgentCertificate reads one issued certificate, or ErrNotFound.
func (s statements) AgentCertificate(ctx context.Context, nodeID string, generation int64) (AgentCertificate, error) {
	c, err := s.q.AgentCertificate(ctx, gen.AgentCertificateParams{NodeID: nodeID, Generation: generation})
	return c, MapError(fmt.Sprintf("certificate %d of node %s", generation, nodeID), err)
}

// SaveAgentIdentity makes a certificate the node's identity after a token was
// redeemed, and unlocks it. Its generation must be later than the present one, by
// MaxGenerationsAhead at most, and its enrolment the next one; a certificate that
// names no enrolment is of the next one. Otherwise ErrStale.
func (tx *Tx) SaveAgentIdentity(ctx context.Context, c AgentCertificate) error {
	what := "agent identity of node " + c.NodeID
	present, err := tx.AgentIdentity(ctx, c.NodeID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if c.Enrolment == 0 {
		c.Enrolment = present.Enrolment + 1
	}
	ahead := c.Generation - present.Generation
	if ahead < 1 || ahead > MaxGenerationsAhead || c.Enrolment != present.Enrolment+1 {
		return fmt.Errorf("%s: %w", what, ErrStale)
	}
	if err := tx.addCertificate(ctx, c); err != nil {
		return err
	}
	n, err := tx.q.EnrolIdentity(ctx, gen.EnrolIdentityParams{
		NodeID: c.NodeID, Generation: c.Generation, FromGeneration: present.Generation, EnrolledFrom: c.NotBefore.Truncate(time.Second),
	})
	if err := CheckRepeatable(what, n, err, func() error { return fmt.Errorf("%s: %w", what, ErrStale) }); err != nil {
		return err
	}
	return MapError(what, tx.q.ForgetRefusals(ctx, c.NodeID))
}

// AdvanceGeneration makes a renewed certificate the node's identity.
// c.Generation must be from+1. ErrStale when the identity is not at from or is
// locked.
func (tx *Tx) AdvanceGeneration(ctx context.Context, nodeID string, from int64, c AgentCertificate) error {
	what := "agent identity of node " + nodeID
	if c.NodeID != nodeID || c.Generation != from+1 {
		return fmt.Errorf("%s: %w: generation %d does not follow %d", what, ErrInvalid, c.Generation, from)
	}
	present, err := tx.AgentIdentity(ctx, nodeID)
	if err != nil {
		return err
	}
	if c.Enrolment == 0 {
		c.Enrolment = present.Enrolment
	}
	if c.Enrolment != present.Enrolment {
		return fmt.Errorf("%s: %w", what, ErrStale)
	}
	if err := tx.addCertificate(ctx, c); err != nil {
		return err
	}
	n, err := tx.q.AdvanceGeneration(ctx, gen.AdvanceGenerationParams{NodeID: nodeID, FromGeneration: from, ToGeneration: c.Generation})
	return CheckRepeatable(what, n, err, func() error { return fmt.Errorf("%s: %w", what, ErrStale) })
}

func (tx *Tx) addCertificate(ctx context.Context, c AgentCertificate) error {
	what := "agent identity of node " + c.NodeID
	n, err := tx.q.InsertAgentCertificate(ctx, gen.InsertAgentCertificateParams{
		NodeID: c.NodeID, Generation: c.Generation, Serial: c.Serial, KeyHash: c.KeyHash, CertPEM: c.CertPEM, NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		Enrolment: c.Enrolment,
	})
	return CheckRepeatable(what, n, err, func() error { return fmt.Errorf("%s: %w", what, ErrStale) })
}

// LockAgentIdentity shuts a node's agent out. The first reason and time stay.
// Repeatable; ErrNotFound when the node never enrolled.
func (s statements) LockAgentIdentity(ctx context.Context, nodeID, reason string) error {
	if reason == "" {
		reason = "locked by an operator"
	}
	n, err := s.q.LockAgentIdentity(ctx, gen.LockAgentIdentityParams{NodeID: nodeID, Reason: ClipText(reason, MaxComment)})
	return CheckRepeatable("agent identity of node "+nodeID, n, err, func() error {
		return MapError("agent identity of node "+nodeID, pgx.ErrNoRows)
	})
}
