package rest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestTokens_ExpireByDefault: every token has an end, which is at most a year ahead. A token past
// its end is refused, and the refusal says so.
func TestTokens_ExpireByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := func(ttl string) answer {
		body := map[string]any{"name": "ci", "roles": []string{"viewer"}}
		if ttl != "" {
			body["ttl"] = ttl
		}
		return w.post("/api/v1/admin/api-tokens", body)
	}
	for ttl, want := range map[string]time.Duration{"": 2160 * time.Hour, "0s": 2160 * time.Hour, "1h": time.Hour, "8760h": 8760 * time.Hour} {
		var made struct {
			ExpiresAt time.Time `json:"expires_at"`
		}
		create(ttl).want(http.StatusCreated).into(&made)
		require.WithinDuration(t, time.Now().Add(want), made.ExpiresAt, runenv.Patience(time.Minute), ttl)
	}
	for _, ttl := range []string{"8761h", "87600h", "-1h"} {
		require.Contains(t, string(create(ttl).want(http.StatusUnprocessableEntity).raw), "ttl", ttl)
	}

	short, err := op.CreateToken(t.Context(), w.store, "short", []string{"viewer"}, time.Nanosecond)
	require.NoError(t, err)
	as := header{"Authorization": "Bearer " + short}
	require.Contains(t, string(w.do("GET", "/api/v1/whoami", nil, as).want(http.StatusUnauthorized).raw), "The token expired at ")
	_, err = w.store.DBTX().Exec(t.Context(), "UPDATE api_tokens SET revoked_at = now() WHERE name = 'short'")
	require.NoError(t, err)
	require.NotContains(t, string(w.do("GET", "/api/v1/whoami", nil, as).want(http.StatusUnauthorized).raw), "expired at ")
}

// TestTokens_LastUse: the list says when a token was last used. Nothing is written again within
// minutes.
func TestTokens_LastUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, row, err := op.IssueToken(t.Context(), w.store, "ci", []string{"viewer"}, 0)
	require.NoError(t, err)
	lastUse := func() (at *time.Time) {
		var got struct {
			Data []struct {
				ID         string     `json:"id"`
				LastUsedAt *time.Time `json:"last_used_at"`
			}
		}
		w.do("GET", "/api/v1/admin/api-tokens", nil).want(http.StatusOK).into(&got)
		for _, tok := range got.Data {
			if tok.ID == row.ID {
				at = tok.LastUsedAt
			}
		}
		return at
	}
	require.Nil(t, lastUse(), "it was not used yet")
	use := func() {
		w.do("GET", "/api/v1/whoami", nil, header{"Authorization": "Bearer " + text}).want(http.StatusOK)
	}
	use()
	require.Eventually(t, func() bool { return lastUse() != nil }, runenv.Patience(20*time.Second), 20*time.Millisecond)
	first := *lastUse()
	require.WithinDuration(t, time.Now(), first, runenv.Patience(time.Minute))
	use()
	require.NoError(t, w.store.NoteTokenUses(t.Context(), [][]byte{op.TokenHash(text)}, time.Minute))
	require.True(t, first.Equal(*lastUse()), "another process writes nothing new")
}
