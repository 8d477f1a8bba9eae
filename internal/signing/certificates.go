package signing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

// Certify completes a certificate, signs it and stores it as the last one of its node's chain. It
// sets identity, sequence, previous hash, verdict and time. It returns the last certificate when
// that is of the same run, and is clean or has the same content. The functions in follows run in
// the transaction that stores the certificate, and must not call the outside.
func (r *Ring) Certify(ctx context.Context, c evidence.Certificate, follows ...func(*db.Tx) error) (evidencedb.Certificate, error) {
	c.SetVerdict()
	// The key is fetched first: no transaction is open across a call.
	key, err := r.signer(ctx, Certificates)
	if err != nil {
		return evidencedb.Certificate{}, err
	}
	var out evidencedb.Certificate
	err = r.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		out, err = evidencedb.AppendCertificate(ctx, tx, c.Subject.NodeID, c.Run.ID, func(last *evidencedb.Certificate) (*evidencedb.Certificate, error) {
			if same, err := says(last, c); same || err != nil {
				return nil, err
			}
			return link(c, last, key)
		})
		for _, do := range follows {
			if err == nil {
				err = do(tx)
			}
		}
		return err
	})
	return out, err
}

// says reports whether last is of the same run and has the same content.
func says(last *evidencedb.Certificate, c evidence.Certificate) (bool, error) {
	if last == nil || last.RunID != c.Run.ID {
		return false, nil
	}
	var stored evidence.Certificate
	if err := json.Unmarshal(last.Payload, &stored); err != nil {
		return false, fmt.Errorf("certificate %s: %w", last.ID, err)
	}
	stored.Schema, stored.ID, stored.Sequence, stored.PreviousHash, stored.IssuedAt = 0, "", 0, "", time.Time{}
	x, xerr := json.Marshal(stored)
	y, yerr := json.Marshal(c)
	return string(x) == string(y), errors.Join(xerr, yerr)
}

// link makes the certificate that follows last.
func link(c evidence.Certificate, last *evidencedb.Certificate, key signer) (*evidencedb.Certificate, error) {
	c.Schema, c.ID, c.Sequence, c.PreviousHash = evidence.Schema, db.NewID("cert"), 1, ""
	if last != nil {
		c.Sequence, c.PreviousHash = last.Sequence+1, last.Hash
	}
	c.IssuedAt = time.Now().UTC().Truncate(time.Microsecond)
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the certificate of run %s: %w", c.Run.ID, err)
	}
	sig := key.sign(evidence.Message(evidence.CertificateContext, payload))
	return &evidencedb.Certificate{
		ID: c.ID, Sequence: c.Sequence, Verdict: string(c.Verdict), Simulated: c.Simulated, Payload: payload, Hash: evidence.Hash(payload),
		PreviousHash: c.PreviousHash, KeyID: sig.KeyID, Signature: sig.Bytes, IssuedAt: c.IssuedAt, SanitizedSince: c.SanitizedSince,
	}, nil
}

// Bundle is a node's whole chain with its signed head and the public keys.
func (r *Ring) Bundle(ctx context.Context, nodeID string) (evidence.Bundle, error) {
	rows, err := evidencedb.CertificatesOfNode(ctx, r.Store, nodeID)
	if err != nil {
		return evidence.Bundle{}, err
	}
	b := evidence.Bundle{NodeID: nodeID, Certificates: []evidence.Envelope{}}
	head := evidence.Head{NodeID: nodeID, Count: int64(len(rows)), At: time.Now().UTC().Truncate(time.Second)}
	for _, row := range rows {
		b.Certificates = append(b.Certificates, evidence.Envelope{Payload: row.Payload, KeyID: row.KeyID, Signature: row.Signature})
		head.LastHash = row.Hash
	}
	payload, err := json.Marshal(head)
	if err != nil {
		return evidence.Bundle{}, fmt.Errorf("encode the head of node %s: %w", nodeID, err)
	}
	sig, err := r.Sign(ctx, Certificates, evidence.Message(evidence.HeadContext, payload))
	if err != nil {
		return evidence.Bundle{}, err
	}
	b.Head = evidence.Envelope{Payload: payload, KeyID: sig.KeyID, Signature: sig.Bytes}
	keys, err := r.Public(ctx, Certificates)
	if err != nil {
		return evidence.Bundle{}, err
	}
	for _, k := range keys {
		b.Keys = append(b.Keys, evidence.Key{ID: k.ID, Public: k.Public})
	}
	return b, nil
}
