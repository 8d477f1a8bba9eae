package secrets

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"

	"github.com/slipway-cloud/slipway/providers"
)

// MaxValue is the size limit of one value, in bytes.
const MaxValue = 64 << 10

const envelopeFormat = 1

// envelope is what the store holds as ciphertext, in JSON.
type envelope struct {
	Format int    `json:"format"`
	Key    []byte `json:"key"` // the data key, encrypted by the keeper
	Box    []byte `json:"box"` // AES-256-GCM: nonce, then the encrypted content
}

// content is what the box holds.
type content struct {
	// After is the newest version when this was sealed; the value is a later one.
	After int    `json:"after"`
	Value []byte `json:"value"`
}

// associated binds a box to a name and a format.
func associated(name string) []byte { return []byte("slipway secret 1\x00" + name) }

// seal encrypts value for name.
func (s *sealer) seal(ctx context.Context, op, name string, after int, value []byte) ([]byte, error) {
	dataKey := make([]byte, 32)
	if _, err := rand.Read(dataKey); err != nil {
		return nil, failure(providers.KindUnavailable, op, err, "the system gives no random numbers")
	}
	sealedKey, err := s.keeper.Encrypt(ctx, dataKey)
	if err != nil {
		return nil, keeperFailure(op, s, err)
	}
	box, err := newBox(dataKey)
	if err != nil {
		return nil, failure(providers.KindProtocol, op, err, "the secret cannot be encrypted")
	}
	plain, err := json.Marshal(content{After: after, Value: value})
	if err != nil {
		return nil, failure(providers.KindProtocol, op, nil, "the secret cannot be encrypted")
	}
	sealed, err := json.Marshal(envelope{
		Format: envelopeFormat, Key: sealedKey, Box: box.Seal(nil, nil, plain, associated(name)),
	})
	if err != nil {
		return nil, failure(providers.KindProtocol, op, nil, "the secret cannot be encrypted")
	}
	return sealed, nil
}

// open decrypts what seal made and checks that it belongs to name and version.
func (s *sealer) open(ctx context.Context, op, name string, version int, sealed []byte) ([]byte, error) {
	damaged := func(cause error) error {
		return failure(providers.KindProtocol, op, cause,
			"version %d of secret %s was altered, damaged or moved from another place; put the value again", version, name)
	}
	var e envelope
	dec := json.NewDecoder(bytes.NewReader(sealed))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil || e.Format != envelopeFormat {
		return nil, damaged(err)
	}
	dataKey, err := s.keeper.Decrypt(ctx, e.Key)
	if err != nil {
		return nil, keeperFailure(op, s, err)
	}
	box, err := newBox(dataKey)
	if err != nil {
		return nil, damaged(err)
	}
	plain, err := box.Open(nil, nil, e.Box, associated(name))
	if err != nil {
		return nil, damaged(err)
	}
	var c content
	if err := json.Unmarshal(plain, &c); err != nil || version <= c.After {
		return nil, damaged(nil)
	}
	return c.Value, nil
}

func newBox(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
