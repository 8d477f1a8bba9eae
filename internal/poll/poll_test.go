package poll_test

import (
	"context"
	"errors"
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
