package secrets

import (
	"context"
	"crypto/rand"

	"github.com/slipway-cloud/slipway/providers"
)

// IsLost reports whether the newest version of name is there and cannot be opened with the keepers
// of the configuration. It returns an error where that is not known: the store or a keeper is away,
// or does not let this process use its key.
func (s *Secrets) IsLost(ctx context.Context, name string) (bool, error) {
	if err := checkName(opResolve, name); err != nil {
		return false, err
	}
	lost, _, err := s.findLost(ctx, name)
	return lost, err
}

// findLost is IsLost, which returns the number of the newest version too.
func (s *Secrets) findLost(ctx context.Context, name string) (lost bool, newest int, err error) {
	_, newest, err = s.read(ctx, opResolve, name, 0)
	switch {
	case err == nil, providers.IsKind(err, providers.KindNotFound):
		return false, newest, nil
	case providers.IsKind(err, providers.KindProtocol), providers.IsKind(err, providers.KindInvalid):
		return true, newest, nil
	}
	return false, newest, err
}

// ReplaceLost stores value as the next version of name where the newest one is lost, as IsLost
// says. It reports whether it did. It replaces the store's own key too, without which nothing can
// be put. One caller at a time: of two, both may store a version.
func (s *Secrets) ReplaceLost(ctx context.Context, name string, value providers.Secret) (bool, error) {
	if err := checkName(opPut, name); err != nil {
		return false, err
	}
	own := make([]byte, 32)
	_, _ = rand.Read(own) // it never fails
	if _, err := s.replaceLost(ctx, fingerprintKeyName, own); err != nil {
		return false, err
	}
	if value.IsZero() || len(value.Reveal()) > MaxValue {
		return false, failure(providers.KindInvalid, opPut, nil, "the value of secret %s must have 1 to %d bytes", name, MaxValue)
	}
	s.reveal(ctx, value.Reveal())
	return s.replaceLost(ctx, name, []byte(value.Reveal()))
}

func (s *Secrets) replaceLost(ctx context.Context, name string, value []byte) (bool, error) {
	lost, newest, err := s.findLost(ctx, name)
	if err != nil || !lost {
		return false, err
	}
	sealed, err := s.current.seal(ctx, opPut, name, newest, value)
	if err != nil {
		return false, err
	}
	if _, err := s.store.PutSecretVersion(ctx, name, s.current.url, sealed, []byte(rand.Text())); err != nil {
		return false, storeFailure(opPut, err)
	}
	return true, nil
}
