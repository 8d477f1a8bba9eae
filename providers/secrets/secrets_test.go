package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

func keyFile(t *testing.T) Keeper {
	t.Helper()
	return Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}
}

func open(t *testing.T, store Store, k Keeper, previous ...Keeper) *Secrets {
	t.Helper()
	s, err := Open(t.Context(), store, k, Options{Previous: previous, Own: []string{"a", "b", "big", "shared", "bmc/rack1-u3", "site-1/maas.key_2", strings.Repeat("n", 200)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func put(t *testing.T, s *Secrets, name, value string) providers.SecretRef {
	t.Helper()
	ref, err := s.Put(t.Context(), name, providers.NewSecret(value))
	require.NoError(t, err)
	return ref
}

func resolve(t *testing.T, s *Secrets, ref providers.SecretRef) string {
	t.Helper()
	v, err := s.Resolve(t.Context(), ref, providers.OwnUse())
	require.NoError(t, err)
	return v.Reveal()
}

func requireKind(t *testing.T, want providers.Kind, err error) {
	t.Helper()
	require.Equal(t, want, providers.KindOf(err), "%v", err)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	s := open(t, &Memory{}, keyFile(t))
	require.Equal(t, providers.SecretRef("bmc/rack1-u3@1"), put(t, s, "bmc/rack1-u3", "one"))
	require.Equal(t, providers.SecretRef("bmc/rack1-u3@1"), put(t, s, "bmc/rack1-u3", "one"), "the newest value again is the same version")
	require.Equal(t, providers.SecretRef("bmc/rack1-u3@2"), put(t, s, "bmc/rack1-u3", "two"))
	require.Equal(t, providers.SecretRef("bmc/rack1-u3@3"), put(t, s, "bmc/rack1-u3", "one"), "an older value again is a new version")
	require.Equal(t, "one", resolve(t, s, "bmc/rack1-u3"))
	require.Equal(t, "two", resolve(t, s, "bmc/rack1-u3@2"))

	_, err := s.Resolve(t.Context(), "bmc/rack1-u3@4", providers.OwnUse())
	requireKind(t, providers.KindNotFound, err)
	require.NoError(t, s.Delete(t.Context(), "bmc/rack1-u3"))
	require.NoError(t, s.Delete(t.Context(), "bmc/rack1-u3"), "absent is success")
	_, err = s.Resolve(t.Context(), "bmc/rack1-u3", providers.OwnUse())
	requireKind(t, providers.KindNotFound, err)
	require.Equal(t, providers.SecretRef("bmc/rack1-u3@1"), put(t, s, "bmc/rack1-u3", "after deletion"))
	require.Equal(t, "after deletion", resolve(t, s, "bmc/rack1-u3"))
}

func TestAnyBytesUpToTheLimit(t *testing.T) {
	t.Parallel()
	s := open(t, &Memory{}, keyFile(t))
	value := strings.Repeat("\xff\x00\"\n", MaxValue/4)
	require.Equal(t, value, resolve(t, s, put(t, s, "big", value)))
	_, err := s.Put(t.Context(), "big", providers.NewSecret(value+"x"))
	requireKind(t, providers.KindInvalid, err)
	_, err = s.Put(t.Context(), "big", providers.Secret{})
	requireKind(t, providers.KindInvalid, err)
}

func TestReferences(t *testing.T) {
	t.Parallel()
	s := open(t, &Memory{}, keyFile(t))
	for _, name := range []string{"a", "site-1/maas.key_2", strings.Repeat("n", 200)} {
		require.Equal(t, "v", resolve(t, s, put(t, s, name, "v")))
	}
	for _, name := range []string{"", "A", "a b", "ä", "a\n", strings.Repeat("n", 201), "_slipway/fingerprint-key", "a@1"} {
		_, err := s.Put(t.Context(), name, providers.NewSecret("v"))
		requireKind(t, providers.KindInvalid, err)
		requireKind(t, providers.KindInvalid, s.Delete(t.Context(), name))
	}
	for _, ref := range []providers.SecretRef{"", "a@", "a@0", "a@-1", "a@+1", "a@01", "a@x", "a@1@2", "a@99999999999999999999", "_slipway/fingerprint-key"} {
		_, err := s.Resolve(t.Context(), ref, providers.OwnUse())
		requireKind(t, providers.KindInvalid, err)
	}
}

func TestNothingInTheStoreTellsTheValue(t *testing.T) {
	t.Parallel()
	store := &Memory{}
	s := open(t, store, keyFile(t))
	put(t, s, "a", "hunter2-hunter2")
	put(t, s, "b", "hunter2-hunter2")
	text := fmt.Sprintf("%s", store.rows)
	require.NotContains(t, text, "hunter2")
	require.NotEqual(t, store.rows["a"][0].fingerprint, store.rows["b"][0].fingerprint, "two names with one value must not look alike")

	// Another installation's fingerprint of the same secret differs: it is keyed.
	other := &Memory{}
	put(t, open(t, other, keyFile(t)), "a", "hunter2-hunter2")
	require.NotEqual(t, store.rows["a"][0].fingerprint, other.rows["a"][0].fingerprint)
}

func TestARowOpensOnlyInItsPlace(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func(*Memory){
		"under another name":  func(m *Memory) { m.rows["b"] = m.rows["a"] },
		"as an older version": func(m *Memory) { m.rows["b"][0] = m.rows["b"][1] },
		"with a changed byte": func(m *Memory) {
			var e envelope
			if json.Unmarshal(m.rows["b"][0].ciphertext, &e) == nil {
				e.Box[len(e.Box)-1] ^= 1
			}
			m.rows["b"][0].ciphertext, _ = json.Marshal(e)
		},
		"with a changed key": func(m *Memory) {
			var e envelope
			if json.Unmarshal(m.rows["b"][0].ciphertext, &e) == nil {
				e.Key[len(e.Key)-1] ^= 1
			}
			m.rows["b"][0].ciphertext, _ = json.Marshal(e)
		},
		"as rubbish": func(m *Memory) { m.rows["b"][0].ciphertext = []byte("{}") },
		"cut":        func(m *Memory) { m.rows["b"][0].ciphertext = m.rows["b"][0].ciphertext[:40] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &Memory{}
			s := open(t, store, keyFile(t))
			put(t, s, "a", "value of a")
			put(t, s, "b", "value of b")
			put(t, s, "b", "second of b")
			tamper(store)
			_, err := s.Resolve(t.Context(), "b@1", providers.OwnUse())
			requireKind(t, providers.KindProtocol, err)
			require.NotContains(t, err.Error(), "value of")
		})
	}
}

func TestPutSupersedesARowThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	store := &Memory{}
	s := open(t, store, keyFile(t))
	put(t, s, "a", "value")
	store.rows["a"][0].ciphertext = []byte("{}")
	require.Equal(t, providers.SecretRef("a@2"), put(t, s, "a", "value"), "the fingerprint of the damaged row must not win")
	require.Equal(t, "value", resolve(t, s, "a"))
}

// deletes removes the name between the read and the write of the first Put.
type deletes struct {
	*Memory
	once sync.Once
}

func (d *deletes) PutSecretVersion(ctx context.Context, name, url string, c, f []byte) (int, error) {
	if name == "a" {
		d.once.Do(func() { _ = d.DeleteSecret(ctx, name) })
	}
	return d.Memory.PutSecretVersion(ctx, name, url, c, f)
}

func TestAPutThatADeleteRunsIntoStillResolves(t *testing.T) {
	t.Parallel()
	store := &deletes{Memory: &Memory{}}
	store.once.Do(func() {}) // not yet
	s := open(t, store, keyFile(t))
	put(t, s, "a", "one")
	put(t, s, "a", "two")
	store.once = sync.Once{}
	ref := put(t, s, "a", "three")
	require.Equal(t, "three", resolve(t, s, ref))
	require.Equal(t, "three", resolve(t, s, "a"))
}

func TestConcurrentProcessesAgree(t *testing.T) {
	t.Parallel()
	store, k := &Memory{}, keyFile(t)
	refs := make([]providers.SecretRef, 16)
	errs := make([]error, len(refs))
	var wg sync.WaitGroup
	for i := range refs {
		wg.Go(func() {
			// Each opens for itself: the key file and the fingerprint key are made in a race.
			s, err := Open(t.Context(), store, k, Options{})
			if err == nil {
				refs[i], err = s.Put(t.Context(), "a", providers.NewSecret("value"))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i := range refs {
		require.NoError(t, errs[i])
		require.Equal(t, providers.SecretRef("a@1"), refs[i])
	}
	require.Equal(t, "value", resolve(t, open(t, store, k), "a"))
}

// TestPutFirst_OneValueWins has processes offer different values for a name at once.
func TestPutFirst_OneValueWins(t *testing.T) {
	t.Parallel()
	store, keeper := &Memory{}, keyFile(t)
	values := make([]string, 8)
	var all sync.WaitGroup
	for i := range values {
		s := open(t, store, keeper)
		all.Go(func() {
			assert.NoError(t, s.PutFirst(t.Context(), "shared", providers.NewSecret(fmt.Sprint("value ", i))))
			v, err := s.Resolve(t.Context(), "shared", providers.OwnUse())
			assert.NoError(t, err)
			values[i] = v.Reveal()
		})
	}
	all.Wait()
	for _, v := range values {
		require.Equal(t, values[0], v)
	}
	s := open(t, store, keeper)
	require.Equal(t, providers.SecretRef("shared@2"), put(t, s, "shared", "another"))
	require.NoError(t, s.PutFirst(t.Context(), "shared", providers.NewSecret("too late")))
	require.Equal(t, "another", resolve(t, s, "shared"))
	newest, err := s.Newest(t.Context(), "shared")
	require.NoError(t, err)
	require.Equal(t, 2, newest)
	newest, err = s.Newest(t.Context(), "missing")
	require.NoError(t, err)
	require.Zero(t, newest)
	requireKind(t, providers.KindInvalid, s.PutFirst(t.Context(), "missing", providers.Secret{}))
}

func TestConcurrentValuesAllOpen(t *testing.T) {
	t.Parallel()
	store, k := &Memory{}, keyFile(t)
	s := open(t, store, k)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			value := fmt.Sprint("value ", i)
			ref, err := s.Put(t.Context(), "a", providers.NewSecret(value))
			if err == nil {
				var got providers.Secret
				if got, err = s.Resolve(t.Context(), ref, providers.OwnUse()); err == nil && got.Reveal() != value {
					err = errors.New("another value came back for " + string(ref))
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

func TestKeeperChange(t *testing.T) {
	t.Parallel()
	store, before, after := &Memory{}, keyFile(t), keyFile(t)
	put(t, open(t, store, before), "a", "one")

	_, err := open(t, store, after).Resolve(t.Context(), "a", providers.OwnUse())
	requireKind(t, providers.KindInvalid, err)
	require.ErrorContains(t, err, "previous keepers")

	s := open(t, store, after, before)
	require.Equal(t, "one", resolve(t, s, "a"))
	require.Equal(t, "two", resolve(t, s, put(t, s, "a", "two")))
	require.NotEqual(t, store.rows["a"][0].keeperURL, store.rows["a"][1].keeperURL)

	_, err = Open(t.Context(), store, after, Options{Previous: []Keeper{keyFile(t)}})
	requireKind(t, providers.KindInvalid, err)
}

func TestARowCannotChooseItsKeeper(t *testing.T) {
	t.Parallel()
	store := &Memory{}
	s := open(t, store, keyFile(t))
	put(t, s, "a", "value")
	store.rows["a"][0].keeperURL = "base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4="
	_, err := s.Resolve(t.Context(), "a", providers.OwnUse())
	requireKind(t, providers.KindInvalid, err)
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	k := keyFile(t)
	open(t, &Memory{}, k)
	info, err := os.Stat(k.KeyFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(k.KeyFile))
	require.NoError(t, err)
	require.Len(t, left, 1, "the temporary file must be gone")

	require.NoError(t, os.Chmod(k.KeyFile, 0o640))
	_, err = Open(t.Context(), &Memory{}, k, Options{})
	requireKind(t, providers.KindInvalid, err)
	require.ErrorContains(t, err, "chmod 600")

	require.NoError(t, os.Chmod(k.KeyFile, 0o600))
	require.NoError(t, os.WriteFile(k.KeyFile, []byte("c2hvcnQ="), 0o600))
	_, err = Open(t.Context(), &Memory{}, k, Options{})
	requireKind(t, providers.KindInvalid, err)
	require.NotContains(t, err.Error(), "c2hvcnQ=")

	_, err = Open(t.Context(), &Memory{}, Keeper{KeyFile: filepath.Join(t.TempDir(), "no", "folder")}, Options{})
	requireKind(t, providers.KindInvalid, err)
	_, err = Open(t.Context(), &Memory{}, Keeper{}, Options{})
	requireKind(t, providers.KindInvalid, err)
}

func TestKeeperURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4=", // a key in the URL
		"ftp://x", "nonsense", "hashivault://user:pw@x", "://",
	} {
		_, err := Open(t.Context(), &Memory{}, Keeper{URL: url, KeyFile: keyFile(t).KeyFile}, Options{})
		requireKind(t, providers.KindInvalid, err)
		require.NotContains(t, err.Error(), "smGbjm")
		require.NotContains(t, err.Error(), "pw")
	}
}

type brokenStore struct{ Store }

func (brokenStore) SecretVersion(context.Context, string, int) (int, string, []byte, bool, error) {
	return 0, "", nil, false, errors.New("dial postgres://slipway:hunter2@db")
}

func TestAStoreFailureIsUnavailableAndQuiet(t *testing.T) {
	t.Parallel()
	s := open(t, brokenStore{&Memory{}}, keyFile(t))
	_, err := s.Resolve(t.Context(), "a", providers.OwnUse())
	requireKind(t, providers.KindUnavailable, err)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = s.Put(t.Context(), "a", providers.NewSecret("v"))
	requireKind(t, providers.KindUnavailable, err)
}

func TestRevealedValuesAreToldToTheRedactor(t *testing.T) {
	t.Parallel()
	var told []string
	s, err := Open(t.Context(), &Memory{}, keyFile(t), Options{Own: []string{"a"}, OnReveal: func(_ context.Context, v string) { told = append(told, v) }})
	require.NoError(t, err)
	resolve(t, s, put(t, s, "a", "value"))
	require.Equal(t, []string{"value", "value"}, told)
}
