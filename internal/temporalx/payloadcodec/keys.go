package payloadcodec

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// KeyName is the secret whose versions are the payload keys.
const KeyName = "slipway/temporal-payload-key"

const (
	keySize = 32
	// lookupLimit bounds the search for a key that another process made. It is shorter than the ten
	// seconds that the server gives a workflow task.
	lookupLimit = 5 * time.Second
	// refreshEvery is how often a process looks for a newer key.
	refreshEvery = time.Minute
)

// Store keeps the keys; providers/secrets implements it.
type Store interface {
	Newest(ctx context.Context, name string) (version int, err error)
	PutFirst(ctx context.Context, name string, value providers.Secret) error
	Put(ctx context.Context, name string, value providers.Secret) (providers.SecretRef, error)
	Resolve(ctx context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error)
}

// Codec is the payload codec of one process. It keeps opened keys in memory, so that neither the
// database nor the keeper is asked for each payload. It is safe for concurrent use.
type Codec struct {
	store  Store
	log    *slog.Logger
	newest atomic.Pointer[key] // nil when the codec only decodes
	opened sync.Map            // version to *key
	lookup sync.Mutex          // one search at a time
}

// Open reads all keys and returns a codec. It creates the first key when there is none; of several
// processes that do so at once, all end up with the same key. With decodeOnly the codec encrypts
// nothing and creates no key. An older key that cannot be read is logged; it is an error of the
// payloads that need it.
func Open(ctx context.Context, store Store, log *slog.Logger, decodeOnly bool) (*Codec, error) {
	c := &Codec{store: store, log: log}
	newest, err := store.Newest(ctx, KeyName)
	if err == nil && newest == 0 && !decodeOnly {
		if err = store.PutFirst(ctx, KeyName, newKey()); err == nil {
			newest, err = store.Newest(ctx, KeyName)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("payload key: %w", err)
	}
	for version := 1; version <= newest; version++ {
		k, err := c.read(ctx, version)
		switch {
		case err == nil:
			c.opened.Store(version, k)
		case version < newest || decodeOnly:
			log.Warn("a payload key cannot be read; workflows whose payloads need it will wait", "key", keyID(version), "error", err)
		default:
			return nil, err
		}
		if version == newest && !decodeOnly {
			c.newest.Store(k)
		}
	}
	return c, nil
}

// Rotate stores a new key and returns its id. Running processes encrypt with it within a minute,
// and decrypt what others encrypted with it at once. Older keys stay. It refuses when the newest
// key cannot be opened: this keeper is then not the one of the running processes, and none of them
// could start again with a key that it seals.
func Rotate(ctx context.Context, store Store) (id string, err error) {
	newest, err := store.Newest(ctx, KeyName)
	if err != nil {
		return "", fmt.Errorf("payload key: %w", err)
	}
	if newest > 0 {
		if _, err := store.Resolve(ctx, providers.SecretRef(keyID(newest)), providers.OwnUse()); err != nil {
			return "", fmt.Errorf("payload key %s cannot be opened here, so no new one is made; run this with the secrets settings of the running processes: %w", keyID(newest), err)
		}
	}
	ref, err := store.Put(ctx, KeyName, newKey())
	return string(ref), err
}

// ReplaceLost stores a new key where the newest one cannot be opened, because the key that sealed
// it is lost. Payloads that were encrypted with a lost key stay unreadable. It reports whether it
// did.
func ReplaceLost(ctx context.Context, store interface {
	ReplaceLost(ctx context.Context, name string, value providers.Secret) (bool, error)
}) (bool, error) {
	replaced, err := store.ReplaceLost(ctx, KeyName, newKey())
	if err != nil {
		return false, fmt.Errorf("payload key: %w", err)
	}
	return replaced, nil
}

// RefreshKeys looks for a newer key every minute until ctx ends.
func (c *Codec) RefreshKeys(ctx context.Context) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.Refresh(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("the newest payload key could not be read; the one before stays in use", "error", err)
			}
		}
	}
}

// Refresh makes the newest key in the store the one that encrypts.
func (c *Codec) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	version, err := c.store.Newest(ctx, KeyName)
	if err != nil || version == 0 {
		return err
	}
	_, err = c.open(ctx, version)
	return err
}

// key returns the key with an id. It looks an unknown one up in the store: another process may have
// made it.
func (c *Codec) key(id string) (*key, error) {
	version, err := keyVersion(id)
	if err != nil {
		return nil, err
	}
	if k, ok := c.opened.Load(version); ok {
		return k.(*key), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupLimit) // the converter has no context
	defer cancel()
	return c.open(ctx, version)
}

// open returns a key and keeps it. A key that is newer than the key that encrypts replaces it.
func (c *Codec) open(ctx context.Context, version int) (*key, error) {
	c.lookup.Lock()
	defer c.lookup.Unlock()
	if k, ok := c.opened.Load(version); ok {
		return k.(*key), nil
	}
	k, err := c.read(ctx, version)
	if err != nil {
		return nil, err
	}
	c.opened.Store(version, k)
	if now := c.newest.Load(); now != nil && now.version < version {
		c.newest.Store(k)
	}
	return k, nil
}

func (c *Codec) read(ctx context.Context, version int) (*key, error) {
	id := keyID(version)
	value, err := c.store.Resolve(ctx, providers.SecretRef(id), providers.OwnUse())
	switch {
	case providers.IsKind(err, providers.KindNotFound):
		return nil, fmt.Errorf("payload key %s is not in the secret store: restore the database that has it, and its keeper's key", id)
	case err != nil:
		return nil, fmt.Errorf("payload key %s cannot be read: %w", id, err)
	}
	raw, err := base64.StdEncoding.DecodeString(value.Reveal())
	if err != nil || len(raw) != keySize {
		return nil, fmt.Errorf("secret %s holds no payload key; make a new version with `slipwayd payload-key rotate`", id)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &key{version, aead}, err
}

func newKey() providers.Secret {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // it never fails
	return providers.NewSecret(base64.StdEncoding.EncodeToString(raw))
}

func keyID(version int) string { return KeyName + "@" + strconv.Itoa(version) }

// keyVersion parses a key's id. It accepts no other secret's name: whoever can write to Temporal
// chooses the text.
func keyVersion(id string) (int, error) {
	number, ok := strings.CutPrefix(id, KeyName+"@")
	version, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil || keyID(int(version)) != id {
		return 0, errors.New("the id of its key is none of Slipway's payload keys")
	}
	return int(version), nil
}
