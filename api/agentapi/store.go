package agentapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// skuFresh is how long a SKU is kept before it is read again.
const skuFresh = 30 * time.Second

// database is a Store over Postgres.
type database struct {
	db *db.Store

	mu   sync.Mutex
	skus map[string]sku
}

type sku struct {
	spec  spec.SKUSpec
	found bool
	read  time.Time
}

// NewStore returns the agent API's view of the database.
func NewStore(d *db.Store) Store { return &database{db: d, skus: map[string]sku{}} }

// Clock implements Store.
func (s *database) Clock(ctx context.Context) (time.Time, error) { return s.db.Clock(ctx) }

// Token implements Store.
func (s *database) Token(ctx context.Context, hash [32]byte) (Token, error) {
	t, err := s.db.EnrollmentToken(ctx, hash[:])
	if errors.Is(err, db.ErrNotFound) {
		return Token{}, ErrNoToken
	}
	if err != nil {
		return Token{}, err
	}
	out := Token{NodeID: t.NodeID, ExpiresAt: t.ExpiresAt, Revoked: t.RevokedAt != nil}
	if t.UsedGeneration != nil {
		c, err := s.db.AgentCertificate(ctx, t.NodeID, *t.UsedGeneration)
		if err != nil {
			return Token{}, err
		}
		is := issued(c)
		out.Redeemed = &is
	}
	return out, nil
}

// Redeem implements Store.
func (s *database) Redeem(ctx context.Context, r Redemption) (Issued, error) {
	var out Issued
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		// Revoking locks the node before the token too, so the two cannot deadlock.
		if _, err := tx.LockNode(ctx, r.NodeID); err != nil {
			return err
		}
		tok, outcome, err := tx.RedeemEnrollmentToken(ctx, r.TokenHash[:], r.Certificate.SPKI[:], r.Certificate.Generation)
		if err != nil {
			return err
		}
		switch outcome {
		case db.TokenUnknown:
			return ErrNoToken
		case db.TokenUsedByOther:
			return ErrTokenUsed
		case db.TokenReplay:
			c, err := tx.AgentCertificate(ctx, tok.NodeID, *tok.UsedGeneration)
			out = issued(c)
			return err
		case db.TokenFirst:
		default:
			return ErrTokenEnded
		}
		if err := tx.SaveAgentIdentity(ctx, certificateRow(tok.NodeID, r.Certificate)); err != nil {
			return err
		}
		out = r.Certificate
		if err := onboarding.StartEnrolled(ctx, tx, tok.NodeID); err != nil {
			return err
		}
		return auditIdentity(ctx, tx, "agent_enrolled", tok.NodeID, r.Address, r.Certificate.Generation)
	})
	return out, generationMoved(err)
}

// Identity implements Store.
func (s *database) Identity(ctx context.Context, nodeID string) (NodeIdentity, error) {
	n, err := s.db.Node(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return NodeIdentity{}, ErrNoNode
	}
	if err != nil {
		return NodeIdentity{}, err
	}
	out := NodeIdentity{NodeID: nodeID, Lifecycle: n.Lifecycle, Status: n.Status}
	if n.SKUID != nil {
		out.SKUID = *n.SKUID
	}
	id, err := s.db.AgentIdentity(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		return out, nil
	}
	if err != nil {
		return NodeIdentity{}, err
	}
	out.Current, out.Locked = issued(id.AgentCertificate), id.LockedAt != nil
	return out, nil
}

// Standings implements Store.
func (s *database) Standings(ctx context.Context, nodeIDs []string) (map[string]Standing, error) {
	return s.db.AgentStandings(ctx, nodeIDs)
}

// Renew implements Store. It writes no audit row: the generation of the identity counts the routine
// renewals of a node.
func (s *database) Renew(ctx context.Context, r Renewal) error {
	return generationMoved(s.db.Tx(ctx, func(tx *db.Tx) error {
		return tx.AdvanceGeneration(ctx, r.NodeID, r.Certificate.Generation-1, certificateRow(r.NodeID, r.Certificate))
	}))
}

// Adopt implements Store.
func (s *database) Adopt(ctx context.Context, a Adoption) error {
	return generationMoved(s.db.Tx(ctx, func(tx *db.Tx) error {
		row := certificateRow(a.NodeID, a.Certificate)
		row.IssuedAt = a.IssuedAt
		before, err := tx.AdoptAgentCertificate(ctx, row)
		if err != nil {
			return err
		}
		if before.Enrolment < row.Enrolment { // the transaction that was lost did the same
			if err := onboarding.StartEnrolled(ctx, tx, a.NodeID); err != nil {
				return err
			}
		}
		return tx.AppendAudit(ctx, db.Entry{ResourceKind: "node", ResourceID: a.NodeID, NodeID: &a.NodeID, Kind: db.EntryObservation,
			Name: "agent_certificate_adopted", Actor: db.Actor{Owner: lifecycle.OwnerSystem, Comment: "an agent showed a certificate that the database did not know",
				Metadata: map[string]any{"address": a.Address, "serial": row.Serial, "generation": row.Generation, "known_generation": before.Generation,
					"enrolment": row.Enrolment, "known_enrolment": before.Enrolment}}})
	}))
}

// Report implements Store.
func (s *database) Report(ctx context.Context, r Refusal) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		tell, err := tx.RecordAgentRefusal(ctx, db.AgentRefusal{NodeID: r.NodeID, Kind: string(r.Kind), Detail: r.Detail, Address: r.Address})
		if err != nil || !tell {
			return err
		}
		return tx.AppendAudit(ctx, db.Entry{ResourceKind: "node", ResourceID: r.NodeID, NodeID: &r.NodeID, Kind: db.EntryObservation,
			Name: "agent_certificate_refused", Actor: db.Actor{Owner: lifecycle.OwnerSystem, Comment: r.Detail,
				Metadata: map[string]any{"address": r.Address, "kind": string(r.Kind)}}})
	})
}

// Lock implements Store.
func (s *database) Lock(ctx context.Context, nodeID, reason string, _ time.Time) error {
	err := s.db.LockAgentIdentity(ctx, nodeID, reason)
	if errors.Is(err, db.ErrNotFound) {
		return ErrNoNode
	}
	return err
}

// Alarm implements Store. It counts the alarm, and writes an audit row and an event when the audit
// log has not named one of this node and kind for an hour.
func (s *database) Alarm(ctx context.Context, a Alarm) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		tell, err := tx.RecordAgentRefusal(ctx, db.AgentRefusal{NodeID: a.NodeID, Kind: string(a.Kind), Detail: a.Detail, Address: a.Address})
		if err != nil || !tell {
			return err
		}
		err = tx.AppendAudit(ctx, db.Entry{ResourceKind: "node", ResourceID: a.NodeID, NodeID: &a.NodeID, Kind: db.EntryObservation,
			Name: string(a.Kind), Actor: db.Actor{Owner: lifecycle.OwnerSystem, Comment: a.Detail,
				Metadata: map[string]any{"address": a.Address, "alarm": true}}})
		if err != nil {
			return err
		}
		return tx.AppendEvent(ctx, db.Event{ResourceKind: "node", ResourceID: a.NodeID, NodeID: &a.NodeID, Type: "alarm." + string(a.Kind)})
	})
}

// WriteHeartbeats implements Store. It checks each report against the SKU of its node.
func (s *database) WriteHeartbeats(ctx context.Context, heartbeats []Heartbeat) error {
	rows := make([]db.Heartbeat, 0, len(heartbeats))
	for _, b := range heartbeats {
		row := db.Heartbeat{NodeID: b.NodeID, BootID: b.BootID, AgentVersion: b.AgentVersion, Generation: b.Generation,
			Address: b.Address, ClockSkew: b.ClockSkew, Uptime: b.Uptime, ReceivedAt: b.At, Allocation: b.Allocation}
		// The database stores a report under the boot of its heartbeat.
		if b.Report != nil && b.Report.BootID == b.BootID {
			unhealthy, err := s.checkReport(ctx, b.SKUID, b.Report.Health)
			if err != nil {
				return err
			}
			row.Report, row.Unhealthy = &b.Report.Health, unhealthy
		}
		rows = append(rows, row)
	}
	err := s.db.RecordHeartbeats(ctx, rows)
	if errors.Is(err, db.ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return err
}

// checkReport returns what is wrong with a report by the node's SKU. It returns nothing for a node
// without a SKU.
func (s *database) checkReport(ctx context.Context, id string, h spec.HealthReport) ([]string, error) {
	if id == "" {
		return nil, nil
	}
	s.mu.Lock()
	k, known := s.skus[id]
	s.mu.Unlock()
	if !known || time.Since(k.read) > skuFresh {
		row, err := s.db.SKU(ctx, id)
		if err != nil && !errors.Is(err, db.ErrNotFound) {
			return nil, err
		}
		k = sku{spec: row.Spec, found: err == nil, read: time.Now()}
		s.mu.Lock()
		s.skus[id] = k
		s.mu.Unlock()
	}
	if !k.found {
		return []string{"the node's SKU " + id + " does not exist, so its report cannot be checked"}, nil
	}
	return k.spec.CheckHealth(h), nil
}

// generationMoved returns ErrGenerationMoved for a row that changed meanwhile, and any other error
// as it is.
func generationMoved(err error) error {
	if errors.Is(err, db.ErrStale) {
		return ErrGenerationMoved
	}
	return err
}

func auditIdentity(ctx context.Context, tx *db.Tx, name, nodeID, address string, generation int64) error {
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: "node", ResourceID: nodeID, NodeID: &nodeID, Kind: db.EntryObservation, Name: name,
		Actor: db.Actor{Owner: lifecycle.OwnerSystem, Metadata: map[string]any{"address": address, "generation": generation}}})
}

func certificateRow(nodeID string, c Issued) db.AgentCertificate {
	return db.AgentCertificate{NodeID: nodeID, Generation: c.Generation, Enrolment: c.Enrolment, Serial: c.Serial, KeyHash: c.SPKI[:],
		CertPEM: c.PEM, NotBefore: c.NotBefore, NotAfter: c.NotAfter}
}

func issued(c db.AgentCertificate) Issued {
	out := Issued{Generation: c.Generation, Enrolment: c.Enrolment, Serial: c.Serial, PEM: c.CertPEM, NotBefore: c.NotBefore, NotAfter: c.NotAfter}
	copy(out.SPKI[:], c.KeyHash)
	return out
}
