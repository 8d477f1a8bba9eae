// Package payloadcodec encrypts what Slipway sends to Temporal: inputs, results, signals, updates,
// query answers and the texts of failures. Temporal and its database hold ciphertext only.
//
// A payload is encrypted with AES-256-GCM and a fresh random nonce. The key is a version of the
// secret KeyName, which providers/secrets seals; its id is NAME@VERSION and stands in the payload.
// All processes of an installation share the keys through the database. The newest version
// encrypts, every version decrypts. A payload that is not encrypted is decoded as it is, so that an
// operator can pass plain JSON with Temporal's own tools.
package payloadcodec

import (
	"crypto/cipher"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// The metadata of an encrypted payload, named as in Temporal's samples.
const (
	encoding      = "binary/encrypted"
	metadataKeyID = "encryption-key-id"
)

// ErrCannotDecrypt is in the chain of every error of Decode.
var ErrCannotDecrypt = errors.New("a payload cannot be decrypted")

var _ converter.PayloadCodec = (*Codec)(nil)

// Encrypts reports whether Encode encrypts. A nil Codec does not.
func (c *Codec) Encrypts() bool { return c != nil && c.newest.Load() != nil }

// Encode encrypts each payload with the newest key. It changes nothing when the codec only decodes.
func (c *Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	k := c.newest.Load()
	if k == nil {
		return payloads, nil
	}
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		out[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), metadataKeyID: []byte(k.id())},
			Data:     k.aead.Seal(nil, nil, plain, associated(k.id())),
		}
	}
	return out, nil
}

// Decode decrypts the encrypted payloads and returns the others as they are.
func (c *Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if out[i] = p; string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
			continue
		}
		plain, err := c.decrypt(p)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCannotDecrypt, err)
		}
		out[i] = plain
	}
	return out, nil
}

func (c *Codec) decrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	id := string(p.GetMetadata()[metadataKeyID])
	k, err := c.key(id)
	if err != nil {
		return nil, err
	}
	plain, err := k.aead.Open(nil, nil, p.GetData(), associated(id))
	if err != nil {
		return nil, fmt.Errorf("it does not open with key %s: it was altered, or another installation with a key of that name wrote it; "+
			"check that this process uses the database that belongs to this Temporal namespace", id)
	}
	out := &commonpb.Payload{}
	if err := proto.Unmarshal(plain, out); err != nil {
		return nil, fmt.Errorf("it opens with key %s and holds no payload: %w", id, err)
	}
	return out, nil
}

// associated binds a ciphertext to this format and to the id of its key.
func associated(id string) []byte { return []byte("slipway payload 1\x00" + id) }

// key is an opened payload key.
type key struct {
	version int
	aead    cipher.AEAD
}

func (k *key) id() string { return keyID(k.version) }
