package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
)

// A stream that breaks often is opened again for as long as messages come between.
func TestReopened_BeginsToWaitAgainAtEachMessage(t *testing.T) {
	t.Parallel()
	for name, hears := range map[string]bool{"messages come": true, "none comes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := (&app{}).reopened(t.Context(), func(_ context.Context, heard func()) (bool, error) {
					tries++
					if hears && tries%10 == 0 {
						heard()
					}
					time.Sleep(2 * time.Second) //nolint:forbidigo // in the time of the bubble
					return tries == 100, connect.NewError(connect.CodeUnavailable, errors.New("away"))
				})
				require.Equal(t, hears, err == nil, "after %d tries: %v", tries, err)
			})
		})
	}
}
