package identity

import (
	"crypto/rand"
	"crypto/rsa"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const keyBits = 2048

// signingKey is the key of a provider; publicKey is what it publishes of it.
type signingKey struct {
	id      string
	private *rsa.PrivateKey
}

type publicKey struct{ signingKey }

var (
	_ op.SigningKey = signingKey{}
	_ op.Key        = publicKey{}
)

func newSigningKey() (signingKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	return signingKey{id: rand.Text(), private: key}, err
}

func (k signingKey) ID() string                                  { return k.id }
func (k signingKey) Key() any                                    { return k.private }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

func (k publicKey) Key() any                           { return k.private.Public() }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
