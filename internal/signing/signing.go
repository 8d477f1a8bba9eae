// Package signing is the control plane's own signature: ed25519 keys, one in use
// a purpose, whose private halves are sealed secrets and whose public halves are
// rows that stay for ever, so that what was signed can be checked after a key
// was retired.
package signing

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/providers"
)

// SecretPrefix begins the names of the secrets that hold signing keys.
const SecretPrefix = "slipway/signing/"

// Purpose is what a key signs; keys are never shared between purposes.
type Purpose string

// The purposes.
const (
	Tasks        Purpose = "task"
	Certificates Purpose = "certificate"
)

// Signature names its key.
type Signature struct {
	KeyID string
	Bytes []byte // 64
}

// PublicKey is the public half of a key.
type PublicKey struct {
	ID      string
	Public  ed25519.PublicKey
	Retired bool // has or will have a successor
}

// Ring holds the keys. It is safe for concurrent use; several processes share
// the same keys through the database.
type Ring struct {
	Store   *db.Store
	Secrets providers.Secrets

	mu   sync.Mutex
	keys map[string]ed25519.PrivateKey // by id
}

// Sign signs a message with the key in use and makes one when there is none.
func (r *Ring) Sign(ctx context.Context, p Purpose, message []byte) (Signature, error) {
	key, err := r.signer(ctx, p)
	if err != nil {
		return Signature{}, err
	}
	return key.sign(message), nil
}

// signer is a key that is at hand.
type signer struct {
	id  string
	key ed25519.PrivateKey
}

func (s signer) sign(message []byte) Signature {
	return Signature{KeyID: s.id, Bytes: ed25519.Sign(s.key, message)}
}

func (r *Ring) signer(ctx context.Context, p Purpose) (signer, error) {
	rows, err := evidencedb.SigningKeys(ctx, r.Store, string(p))
	if err != nil {
		return signer{}, err
	}
	row, ok := signingNow(rows, time.Now())
	if !ok {
		if row, err = r.create(ctx, p); err != nil {
			return signer{}, err
		}
	}
	key, err := r.private(ctx, row)
	return signer{row.ID, key}, err
}

// Public lists every public key of a purpose, retired ones too, and makes the
// first one when there is none.
func (r *Ring) Public(ctx context.Context, p Purpose) ([]PublicKey, error) {
	if _, err := r.inUse(ctx, p); err != nil {
		return nil, err
	}
	rows, err := evidencedb.SigningKeys(ctx, r.Store, string(p))
	if err != nil {
		return nil, err
	}
	out := make([]PublicKey, 0, len(rows))
	for _, row := range rows {
		out = append(out, PublicKey{row.ID, row.Public, row.RetiredAt != nil})
	}
	return out, nil
}

func (r *Ring) inUse(ctx context.Context, p Purpose) (evidencedb.SigningKey, error) {
	row, err := evidencedb.SigningKeyInUse(ctx, r.Store, string(p))
	if !errors.Is(err, db.ErrNotFound) {
		return row, err
	}
	return r.create(ctx, p)
}

// create makes the first key. When another process was first, its key is the
// key.
func (r *Ring) create(ctx context.Context, p Purpose) (evidencedb.SigningKey, error) {
	return r.add(ctx, p, func(k evidencedb.SigningKey) (evidencedb.SigningKey, error) {
		return evidencedb.AddSigningKey(ctx, r.Store, k)
	})
}

// add stores the private half before anybody can learn of the public one.
func (r *Ring) add(ctx context.Context, p Purpose, insert func(evidencedb.SigningKey) (evidencedb.SigningKey, error)) (evidencedb.SigningKey, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return evidencedb.SigningKey{}, fmt.Errorf("make a signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return evidencedb.SigningKey{}, fmt.Errorf("encode a signing key: %w", err)
	}
	id := db.NewID("key")
	name := SecretPrefix + id
	value := providers.NewSecret(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	ref, err := r.Secrets.Put(ctx, name, value)
	if err != nil {
		return evidencedb.SigningKey{}, err
	}
	row, err := insert(evidencedb.SigningKey{ID: id, Purpose: string(p), Public: public, SecretRef: string(ref)})
	if (err == nil && row.ID != id) || errors.Is(err, db.ErrStale) {
		err = errors.Join(err, r.Secrets.Delete(ctx, name))
	}
	return row, err
}

func (r *Ring) private(ctx context.Context, row evidencedb.SigningKey) (ed25519.PrivateKey, error) {
	r.mu.Lock()
	key, ok := r.keys[row.ID]
	r.mu.Unlock()
	if ok {
		return key, nil
	}
	value, err := r.Secrets.Resolve(ctx, providers.SecretRef(row.SecretRef), providers.OwnUse())
	if err != nil {
		return nil, err
	}
	key, err = parse(value)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", row.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys = map[string]ed25519.PrivateKey{}
	}
	r.keys[row.ID] = key
	return key, nil
}

func parse(value providers.Secret) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode([]byte(value.Reveal()))
	if block == nil {
		return nil, errors.New("the secret holds no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the secret holds no private key")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the secret holds another kind of key than ed25519")
	}
	return key, nil
}
