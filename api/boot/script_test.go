package boot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A text of a machine or an admin stays one line of the script, whatever it holds.
func TestScript_TextStaysInItsLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		hostile := rapid.SampledFrom([]string{"", "\"\nrunc", "': {", "$(reboot)", "`x`", "${mac}", "\\\" || x", "{{ .Token }}", "\u2028", "!!python"}).Draw(t, "hostile")
		text := rapid.String().Draw(t, "value") + hostile
		require.NotContains(t, printable(text), "$")
		require.NotContains(t, printable(text), "\n")
		script := wait(text, "http://s/x", 5)
		require.Equal(t, 7, strings.Count(script, "\n"), script)
	})
}

func TestTheEndOfAnImageIsHeldBackUntilItsSumIsRight(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, heldBack - 1, heldBack, heldBack + 1, 5*heldBack + 7} {
		body := bytes.Repeat([]byte{7}, size)
		right := sha256.Sum256(body)
		var out bytes.Buffer
		require.NoError(t, copyChecked(&out, bytes.NewReader(body), int64(size), hex.EncodeToString(right[:])))
		require.Equal(t, size, out.Len())
		if size == 0 {
			continue
		}
		body[0]++
		out.Reset()
		require.ErrorContains(t, copyChecked(&out, bytes.NewReader(body), int64(size), hex.EncodeToString(right[:])), "sha256")
		require.Less(t, out.Len(), size, "the machine sees a transfer that ended short")
		require.Error(t, copyChecked(&out, bytes.NewReader(body[1:]), int64(size), hex.EncodeToString(right[:])))
	}
}

func TestLoggedPathsHoldNoToken(t *testing.T) {
	t.Parallel()
	token := tokenPrefix + strings.Repeat("a", 43)
	require.Equal(t, "/boot/pxe_.../user-data", loggedPath("/boot/"+token+"/user-data"))
	require.Equal(t, "/boot/52-54.ipxe", loggedPath("/boot/52-54.ipxe"))
	_, ok := tokenHash(token)
	require.True(t, ok)
	_, ok = tokenHash(token + "a")
	require.False(t, ok)
}
