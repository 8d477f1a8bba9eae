package providers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A secret is cut at every byte, once and twice.
func TestRedactedStream_HidesASecretCutAnywhere(t *testing.T) {
	t.Parallel()
	secret := `k3y"with<forms>`
	r := NewRedaction(NewSecret(secret), NewSecret("abcab"))
	for _, form := range SecretForms(secret) {
		text := "before " + form + " after abcab, abca"
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				var got strings.Builder
				last := int64(0)
				s := r.Stream(0, func(clean []byte, next int64) error {
					require.Greater(t, next, last)
					last = next
					got.Write(clean)
					return nil
				})
				for _, part := range []string{text[:i], text[i:j], text[j:]} {
					_, err := s.Write([]byte(part))
					require.NoError(t, err)
				}
				require.NoError(t, s.Close())
				require.Equal(t, "before [secret] after [secret], abca", got.String(), "%q, %q, %q", text[:i], text[i:j], text[j:])
				require.Equal(t, int64(len(text)), last)
			}
		}
	}
}

// A reader that lost its connection goes on at an offset that it was given. It gets the rest, and
// no secret that the offset would cut.
func TestRedactedStream_CanGoOnAtEachOffset(t *testing.T) {
	t.Parallel()
	r := NewRedaction(NewSecret("swordfish"), NewSecret("swordfish-long"))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"swordfish", "swordfish-long", "sword", "s", "-", "x"})).Draw(t, "parts"), "") + "\n"
		want := r.Clean(text)
		first, second := "", ""
		var from int64
		s := r.Stream(0, func(clean []byte, next int64) error { first += string(clean); from = next; return nil })
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		_, _ = s.Write([]byte(text[:cut])) // and then the connection is lost: no Close
		s = r.Stream(from, func(clean []byte, _ int64) error { second += string(clean); return nil })
		_, _ = s.Write([]byte(text[from:]))
		_ = s.Close()
		require.Equal(t, want, first+second)
	})
}

func TestRedactedStream_HidesTheBeginningOfALostSecret(t *testing.T) {
	t.Parallel()
	var got string
	s := NewRedaction(NewSecret("correct-horse-battery")).Stream(0, func(clean []byte, _ int64) error { got += string(clean); return nil })
	_, err := s.Write([]byte("token: correct-horse-bat"))
	require.NoError(t, err)
	require.Equal(t, "token: ", got)
	require.NoError(t, s.Close())
	require.Equal(t, "token: [secret]", got)
}
