package privileged

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
)

// plane makes the keys of a control plane, each signed by the one before it,
// which counts for another hour.
type plane struct {
	keys    []protocol.TaskKey
	private []ed25519.PrivateKey
}

func newPlane(t *testing.T, generations int) *plane {
	t.Helper()
	p := &plane{}
	for range generations {
		p.rotate(t, time.Hour)
	}
	return p
}

func (p *plane) rotate(t *testing.T, overlap time.Duration) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	n := len(p.keys)
	k := protocol.TaskKey{KeyID: fmt.Sprintf("k%d", n+1), Public: pub, Generation: int64(n + 1)}
	if n > 0 {
		until := time.Now().Add(overlap).UTC().Truncate(time.Microsecond)
		p.keys[n-1].Until = &until
		k.Link = &protocol.KeyLink{PreviousKeyID: p.keys[n-1].KeyID, PreviousUntil: until}
		k.Link.Signature = ed25519.Sign(p.private[n-1], taskkeys.Message(k))
	}
	p.keys, p.private = append(p.keys, k), append(p.private, key)
}

func keyFile(t *testing.T) *KeyFile {
	t.Helper()
	return &KeyFile{Path: filepath.Join(t.TempDir(), "etc", "task-keys.json")}
}

func believed(t *testing.T, k *KeyFile) []string {
	t.Helper()
	keys, err := (&KeyFile{Path: k.Path}).Load() // as a restarted process
	require.NoError(t, err)
	var out []string
	for _, one := range taskkeys.Valid(keys, time.Now()) {
		out = append(out, one.KeyID)
	}
	return out
}

func TestKeysAreBelievedFromRootOnly(t *testing.T) {
	t.Parallel()
	k := keyFile(t)
	keys, err := k.Load()
	require.NoError(t, err)
	require.Empty(t, keys)
	require.NoError(t, k.Adopt(nil))
	require.NoFileExists(t, k.Path)
	p := newPlane(t, 1)
	require.NoError(t, k.Adopt(p.keys))
	require.NoError(t, k.Adopt(p.keys))
	require.Equal(t, []string{"k1"}, believed(t, k))

	require.NoError(t, os.Chmod(k.Path, 0o666))
	_, err = k.Load()
	require.ErrorContains(t, err, "nobody else may write")
	require.ErrorContains(t, k.Adopt(p.keys), "nobody else may write")
	require.NoError(t, os.Chmod(k.Path, 0o600))
	require.NoError(t, os.WriteFile(k.Path, []byte("{"), 0o600))
	_, err = k.Load()
	require.ErrorContains(t, err, "damaged")
}

func TestKeys_NewKeySignedByOldIsAccepted(t *testing.T) {
	t.Parallel()
	k, p := keyFile(t), newPlane(t, 1)
	require.NoError(t, k.Adopt(p.keys))
	p.rotate(t, time.Hour)
	require.NoError(t, k.Adopt(p.keys))
	require.Equal(t, []string{"k1", "k2"}, believed(t, k), "both count within the overlap")
	p.rotate(t, time.Hour)
	p.rotate(t, 0) // k3 was stolen: nothing older counts from now on
	require.NoError(t, k.Adopt(p.keys), "a node that was away follows over several generations")
	require.Equal(t, []string{"k4"}, believed(t, k))
	require.NoError(t, k.Adopt(p.keys[2:]), "the list may begin late")
	late := keyFile(t)
	require.NoError(t, late.Adopt(p.keys[2:]))
	require.Equal(t, []string{"k4"}, believed(t, late))
}

func TestWhatIsNotSignedByTheChainIsRefused(t *testing.T) {
	t.Parallel()
	evil := newPlane(t, 3)
	for name, c := range map[string]struct {
		want   error
		change func(keys []protocol.TaskKey) []protocol.TaskKey
	}{
		"no signature":    {taskkeys.ErrUnsigned, func(k []protocol.TaskKey) []protocol.TaskKey { k[2].Link = nil; return k }},
		"wrong signature": {taskkeys.ErrUnsigned, func(k []protocol.TaskKey) []protocol.TaskKey { k[2].Link.Signature[0] ^= 1; return k }},
		"longer overlap": {taskkeys.ErrUnsigned, func(k []protocol.TaskKey) []protocol.TaskKey {
			k[2].Link.PreviousUntil = time.Now().AddDate(9, 0, 0)
			return k
		}},
		"another key": {taskkeys.ErrUnsigned, func(k []protocol.TaskKey) []protocol.TaskKey {
			k[2].Public = evil.keys[2].Public
			return k
		}},
		"signed by a key that is not the newest": {taskkeys.ErrUnsigned, func(k []protocol.TaskKey) []protocol.TaskKey {
			k[2].Link.PreviousKeyID = "k1"
			return k
		}},
		"a chain of somebody else": {taskkeys.ErrOther, func([]protocol.TaskKey) []protocol.TaskKey { return evil.keys }},
		"going back":               {taskkeys.ErrOlder, func(k []protocol.TaskKey) []protocol.TaskKey { return k[:1] }},
		"a gap":                    {taskkeys.ErrGap, func(k []protocol.TaskKey) []protocol.TaskKey { k[2].Generation = 7; return k }},
		"no generation":            {taskkeys.ErrOther, func(k []protocol.TaskKey) []protocol.TaskKey { k[2].Generation = 0; return k }},
		"one generation twice":     {taskkeys.ErrOther, func(k []protocol.TaskKey) []protocol.TaskKey { return append(k, k[2]) }},
		"no key":                   {taskkeys.ErrOther, func(k []protocol.TaskKey) []protocol.TaskKey { k[2].Public = []byte("x"); return k }},
		"too many": {taskkeys.ErrOther, func(k []protocol.TaskKey) []protocol.TaskKey {
			return append(k, make([]protocol.TaskKey, taskkeys.Most)...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, p := keyFile(t), newPlane(t, 2)
			require.NoError(t, k.Adopt(p.keys))
			p.rotate(t, time.Hour)
			raw, err := json.Marshal(p.keys)
			require.NoError(t, err)
			var offered []protocol.TaskKey
			require.NoError(t, json.Unmarshal(raw, &offered)) // a copy that may be spoilt
			require.ErrorIs(t, k.Adopt(c.change(offered)), c.want)
			require.Equal(t, []string{"k1", "k2"}, believed(t, k))
			require.NoError(t, k.Adopt(p.keys), "the real ones are believed all the same")
			require.Equal(t, []string{"k1", "k2", "k3"}, believed(t, k))
		})
	}
}

func TestKeys_OperatorMayReplaceFile(t *testing.T) {
	t.Parallel()
	k, p := keyFile(t), newPlane(t, 2)
	require.NoError(t, k.Adopt(newPlane(t, 1).keys))
	require.ErrorIs(t, k.Adopt(p.keys), taskkeys.ErrOther)
	raw, err := json.Marshal([]map[string]any{{"key_id": "k2", "public": p.keys[1].Public}}) // no generation
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(k.Path, raw, 0o600))
	require.Equal(t, []string{"k2"}, believed(t, k))
	p.rotate(t, time.Hour)
	require.NoError(t, k.Adopt(p.keys), "its generation is that of the same key in the list")
	require.Equal(t, []string{"k2", "k3"}, believed(t, k))
}

// A process that ends while it writes leaves the file whole, of before or after.
func TestAWriteThatIsBrokenOffLosesNothing(t *testing.T) {
	t.Parallel()
	k, p := keyFile(t), newPlane(t, 1)
	require.NoError(t, k.Adopt(p.keys))
	p.rotate(t, time.Hour)
	leftover := filepath.Join(filepath.Dir(k.Path), ".slipway-1")
	require.NoError(t, os.WriteFile(leftover, []byte(`[{"key_id":"k2","pub`), 0o600)) // what a crash leaves
	require.Equal(t, []string{"k1"}, believed(t, k))
	require.NoError(t, k.Adopt(p.keys))
	require.Equal(t, []string{"k1", "k2"}, believed(t, k))

	full := &KeyFile{Path: "/proc/task-keys.json"} // where nobody can write
	require.Error(t, full.Adopt(p.keys), "what is not stored is not believed")
	require.Empty(t, believed(t, full))
}

// The other half may offer anything in any order and at once: what is stored
// never goes back.
func TestOffersAtOnceNeverGoBack(t *testing.T) {
	t.Parallel()
	k, p := keyFile(t), newPlane(t, 8)
	require.NoError(t, k.Adopt(p.keys[:1]))
	var all sync.WaitGroup
	for n := range p.keys {
		for range 3 {
			all.Go(func() { _ = k.Adopt(p.keys[:n+1]) })
		}
	}
	all.Wait()
	keys, err := k.Load()
	require.NoError(t, err)
	require.EqualValues(t, 8, keys[len(keys)-1].Generation)
}
