package signing_test

import (
	"crypto/ed25519"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

func ring(t *testing.T, store *db.Store, keyFile string) *signing.Ring {
	t.Helper()
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: keyFile}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	return &signing.Ring{Store: store, Secrets: sec}
}

func TestManyProcessesShareOneKey(t *testing.T) {
	t.Parallel()
	store, keyFile := dbtest.Store(t), filepath.Join(t.TempDir(), "key")
	rings := []*signing.Ring{ring(t, store, keyFile), ring(t, store, keyFile), ring(t, store, keyFile)}
	got := make([]signing.Signature, len(rings))
	var all sync.WaitGroup
	for i, r := range rings {
		all.Go(func() {
			s, err := r.Sign(t.Context(), signing.Tasks, []byte("hello"))
			if err == nil {
				got[i] = s
			}
		})
	}
	all.Wait()
	keys, err := rings[0].Public(t.Context(), signing.Tasks)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	for _, s := range got {
		require.Equal(t, keys[0].ID, s.KeyID)
		require.True(t, ed25519.Verify(keys[0].Public, []byte("hello"), s.Bytes))
	}
	other, err := rings[0].Sign(t.Context(), signing.Certificates, []byte("hello"))
	require.NoError(t, err)
	require.NotEqual(t, got[0].KeyID, other.KeyID, "a key for each purpose")
}

func TestARetiredKeyStillVerifies(t *testing.T) {
	t.Parallel()
	store, keyFile := dbtest.Store(t), filepath.Join(t.TempDir(), "key")
	r := ring(t, store, keyFile)
	first, err := r.Sign(t.Context(), signing.Certificates, []byte("one"))
	require.NoError(t, err)
	require.NoError(t, store.RetireSigningKey(t.Context(), first.KeyID))
	require.NoError(t, store.RetireSigningKey(t.Context(), first.KeyID), "repeatable")
	second, err := r.Sign(t.Context(), signing.Certificates, []byte("two"))
	require.NoError(t, err)
	require.NotEqual(t, first.KeyID, second.KeyID)
	keys, err := r.Public(t.Context(), signing.Certificates)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.True(t, ed25519.Verify(keys[0].Public, []byte("one"), first.Bytes))
}

func TestCertificatesOfANodeAreOneChain(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	r := ring(t, store, filepath.Join(t.TempDir(), "key"))
	node := dbtest.Node(t, store)
	certificate := func(run string, verified bool) evidence.Certificate {
		return evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname}, Run: evidence.Run{ID: run, Kind: "decommission"},
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Method: lifecycle.SanitizePurge, Verified: verified}},
			Verdict: evidence.VerdictClean, Sequence: 99, // whatever the caller says
		}
	}
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		all.Go(func() {
			_, err := r.Certify(t.Context(), certificate("job_"+string(rune('a'+i)), i%2 == 0))
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	bad, err := r.Certify(t.Context(), certificate("job_z", false))
	require.NoError(t, err)
	require.Equal(t, "not_verified", bad.Verdict, "the verdict is judged, not believed")
	good, err := r.Certify(t.Context(), certificate("job_z", true))
	require.NoError(t, err)
	require.Equal(t, bad.Sequence+1, good.Sequence, "a later proof of the same run is a new link")
	again, err := r.Certify(t.Context(), certificate("job_z", true))
	require.NoError(t, err)
	require.Equal(t, good.ID, again.ID, "the same proof twice is one certificate")

	b, err := r.Bundle(t.Context(), node.ID)
	require.NoError(t, err)
	certs, problems := evidence.Verify(b, b.Keys)
	require.Empty(t, problems)
	require.Len(t, certs, 10)
	b.Certificates = b.Certificates[:9]
	_, problems = evidence.Verify(b, b.Keys)
	require.NotEmpty(t, problems)
	empty, err := r.Bundle(t.Context(), "node_none")
	require.NoError(t, err)
	_, problems = evidence.Verify(empty, empty.Keys)
	require.Empty(t, problems)
}
