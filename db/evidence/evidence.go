// Package evidence stores what Slipway signed about nodes, one chain of certificates for each node,
// and the public halves of the keys that it signs with. It is a package below db, so the first
// argument after the context says how a function commits.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/evidence/gen"
)

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

// SigningKey is the public half of a key that Slipway signs with and the
// reference of the private one.
type SigningKey = gen.SigningKey

// Certificate is one signed link of a node's chain.
type Certificate = gen.Certificate

// AddSigningKey makes k the key in use for its purpose, unless there is one:
// then that one is returned. Of several processes that add at once, all get the
// same.
func AddSigningKey(ctx context.Context, c db.Conn, k SigningKey) (SigningKey, error) {
	row, err := queries(c).InsertSigningKey(ctx, gen.InsertSigningKeyParams{
		ID: k.ID, Purpose: k.Purpose, Public: k.Public, SecretRef: k.SecretRef,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return SigningKeyInUse(ctx, c, k.Purpose)
	}
	return row, db.MapError("signing key for "+k.Purpose, err)
}

// SigningKeyInUse is the key for a purpose, or db.ErrNotFound.
func SigningKeyInUse(ctx context.Context, c db.Conn, purpose string) (SigningKey, error) {
	row, err := queries(c).SigningKeyInUse(ctx, purpose)
	return row, db.MapError("signing key for "+purpose, err)
}

// SigningKeys lists every key of a purpose, retired ones too, oldest first.
func SigningKeys(ctx context.Context, c db.Conn, purpose string) ([]SigningKey, error) {
	rows, err := queries(c).SigningKeys(ctx, purpose)
	return rows, db.MapError("signing keys for "+purpose, err)
}

// RetireSigningKey takes a key out of use: the next signature makes a new one. The signatures of
// the retired key stay valid. Repeatable.
func RetireSigningKey(ctx context.Context, c db.Conn, id string) error {
	_, err := queries(c).RetireSigningKey(ctx, id)
	return db.MapError("retire signing key "+id, err)
}

// SucceedSigningKey makes k the key in use in place of oldID, which counts until
// the overlap is over. db.ErrStale when oldID is not in use any more: another
// process was first.
func SucceedSigningKey(ctx context.Context, s *db.Store, oldID string, overlap time.Duration, k SigningKey) (SigningKey, error) {
	what := "signing key for " + k.Purpose
	var out SigningKey
	err := s.Tx(ctx, func(tx *db.Tx) error {
		n, err := queries(tx).SucceedSigningKey(ctx, gen.SucceedSigningKeyParams{ID: oldID, Purpose: k.Purpose, OverlapSeconds: overlap.Seconds()})
		if err := db.CheckGuarded(what, n, err); err != nil {
			return err
		}
		if out, err = AddSigningKey(ctx, tx, k); err == nil && out.ID != k.ID {
			// The rotation that this one waited for began later, so the guard above missed it.
			return fmt.Errorf("%s: %w", what, db.ErrStale)
		}
		return err
	})
	return out, err
}

// AppendCertificate adds the next link of a node's chain. sign is given the last
// link, nil for the first, and returns the new one; it must not call the
// outside. The chain is locked meanwhile, so that links never fork. A link of
// this run that stands last is returned and nothing is added if it is clean, or
// if sign returns nil: it says the same. Another proof of the same run is a new link.
func AppendCertificate(ctx context.Context, tx *db.Tx, nodeID, runID string, sign func(last *Certificate) (*Certificate, error)) (Certificate, error) {
	what := "certificate of node " + nodeID
	if err := tx.Lock(ctx, "slipway:certificates:"+nodeID); err != nil {
		return Certificate{}, err
	}
	var last *Certificate
	row, err := queries(tx).LastCertificate(ctx, nodeID)
	switch {
	case err == nil && row.RunID == runID && row.Verdict == "clean":
		return row, nil
	case err == nil:
		last = &row
	case !errors.Is(err, pgx.ErrNoRows):
		return Certificate{}, db.MapError(what, err)
	}
	c, err := sign(last)
	if err != nil {
		return Certificate{}, err
	}
	if c == nil {
		return row, nil
	}
	return *c, db.MapError(what, queries(tx).InsertCertificate(ctx, gen.InsertCertificateParams{
		ID: c.ID, NodeID: nodeID, RunID: runID, Sequence: c.Sequence, Verdict: c.Verdict, Simulated: c.Simulated, Payload: c.Payload,
		Hash: c.Hash, PreviousHash: c.PreviousHash, KeyID: c.KeyID, Signature: c.Signature, IssuedAt: c.IssuedAt, SanitizedSince: c.SanitizedSince,
	}))
}

// CertificatesOfNode is a node's chain from its first link.
func CertificatesOfNode(ctx context.Context, c db.Conn, nodeID string) ([]Certificate, error) {
	rows, err := queries(c).CertificatesOfNode(ctx, nodeID)
	return rows, db.MapError("certificates of node "+nodeID, err)
}
