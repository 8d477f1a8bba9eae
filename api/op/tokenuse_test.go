package op

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTokenUses_WritesSeldom sends many requests with few tokens while writes are slow or fail. No
// request waits for a write, and each token is written at most once in five minutes.
func TestTokenUses_WritesSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written, writers, failing := map[string]int{}, 0, false
		u := &tokenUses{log: slog.New(slog.DiscardHandler), now: time.Now, write: func(ctx context.Context, hashes [][]byte, _ time.Duration) error {
			writers++
			require.Equal(t, 1, writers, "one write at a time")
			<-time.After(2 * time.Second) // virtual time
			writers--
			for _, h := range hashes {
				written[string(h)]++
			}
			if failing {
				return errors.New("away")
			}
			return ctx.Err()
		}}
		began := time.Now()
		for range 1000 {
			for _, hash := range []string{"a", "b"} {
				u.note(t.Context(), []byte(hash), nil)
			}
		}
		require.Equal(t, began, time.Now(), "no request waited")
		<-time.After(useEvery - time.Second)
		u.note(t.Context(), []byte("a"), nil)
		synctest.Wait()
		require.Equal(t, map[string]int{"a": 1, "b": 1}, written)

		failing = true
		<-time.After(2 * time.Second)
		u.note(t.Context(), []byte("a"), nil)
		<-time.After(useEvery)
		recent, old, ahead := time.Now().Add(-time.Minute), time.Now().Add(-useEvery), time.Now().Add(time.Hour)
		u.note(t.Context(), []byte("a"), &recent)
		<-time.After(useTime)
		synctest.Wait()
		require.Equal(t, 2, written["a"], "another process has noted it a minute ago")
		u.note(t.Context(), []byte("a"), &old)
		u.note(t.Context(), []byte("b"), &ahead)
		<-time.After(useTime)
		synctest.Wait()
		require.Equal(t, map[string]int{"a": 3, "b": 2}, written, "a failed write is no end, and a clock that was set back none either")
	})
}
