package poll_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/poll"
)

func TestSleep_EndsWithTimeOrContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, poll.Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errors.New("over")) })
		require.ErrorIs(t, poll.Sleep(ctx, time.Hour), context.Canceled)
		require.Equal(t, time.Hour+time.Minute, time.Since(began))
	})
}

// TestRepeat_LogsAndGoesOn: an error is logged and ends nothing; after the end of ctx none is
// logged.
func TestRepeat_LogsAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		began, calls := time.Now(), 0
		poll.Repeat(ctx, time.Minute, slog.New(slog.NewTextHandler(&log, nil)), "not done", func(context.Context) error {
			if calls++; calls == 3 {
				cancel()
			}
			return errors.New("no")
		})
		require.Equal(t, 3, calls)
		require.Equal(t, 2*time.Minute, time.Since(began))
		require.Equal(t, 2, strings.Count(log.String(), "not done"))
	})
}
