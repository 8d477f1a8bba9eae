package op

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// provider is an identity provider that counts the requests for its keys. The clock of the issuer
// is the test's own.
type provider struct {
	*testing.T
	issuer *Issuer
	fails  atomic.Bool
	asked  atomic.Int64
	ahead  atomic.Int64
	server *httptest.Server
	keys   *oidctest.Server
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{T: t, keys: &oidctest.Server{}}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "well-known") {
			p.asked.Add(1)
			if p.fails.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		p.keys.ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	p.keys.SetIssuer(p.server.URL)
	p.issuer = &Issuer{URL: p.server.URL, now: func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }}
	return p
}

func (p *provider) publish(id string) *rsa.PrivateKey {
	p.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(p, err)
	p.keys.PublicKeys = []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: id, Algorithm: "RS256"}}
	return key
}

func (p *provider) verify(key *rsa.PrivateKey, id string) error {
	p.Helper()
	claims := fmt.Sprintf(`{"iss":%q,"aud":"slipway","sub":"u1","exp":%d}`, p.server.URL, time.Now().Add(time.Hour).Unix())
	v, err := p.issuer.Verifier(p.Context(), "slipway", nil)
	if err == nil {
		_, err = v.Verify(p.Context(), oidctest.SignIDToken(key, id, "RS256", claims))
	}
	return err
}

// TestIssuer_ForgedTokensShareOneRequest sends tokens with unknown keys at the same time. They
// cause one request in 30 seconds, also when it fails. Valid tokens cause none.
func TestIssuer_ForgedTokensShareOneRequest(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		p := newProvider(t)
		key := p.publish("k1")
		forged, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		p.fails.Store(fails)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := p.verify(forged, fmt.Sprintf("forged-%d", i)); err == nil {
					t.Error("a forged token is valid")
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, p.asked.Load())
		require.Equal(t, fails, p.issuer.KeysUnknown())
		for range 10 {
			require.Equal(t, fails, p.verify(key, "k1") != nil)
		}
		require.EqualValues(t, 1, p.asked.Load())
		p.fails.Store(false)
		p.ahead.Add(int64(keysEvery))
		// The library returns to its callers before it forgets a finished request.
		require.Eventually(t, func() bool {
			require.Error(t, p.verify(forged, "forged"))
			return p.asked.Load() == 2
		}, runenv.Patience(10*time.Second), time.Millisecond)
		require.NoError(t, p.verify(key, "k1"))
		require.EqualValues(t, 2, p.asked.Load())
	}
}

// TestIssuer_KeyRotationWorksWithin30Seconds: a new key is known 30 seconds after the last request
// at the latest, and a withdrawn one is refused after five minutes, though nobody sends an unknown
// key.
func TestIssuer_KeyRotationWorksWithin30Seconds(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	old := p.publish("k1")
	require.NoError(t, p.verify(old, "k1"))
	renewed := p.publish("k2")
	p.ahead.Add(int64(keysEvery))
	require.NoError(t, p.verify(renewed, "k2"))

	last := p.publish("k3")
	require.NoError(t, p.verify(renewed, "k2"), "it is known still")
	p.ahead.Add(int64(keysMaxAge))
	require.Error(t, p.verify(renewed, "k2"), "the issuer has withdrawn it")
	require.NoError(t, p.verify(last, "k3"))
}
