package db

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// PutSecretVersion stores a sealed value as the newest version of a name and
// returns its number, from 1. When the newest version has this fingerprint,
// that one's number is returned and nothing is stored.
func (s *Store) PutSecretVersion(ctx context.Context, name, keeperURL string, ciphertext, fingerprint []byte) (version int, err error) {
	err = s.Tx(ctx, func(tx *Tx) (err error) {
		version, err = tx.PutSecretVersion(ctx, name, keeperURL, ciphertext, fingerprint)
		return err
	})
	return version, err
}

// PutSecretVersion is Store.PutSecretVersion in a transaction with other rows.
func (tx *Tx) PutSecretVersion(ctx context.Context, name, keeperURL string, ciphertext, fingerprint []byte) (int, error) {
	what := "secret " + name
	if err := tx.q.Lock(ctx, "slipway:secret:"+name); err != nil {
		return 0, MapError(what, err)
	}
	newest, err := tx.q.NewestSecret(ctx, name)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, MapError(what, err)
	}
	if err == nil && bytes.Equal(newest.Fingerprint, fingerprint) {
		return newest.Version, nil
	}
	version := newest.Version + 1
	return version, MapError(what, tx.q.InsertSecretVersion(ctx, gen.InsertSecretVersionParams{
		Name: name, Version: version, KeeperURL: keeperURL, Ciphertext: ciphertext, Fingerprint: fingerprint,
	}))
}

// SecretVersion reads one version of a name; version 0 is the newest.
func (s statements) SecretVersion(ctx context.Context, name string, version int) (gotVersion int, keeperURL string, ciphertext []byte, found bool, err error) {
	var row gen.SecretVersion
	if version == 0 {
		row, err = s.q.NewestSecret(ctx, name)
	} else {
		row, err = s.q.SecretVersion(ctx, gen.SecretVersionParams{Name: name, Version: version})
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", nil, false, nil
	}
	if err != nil {
		return 0, "", nil, false, MapError("secret "+name, err)
	}
	return row.Version, row.KeeperURL, row.Ciphertext, true, nil
}

// StoredSecret is what may be known of a secret: its name, its newest version,
// how many versions there are, and when the first and the newest were stored.
type StoredSecret = gen.ListSecretsRow

// ListSecrets lists secrets whose name begins with prefix by name, from the one
// after the name given ("" from the first), but for the store's own. limit 0
// means 50; at most 1000.
func (s *Store) ListSecrets(ctx context.Context, prefix, after string, limit int) ([]StoredSecret, error) {
	rows, err := s.q.ListSecrets(ctx, gen.ListSecretsParams{After: after, Prefix: prefix, MaxRows: PageLimit(limit)})
	return rows, MapError("list secrets", err)
}

// DeleteSecret deletes every version of a name, and its use; absent is success.
func (s *Store) DeleteSecret(ctx context.Context, name string) error {
	return s.Tx(ctx, func(tx *Tx) error {
		_, err := tx.q.DeleteSecret(ctx, name)
		return MapError("secret "+name, errors.Join(err, tx.q.DeleteSecretUse(ctx, name)))
	})
}

// SecretUse reads what a secret may be used for; found is false when nobody has stated it.
func (s statements) SecretUse(ctx context.Context, name string) (use spec.SecretUse, found bool, err error) {
	use, err = s.q.SecretUse(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return spec.SecretUse{}, false, nil
	}
	return use, err == nil, MapError("use of secret "+name, err)
}

// SetSecretUse states what a secret may be used for, before or after it is stored. It reports
// whether that was a change.
func (s statements) SetSecretUse(ctx context.Context, name string, use spec.SecretUse) (changed bool, err error) {
	n, err := s.q.SetSecretUse(ctx, gen.SetSecretUseParams{Name: name, Use: use})
	return n > 0, MapError("use of secret "+name, err)
}

// SiteForAddresses reads the name and the spec of a site, whose networks bound where its logins may
// be sent.
func (s statements) SiteForAddresses(ctx context.Context, id string) (name string, site spec.SiteSpec, err error) {
	row, err := s.Site(ctx, id)
	return row.Name, row.Spec, err
}
