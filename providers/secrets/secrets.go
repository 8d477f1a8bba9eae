package secrets

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	opResolve = "secrets.resolve"
	opPut     = "secrets.put"
	opDelete  = "secrets.delete"
)

// Secrets implements providers.Secrets over a Store. It is safe for concurrent
// use, and any number of processes may share one Store.
type Secrets struct {
	store     Store
	current   *sealer
	byURL     map[string]*sealer
	onReveal  func(ctx context.Context, value string)
	own       []string
	protected []string
	resolver  providers.Resolver
	ownNames  lookups // of protected
	copies    string  // the folder of KeepCopy; "" with a keeper that has no key file

	mu     sync.Mutex
	macKey []byte // read from the store at the first Put
}

var _ providers.Secrets = (*Secrets)(nil)

// Options are what Open can do beside its keeper.
type Options struct {
	// Previous keepers still open what they sealed; nothing new is sealed with
	// them. Needed while versions from before a change of keeper are in use.
	Previous []Keeper
	// OnReveal is called with every value that Resolve returns and Put takes, so
	// that a log redactor knows it while the call of ctx uses it. It may be nil.
	OnReveal func(ctx context.Context, value string)
	// Own are names beside the reserved ones that only Slipway itself reads.
	Own []string
	// Protected are the control plane's own services as host:port, to which nothing is ever sent.
	// An empty host stands for every address of this machine.
	Protected []string
	// Resolver resolves the names in addresses; nil is the system's.
	Resolver providers.Resolver
}

// Open opens the keepers. It makes the key file of a local keeper when that is
// missing, but never that of a previous one: without its key it is of no use.
func Open(ctx context.Context, store Store, keeper Keeper, o Options) (*Secrets, error) {
	current, err := openKeeper(ctx, keeper)
	if err != nil {
		return nil, err
	}
	s := &Secrets{store: store, current: current, byURL: map[string]*sealer{current.url: current}, onReveal: o.OnReveal,
		own: o.Own, protected: o.Protected, resolver: o.Resolver}
	if s.resolver == nil {
		s.resolver = net.DefaultResolver
	}
	if current.local {
		s.copies = keeper.KeyFile + copiesSuffix
	}
	for _, k := range o.Previous {
		previous, err := openPrevious(ctx, k)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if _, twice := s.byURL[previous.url]; twice {
			_ = previous.keeper.Close()
			continue
		}
		s.byURL[previous.url] = previous
	}
	return s, nil
}

// Close ends the connections of the keepers.
func (s *Secrets) Close() error {
	var errs []error
	for _, k := range s.byURL {
		errs = append(errs, k.keeper.Close())
	}
	return errors.Join(errs...)
}

// Resolve implements providers.Secrets. It is the one place where a reference becomes a value.
// Errors beside KindNotFound: KindInvalid (the reference, the use, the address, or a keeper that is
// not configured), KindUnreachable (a name that does not resolve), KindUnavailable (store or
// keeper), KindForbidden (keeper), KindProtocol (the stored row was altered).
func (s *Secrets) Resolve(ctx context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	name, version, err := parseRef(opResolve, ref)
	if err != nil {
		return providers.Secret{}, err
	}
	if _, err := s.AddressRule(ctx, ref, use); err != nil {
		return providers.Secret{}, err
	}
	value, _, err := s.read(ctx, opResolve, name, version)
	if err != nil {
		return providers.Secret{}, err
	}
	s.reveal(ctx, string(value))
	return providers.NewSecret(string(value)), nil
}

// Put implements providers.Secrets. It may be repeated: the value that is newest
// already gives the version it has. A newest version that no longer opens is
// superseded.
func (s *Secrets) Put(ctx context.Context, name string, value providers.Secret) (providers.SecretRef, error) {
	for range putAttempts {
		sealed, err := s.Seal(ctx, name, value)
		if err != nil {
			return "", err
		}
		if sealed.IsStored {
			return versionedRef(name, sealed.Newest), nil
		}
		version, err := s.store.PutSecretVersion(ctx, name, sealed.KeeperURL, sealed.Ciphertext, sealed.Fingerprint)
		if err != nil {
			return "", storeFailure(opPut, err)
		}
		// Otherwise the name was deleted in between, and the value would not open.
		if version > sealed.Newest {
			return versionedRef(name, version), nil
		}
	}
	return "", failure(providers.KindBusy, opPut, nil, "secret %s is being deleted and put at the same time; put it again", name)
}

// putAttempts bounds the repeats of a Put that a Delete ran into.
const putAttempts = 3

// Seal implements providers.Secrets.
func (s *Secrets) Seal(ctx context.Context, name string, value providers.Secret) (providers.SealedSecret, error) {
	out := providers.SealedSecret{Name: name, KeeperURL: s.current.url}
	if err := checkName(opPut, name); err != nil {
		return out, err
	}
	if value.IsZero() || len(value.Reveal()) > MaxValue {
		return out, failure(providers.KindInvalid, opPut, nil, "the value of secret %s must have 1 to %d bytes", name, MaxValue)
	}
	s.reveal(ctx, value.Reveal())
	fingerprint, err := s.fingerprint(ctx, name, value.Reveal())
	if err != nil {
		return out, err
	}
	var current []byte
	current, out.Newest, err = s.read(ctx, opPut, name, 0)
	switch {
	case err == nil && string(current) == value.Reveal():
		out.IsStored = true
		return out, nil
	case err == nil, providers.IsKind(err, providers.KindNotFound):
	case providers.IsKind(err, providers.KindProtocol), providers.IsKind(err, providers.KindInvalid):
		// It does not open, yet it may have this value's fingerprint; another one
		// keeps the store from answering with the number of the useless row.
		if fingerprint, err = s.fingerprint(ctx, name, value.Reveal()+"\x00"+rand.Text()); err != nil {
			return out, err
		}
	default:
		return out, err
	}
	out.Fingerprint = fingerprint
	out.Ciphertext, err = s.current.seal(ctx, opPut, name, out.Newest, []byte(value.Reveal()))
	return out, err
}

// Delete implements providers.Secrets.
func (s *Secrets) Delete(ctx context.Context, name string) error {
	if err := checkName(opDelete, name); err != nil {
		return err
	}
	if err := s.store.DeleteSecret(ctx, name); err != nil {
		return storeFailure(opDelete, err)
	}
	return nil
}

// read fetches and opens one row. The version is known also when a row was found
// that does not open.
func (s *Secrets) read(ctx context.Context, op, name string, version int) ([]byte, int, error) {
	got, keeperURL, sealed, found, err := s.store.SecretVersion(ctx, name, version)
	if err != nil {
		return nil, 0, storeFailure(op, err)
	}
	if !found {
		if version == 0 {
			return nil, 0, failure(providers.KindNotFound, op, nil, "there is no secret %s; put it first", name)
		}
		return nil, 0, failure(providers.KindNotFound, op, nil, "secret %s has no version %d", name, version)
	}
	keeper, known := s.byURL[keeperURL]
	if !known {
		return nil, got, failure(providers.KindInvalid, op, nil,
			"version %d of secret %s was sealed by keeper %q, which is not configured; name it among the previous keepers", got, name, keeperURL)
	}
	value, err := keeper.open(ctx, op, name, got, sealed)
	return value, got, err
}

// fingerprint is the keyed hash that tells whether a value is already newest.
func (s *Secrets) fingerprint(ctx context.Context, name, value string) ([]byte, error) {
	key, err := s.fingerprintKey(ctx)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(name + "\x00" + value)) // a name holds no NUL
	return mac.Sum(nil), nil
}

// fingerprintKey reads the key that all processes share, and makes it the first
// time. Every maker offers the same fingerprint, so the store keeps the first
// one's row and gives its number to all.
func (s *Secrets) fingerprintKey(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.macKey != nil {
		return s.macKey, nil
	}
	key, _, err := s.read(ctx, opPut, fingerprintKeyName, 0)
	if providers.IsKind(err, providers.KindNotFound) {
		made := make([]byte, 32)
		_, _ = rand.Read(made) // it never fails
		if err := s.putFirst(ctx, fingerprintKeyName, made); err != nil {
			return nil, err
		}
		key, _, err = s.read(ctx, opPut, fingerprintKeyName, 0)
	}
	if err != nil {
		return nil, err
	}
	s.macKey = key
	return key, nil
}

// PutFirst stores value as version 1 of name. It does nothing when the name has a version already.
// Of several processes that call it at once with different values, one decides the value of
// version 1; all of them read it afterwards.
func (s *Secrets) PutFirst(ctx context.Context, name string, value providers.Secret) error {
	newest, err := s.Newest(ctx, name)
	if err != nil || newest > 0 {
		return err
	}
	if value.IsZero() || len(value.Reveal()) > MaxValue {
		return failure(providers.KindInvalid, opPut, nil, "the value of secret %s must have 1 to %d bytes", name, MaxValue)
	}
	s.reveal(ctx, value.Reveal())
	return s.putFirst(ctx, name, []byte(value.Reveal()))
}

// putFirst stores version 1 of a name that has none. Every caller offers the same fingerprint, so
// the store keeps the row of the first and gives its number to all.
func (s *Secrets) putFirst(ctx context.Context, name string, value []byte) error {
	sealed, err := s.current.seal(ctx, opPut, name, 0, value)
	if err != nil {
		return err
	}
	same := sha256.Sum256([]byte(name))
	if _, err := s.store.PutSecretVersion(ctx, name, s.current.url, sealed, same[:]); err != nil {
		return storeFailure(opPut, err)
	}
	return nil
}

// Newest returns the number of the newest version of name, 0 when there is none. It does not ask
// the keeper.
func (s *Secrets) Newest(ctx context.Context, name string) (int, error) {
	if err := checkName(opResolve, name); err != nil {
		return 0, err
	}
	version, _, _, _, err := s.store.SecretVersion(ctx, name, 0)
	if err != nil {
		return 0, storeFailure(opResolve, err)
	}
	return version, nil
}

func (s *Secrets) reveal(ctx context.Context, value string) {
	if s.onReveal != nil {
		s.onReveal(ctx, value)
	}
}

// storeFailure hides the database's words, which may repeat parameters.
func storeFailure(op string, err error) error {
	return failure(providers.KindUnavailable, op, err, "the secret store did not answer")
}

func failure(kind providers.Kind, op string, cause error, format string, args ...any) error {
	return &providers.Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...), Err: cause}
}
