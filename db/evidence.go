package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// SigningKey is the public half of a key that Slipway signs with and the
// reference of the private one.
type SigningKey = gen.SigningKey

// Certificate is one signed link of a node's chain.
type Certificate = gen.Certificate

// AddSigningKey makes k the key in use for its purpose, unless there is one:
// then that one is returned. Of several processes that add at once, all get the
// same.
func (s statements) AddSigningKey(ctx context.Context, k SigningKey) (SigningKey, error) {
	row, err := s.q.InsertSigningKey(ctx, gen.InsertSigningKeyParams{
		ID: orNewID(k.ID, "key"), Purpose: k.Purpose, Public: k.Public, SecretRef: k.SecretRef,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.SigningKeyInUse(ctx, k.Purpose)
	}
	return row, MapError("signing key for "+k.Purpose, err)
}

// SigningKeyInUse is the key for a purpose, or ErrNotFound.
func (s statements) SigningKeyInUse(ctx context.Context, purpose string) (SigningKey, error) {
	row, err := s.q.SigningKeyInUse(ctx, purpose)
	return row, MapError("signing key for "+purpose, err)
}

// SigningKeys lists every key of a purpose, retired ones too, oldest first.
func (s statements) SigningKeys(ctx context.Context, purpose string) ([]SigningKey, error) {
	rows, err := s.q.SigningKeys(ctx, purpose)
	return rows, MapError("signing keys for "+purpose, err)
}

// RetireSigningKey takes a key out of use: the next signature makes a new one.
// What it signed stays valid. Repeatable.
func (s statements) RetireSigningKey(ctx context.Context, id string) error {
	_, err := s.q.RetireSigningKey(ctx, id)
	return MapError("retire signing key "+id, err)
}

// SucceedSigningKey makes k the key in use in place of oldID, which counts until
// the overlap is over. ErrStale when oldID is not in use any more: another
// process was first.
func (s *Store) SucceedSigningKey(ctx context.Context, oldID string, overlap time.Duration, k SigningKey) (SigningKey, error) {
	what := "signing key for " + k.Purpose
	var out SigningKey
	err := s.Tx(ctx, func(tx *Tx) error {
		n, err := tx.q.SucceedSigningKey(ctx, gen.SucceedSigningKeyParams{ID: oldID, Purpose: k.Purpose, OverlapSeconds: overlap.Seconds()})
		if err == nil && n == 0 {
			err = ErrStale
		}
		if err != nil {
			return MapError(what, err)
		}
		out, err = tx.AddSigningKey(ctx, k)
		return err
	})
	return out, err
}

// AppendCertificate adds the next link of a node's chain. make is given the last
// link, nil for the first, and returns the new one; it must not call the
// outside. The chain is locked meanwhile, so that links never fork. A link of
// this run that stands last is returned and nothing is added, unless its
// verdict was not_verified: a later proof of the same run is a new link.
func (tx *Tx) AppendCertificate(ctx context.Context, nodeID, runID string, sign func(last *Certificate) (Certificate, error)) (Certificate, error) {
	what := "certificate of node " + nodeID
	if err := tx.q.Lock(ctx, "slipway:certificates:"+nodeID); err != nil {
		return Certificate{}, MapError(what, err)
	}
	var last *Certificate
	row, err := tx.q.LastCertificate(ctx, nodeID)
	switch {
	case err == nil && row.RunID == runID && row.Verdict == "clean":
		return row, nil
	case err == nil:
		last = &row
	case !errors.Is(err, pgx.ErrNoRows):
		return Certificate{}, MapError(what, err)
	}
	c, err := sign(last)
	if err != nil {
		return Certificate{}, err
	}
	return c, MapError(what, tx.q.InsertCertificate(ctx, gen.InsertCertificateParams{
		ID: c.ID, NodeID: nodeID, RunID: runID, Sequence: c.Sequence, Verdict: c.Verdict, Simulated: c.Simulated, Payload: c.Payload,
		Hash: c.Hash, PreviousHash: c.PreviousHash, KeyID: c.KeyID, Signature: c.Signature, IssuedAt: c.IssuedAt,
	}))
}

// CertificatesOfNode is a node's chain from its first link.
func (s statements) CertificatesOfNode(ctx context.Context, nodeID string) ([]Certificate, error) {
	rows, err := s.q.CertificatesOfNode(ctx, nodeID)
	return rows, MapError("certificates of node "+nodeID, err)
}
