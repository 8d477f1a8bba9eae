package payloadcodec

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// countedStore counts how often a secret is opened, and fails when it is told to.
type countedStore struct {
	*secrets.Secrets
	mu      sync.Mutex
	opened  int
	failure error
}

func (s *countedStore) Resolve(ctx context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	if s.failure != nil {
		return providers.Secret{}, s.failure
	}
	return s.Secrets.Resolve(ctx, ref, use)
}

// newInstallation returns what opens the secret store of one installation, once for each process.
func newInstallation(t *testing.T) func() *countedStore {
	t.Helper()
	rows, keeper := &secrets.Memory{}, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}
	return func() *countedStore {
		s, err := secrets.Open(t.Context(), rows, keeper, secrets.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return &countedStore{Secrets: s}
	}
}

func open(t *testing.T, store Store) *Codec {
	t.Helper()
	c, err := Open(t.Context(), store, slog.New(slog.DiscardHandler), false)
	require.NoError(t, err)
	return c
}

func payload(t *testing.T, value any) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return p
}

func encode(t *testing.T, c *Codec, p *commonpb.Payload) *commonpb.Payload {
	t.Helper()
	out, err := c.Encode([]*commonpb.Payload{p})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

func keyOf(p *commonpb.Payload) string { return string(p.Metadata[metadataKeyID]) }

func TestCodec_RoundTrip(t *testing.T) {
	t.Parallel()
	c := open(t, newInstallation(t)())
	for _, value := range []any{map[string]string{"a": "a text to hide"}, []byte{0, 1}, nil, 7} {
		plain := payload(t, value)
		sealed := encode(t, c, plain)
		require.Equal(t, "binary/encrypted", string(sealed.Metadata["encoding"]))
		require.Equal(t, KeyName+"@1", keyOf(sealed))
		require.NotContains(t, sealed.String(), "a text to hide")
		require.NotEqual(t, sealed.Data, encode(t, c, plain).Data, "the nonce is fresh")
		got, err := c.Decode([]*commonpb.Payload{sealed, plain})
		require.NoError(t, err)
		require.True(t, plain.Equal(got[0]))
		require.True(t, plain.Equal(got[1]), "a plain payload is decoded as it is")
	}
}

// TestDecode_Refuses checks that each error says what is wrong and what to do.
func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	installation := newInstallation(t)
	c := open(t, installation())
	elsewhere := encode(t, open(t, newInstallation(t)()), payload(t, "x"))
	change := func(do func(*commonpb.Payload)) *commonpb.Payload {
		p := encode(t, c, payload(t, "x"))
		do(p)
		return p
	}
	name := func(id string) *commonpb.Payload {
		return change(func(p *commonpb.Payload) { p.Metadata[metadataKeyID] = []byte(id) })
	}
	_, err := installation().Put(t.Context(), KeyName+"-other", providers.NewSecret("another secret"))
	require.NoError(t, err)
	_, err = Rotate(t.Context(), installation())
	require.NoError(t, err)
	for want, p := range map[string]*commonpb.Payload{
		"it does not open with key slipway/temporal-payload-key@1": change(func(p *commonpb.Payload) { p.Data[20] ^= 1 }),
		"check that this process uses the database":                elsewhere,
		"it does not open with key slipway/temporal-payload-key@2": name(KeyName + "@2"),
		"restore the database that has it":                         name(KeyName + "@9"),
		"the id of its key is none of Slipway's payload keys":      name(KeyName + "-other@1"),
		"is none of Slipway's payload keys":                        name(KeyName + "@01"),
		"none of Slipway's":                                        name(""),
		"was altered":                                              change(func(p *commonpb.Payload) { p.Data = nil }),
	} {
		_, err := c.Decode([]*commonpb.Payload{p})
		require.ErrorIs(t, err, ErrCannotDecrypt, want)
		require.ErrorContains(t, err, want)
	}
}

func TestOpen_ProcessesAgreeOnOneKey(t *testing.T) {
	t.Parallel()
	installation := newInstallation(t)
	codecs := make([]*Codec, 8)
	var all sync.WaitGroup
	for i := range codecs {
		store := installation()
		all.Go(func() {
			var err error
			codecs[i], err = Open(t.Context(), store, slog.New(slog.DiscardHandler), false)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	for _, writer := range codecs {
		sealed := encode(t, writer, payload(t, "x"))
		require.Equal(t, KeyName+"@1", keyOf(sealed))
		for _, reader := range codecs {
			_, err := reader.Decode([]*commonpb.Payload{sealed})
			require.NoError(t, err)
		}
	}
}

func TestRotate_NewKeyEncryptsOldDecrypts(t *testing.T) {
	t.Parallel()
	installation := newInstallation(t)
	a, b, store := open(t, installation()), open(t, installation()), installation()
	old := encode(t, a, payload(t, "x"))
	id, err := Rotate(t.Context(), store)
	require.NoError(t, err)
	require.Equal(t, KeyName+"@2", id)
	require.Equal(t, KeyName+"@1", keyOf(encode(t, a, payload(t, "x"))), "no process asks for each payload")
	require.NoError(t, a.Refresh(t.Context()))
	sealed := encode(t, a, payload(t, "x"))
	require.Equal(t, id, keyOf(sealed))
	_, err = b.Decode([]*commonpb.Payload{sealed})
	require.NoError(t, err, "another process looks the new key up")
	require.Equal(t, id, keyOf(encode(t, b, payload(t, "x"))), "and encrypts with it from then on")
	_, err = open(t, store).Decode([]*commonpb.Payload{old, sealed})
	require.NoError(t, err, "a process that starts later reads both")
}

func TestCodec_KeeperIsAskedOnceForEachKey(t *testing.T) {
	t.Parallel()
	installation := newInstallation(t)
	store := installation()
	c := open(t, store)
	for range 50 {
		_, err := c.Decode([]*commonpb.Payload{encode(t, c, payload(t, "x"))})
		require.NoError(t, err)
	}
	require.Equal(t, 1, store.opened)
}

// TestOpen_KeyThatCannotBeRead checks that a process does not start without the key it needs.
func TestOpen_KeyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := newInstallation(t)()
	sealed := encode(t, open(t, store), payload(t, "x"))
	log := slog.New(slog.DiscardHandler)

	_, err := store.Put(t.Context(), KeyName, providers.NewSecret("typed by hand"))
	require.NoError(t, err)
	_, err = Open(t.Context(), store, log, false)
	require.ErrorContains(t, err, "make a new version with `slipwayd payload-key rotate`")
	_, err = Rotate(t.Context(), store)
	require.NoError(t, err)
	_, err = open(t, store).Decode([]*commonpb.Payload{sealed})
	require.NoError(t, err)

	store.failure = errors.New("the keeper does not answer")
	_, err = Open(t.Context(), store, log, false)
	require.ErrorIs(t, err, store.failure)
}

// TestOpen_DecodeOnly checks the codec of an installation that has stopped encrypting.
func TestOpen_DecodeOnly(t *testing.T) {
	t.Parallel()
	store := newInstallation(t)()
	log := slog.New(slog.DiscardHandler)
	c, err := Open(t.Context(), store, log, true)
	require.NoError(t, err)
	require.False(t, c.Encrypts())
	newest, err := store.Newest(t.Context(), KeyName)
	require.NoError(t, err)
	require.Zero(t, newest, "it creates no key")
	plain := payload(t, "x")
	require.True(t, plain.Equal(encode(t, c, plain)))
	_, err = c.Decode([]*commonpb.Payload{encode(t, open(t, store), plain)})
	require.NoError(t, err, "what was encrypted before, or by another process, stays readable")
	require.False(t, c.Encrypts())
}

// A keeper of another installation must not seal the newest key: no process could start afterwards.
func TestRotate_RefusesAnotherKeeper(t *testing.T) {
	t.Parallel()
	memory := &secrets.Memory{}
	open := func(name string) *secrets.Secrets {
		s, err := secrets.Open(t.Context(), memory, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), name)}, secrets.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	running := open("running")
	_, err := Open(t.Context(), running, slog.New(slog.DiscardHandler), false)
	require.NoError(t, err)
	_, err = Rotate(t.Context(), open("another"))
	require.ErrorContains(t, err, "cannot be opened here")
	newest, err := running.Newest(t.Context(), KeyName)
	require.NoError(t, err)
	require.Equal(t, 1, newest)
}
