package op

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
)

// TestWhileAllowed_EndsWithTheAccess checks a stream's access often, so that the test is short.
func TestWhileAllowed_EndsWithTheAccess(t *testing.T) {
	t.Parallel()
	const often = 2 * time.Millisecond
	for name, c := range map[string]struct {
		then  error
		limit time.Duration
	}{
		"refused":             {db.NotFound("project"), time.Hour},
		"cannot be found out": {errors.New("the database is away"), often},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var checks atomic.Int32
			check := func(context.Context) error {
				if checks.Add(1) <= 3 {
					return nil
				}
				return c.then
			}
			ctx, cancel := whileAllowed(context.WithValue(t.Context(), recheckKey, check), often, c.limit)
			defer cancel()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errAccessEnded)
			require.Greater(t, checks.Load(), int32(3), "it went on while the access was there")
		})
	}
	ctx, cancel := whileAllowed(t.Context(), often, time.Hour)
	defer cancel()
	<-ctx.Done() // a route that checks nothing has no stream
	require.LessOrEqual(t, recheckLimit+recheckEvery/4, time.Minute)
}
