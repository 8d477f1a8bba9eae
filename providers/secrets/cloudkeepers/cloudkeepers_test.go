package cloudkeepers_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gcsecrets "gocloud.dev/secrets"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
	_ "github.com/slipway-cloud/slipway/providers/secrets/cloudkeepers"
)

func TestTheRemoteKeepersAreKnown(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"hashivault", "awskms", "gcpkms"} {
		require.True(t, gcsecrets.DefaultURLMux().ValidKeeperScheme(scheme), scheme)
	}
}

// transit answers as Vault's transit engine does for one key; its "encryption"
// is a prefix, since only the way there and back is under test.
func transit(t *testing.T, allow func() bool) *httptest.Server {
	const prefix = "vault:v1:"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Plaintext, Ciphertext string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		data := map[string]string{}
		switch {
		case !allow() || r.Header.Get("X-Vault-Token") != "test-token":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":["permission denied"]}`))
			return
		case r.URL.Path == "/v1/transit/encrypt/slipway":
			data["ciphertext"] = prefix + base64.StdEncoding.EncodeToString([]byte(in.Plaintext))
		case r.URL.Path == "/v1/transit/decrypt/slipway":
			plain, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(in.Ciphertext, prefix))
			data["plaintext"] = string(plain)
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(s.Close)
	return s
}

func TestSealsWithVault(t *testing.T) {
	allowed := true
	server := transit(t, func() bool { return allowed })
	t.Setenv("VAULT_SERVER_URL", server.URL)
	t.Setenv("VAULT_SERVER_TOKEN", "test-token")

	s, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{URL: "hashivault://slipway"}, secrets.Options{Own: []string{"a"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ref, err := s.Put(t.Context(), "a", providers.NewSecret("value"))
	require.NoError(t, err)
	got, err := s.Resolve(t.Context(), ref, providers.OwnUse())
	require.NoError(t, err)
	require.Equal(t, "value", got.Reveal())

	allowed = false
	_, err = s.Resolve(t.Context(), ref, providers.OwnUse())
	require.Error(t, err)
	// The Vault keeper gives every failure the same code, so a refusal looks like an outage.
	require.Equal(t, providers.KindUnavailable, providers.KindOf(err), "%v", err)
	require.NotContains(t, err.Error(), "test-token")
}
