package secrets

import (
	"context"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Store holds sealed secrets. Package db implements it; the parameters are plain
// so that db need not know this package.
type Store interface {
	// PutSecretVersion stores a new version of name and returns its number, from
	// 1 up. When the newest version has the same fingerprint it stores nothing
	// and returns that one's number. Concurrent calls never share a number.
	PutSecretVersion(ctx context.Context, name, keeperURL string, ciphertext, fingerprint []byte) (version int, err error)

	// SecretVersion reads one version, or the newest for version 0. found is
	// false when there is none.
	SecretVersion(ctx context.Context, name string, version int) (gotVersion int, keeperURL string, ciphertext []byte, found bool, err error)

	// DeleteSecret removes every version of name, and its use; absent is success.
	// Numbers may begin again at 1 afterwards.
	DeleteSecret(ctx context.Context, name string) error

	// SecretUse reads what name may be used for. found is false when nobody has stated it.
	SecretUse(ctx context.Context, name string) (use spec.SecretUse, found bool, err error)

	// SiteForAddresses reads the name and the spec of a site.
	SiteForAddresses(ctx context.Context, id string) (name string, site spec.SiteSpec, err error)
}
