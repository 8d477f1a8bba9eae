package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	// MaxRenewGrace bounds the setting agent.renew_grace.
	MaxRenewGrace = 365 * 24 * time.Hour
	// DefaultRenewGrace is that setting when nobody sets it.
	DefaultRenewGrace = 90 * 24 * time.Hour
	// MaxGenerationsAhead is how far a certificate may be ahead of the database, in generations: a
	// month of renewals with the shortest certificates is a fifth of it.
	MaxGenerationsAhead = 100_000
)

// EndAgentIdentity ends the identity of a node's agent, in the transaction that takes the node or
// its system out of use: the identity is locked, every certificate of it is denied for good, and
// the enrolment tokens are revoked. The cost does not depend on how many certificates there were. A
// later enrolment makes a new identity. Repeatable, also for a node that never enrolled.
func (tx *Tx) EndAgentIdentity(ctx context.Context, nodeID, reason string) error {
	if err := tx.RevokeEnrollmentTokens(ctx, nodeID); err != nil {
		return err
	}
	what := "agent identity of node " + nodeID
	return MapError(what, tx.q.EndIdentity(ctx, gen.EndIdentityParams{NodeID: nodeID, Reason: ClipText(reason, MaxComment)}))
}

// LockAllAgentIdentities locks every identity that is not locked, because no certificate of before
// counts any more. Each agent comes back with a new token, which unlocks it. It returns how many it
// locked. Repeatable.
func (tx *Tx) LockAllAgentIdentities(ctx context.Context, reason string) (int64, error) {
	n, err := tx.q.LockAllIdentities(ctx, ClipText(reason, MaxComment))
	return n, MapError("agent identities", err)
}

// endIdentityOf ends the identity of a node that was moved to a state in which it has no agent.
func (tx *Tx) endIdentityOf(ctx context.Context, n Node) error {
	pxe := n.Lifecycle == lifecycle.NodePXE.Lifecycle
	switch {
	case n.Status == lifecycle.NodeDeleted, pxe && n.Status == lifecycle.NodeRetired:
		return tx.EndAgentIdentity(ctx, n.ID, "the node is "+string(n.Status))
	case pxe && n.Status == lifecycle.NodePending:
		return tx.EndAgentIdentity(ctx, n.ID, "the node installs another system; its agent enrols again")
	}
	return nil
}

// AdoptAgentCertificate makes a certificate the identity of its node that the database does not
// know, because the transaction that issued it was lost in a restore or a failover. c.Enrolment
// must be known, and c.IssuedAt is when it was issued. A later enrolment replaces the present one:
// it unlocks, denies the certificates of the enrolments before and revokes the tokens of before it.
// ErrStale: the identity is not older than c, or is locked. ErrInvalid: c is too far ahead.
func (tx *Tx) AdoptAgentCertificate(ctx context.Context, c AgentCertificate) (before AgentIdentity, err error) {
	what := "agent identity of node " + c.NodeID
	if _, err := tx.LockNode(ctx, c.NodeID); err != nil {
		return before, err
	}
	if before, err = tx.AgentIdentity(ctx, c.NodeID); err != nil && !errors.Is(err, ErrNotFound) {
		return before, err
	}
	later := c.Enrolment > before.Enrolment
	switch {
	case c.Generation-before.Generation > MaxGenerationsAhead || c.Enrolment-before.Enrolment > MaxGenerationsAhead:
		return before, fmt.Errorf("%s: %w: generation %d is too far ahead of %d", what, ErrInvalid, c.Generation, before.Generation)
	case c.Enrolment < before.Enrolment, c.NotBefore.Before(before.EnrolledFrom), !later && c.Generation <= before.Generation,
		before.LockedAt != nil && (!later || !c.IssuedAt.After(*before.LockedAt)):
		return before, fmt.Errorf("%s: %w", what, ErrStale)
	}
	if later {
		if err := tx.q.RevokeTokensIssuedBefore(ctx, gen.RevokeTokensIssuedBeforeParams{NodeID: c.NodeID, Before: c.IssuedAt}); err != nil {
			return before, MapError(what, err)
		}
	}
	if err := tx.q.PutAgentCertificate(ctx, gen.PutAgentCertificateParams{NodeID: c.NodeID, Generation: c.Generation, Serial: c.Serial, KeyHash: c.KeyHash,
		CertPEM: c.CertPEM, NotBefore: c.NotBefore, NotAfter: c.NotAfter, Enrolment: c.Enrolment}); err != nil {
		return before, MapError(what, err)
	}
	n, err := tx.q.AdoptIdentity(ctx, gen.AdoptIdentityParams{NodeID: c.NodeID, Generation: c.Generation, EnrolledFrom: c.NotBefore, Reenrolled: later,
		FormerEnrolment: before.Enrolment})
	if err := CheckRepeatable(what, n, err, func() error { return fmt.Errorf("%s: %w", what, ErrStale) }); err != nil {
		return before, err
	}
	return before, MapError(what, tx.q.DropLaterCertificates(ctx, gen.DropLaterCertificatesParams{NodeID: c.NodeID, Generation: c.Generation}))
}

// AgentRefusal is a certificate that was refused without locking its node's identity.
type AgentRefusal struct{ NodeID, Kind, Detail, Address string }

// RecordAgentRefusal counts a refusal. It returns true when the audit log has not named one of this
// node and kind for an hour.
func (tx *Tx) RecordAgentRefusal(ctx context.Context, r AgentRefusal) (bool, error) {
	tell, err := tx.q.RecordRefusal(ctx, gen.RecordRefusalParams{NodeID: r.NodeID, Kind: r.Kind, Detail: ClipText(r.Detail, MaxMessage), Address: r.Address})
	return tell, MapError("refusals of node "+r.NodeID, err)
}

// PruneAgentIdentities deletes a batch of superseded certificates that have ended, and of refusals
// of long ago. It returns how many rows it deleted.
func (s *Store) PruneAgentIdentities(ctx context.Context) (int64, error) {
	certificates, err := s.q.PruneSupersededCertificates(ctx, PruneBatch)
	if err != nil {
		return 0, MapError("prune superseded certificates", err)
	}
	refusals, err := s.q.PruneRefusals(ctx, PruneBatch)
	return certificates + refusals, MapError("prune refusals", err)
}

// AnyAgentEnrolled reports whether an agent may still hold a certificate that can be renewed.
func (s statements) AnyAgentEnrolled(ctx context.Context) (bool, error) {
	any, err := s.q.AnyAgentEnrolled(ctx, MaxRenewGrace.Seconds())
	return any, MapError("look for enrolled agents", err)
}

// IdentityStanding says whether a node's agent can work under the identity that it has.
type IdentityStanding struct {
	Works      bool
	Why        string // why it does not; "" where it works
	Generation int64  // 0: no agent has enrolled
	Enrolment  int64
	NotAfter   time.Time // of the newest certificate
	Expired    bool      // the certificate can be renewed and do nothing else
}

// AgentIdentityStanding reads whether the identity of a node's agent can still work, and if not,
// why. ErrNotFound: there is no such node.
func (s statements) AgentIdentityStanding(ctx context.Context, nodeID string) (IdentityStanding, error) {
	n, err := s.Node(ctx, nodeID)
	if err != nil {
		return IdentityStanding{}, err
	}
	id, err := s.AgentIdentity(ctx, nodeID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return IdentityStanding{}, err
	}
	now, err := s.Clock(ctx)
	if err != nil {
		return IdentityStanding{}, err
	}
	out := IdentityStanding{Generation: id.Generation, Enrolment: id.Enrolment, NotAfter: id.NotAfter, Expired: now.After(id.NotAfter)}
	switch {
	case !lifecycle.AdmitsAgent(n.Lifecycle, n.Status):
		out.Why = fmt.Sprintf("no agent of a node that is %s is served", n.Status)
	case id.Generation == 0:
		out.Why = "no agent has enrolled for the node"
	case id.LockedAt != nil:
		out.Why = "its agent is locked out: " + id.LockedReason
	case now.After(id.NotAfter.Add(s.renewGrace)):
		out.Why = fmt.Sprintf("its agent's certificate ended at %s, more than %s ago", id.NotAfter.UTC().Format(time.RFC3339), s.renewGrace)
	default:
		out.Works = true
	}
	return out, nil
}
