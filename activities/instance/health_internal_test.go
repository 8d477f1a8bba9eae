package instance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	instancedb "github.com/slipway-cloud/slipway/db/instance"
)

// TestHasHeartbeat_CountsFor30Seconds: a younger heartbeat stands for the checks from our side.
func TestHasHeartbeat_CountsFor30Seconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]bool{0: true, 30*time.Second - time.Millisecond: true, 30 * time.Second: false} {
		at := now.Add(-age)
		require.Equal(t, want, hasHeartbeat(instancedb.Instance{HeartbeatAt: &at}, now), age)
	}
	require.False(t, hasHeartbeat(instancedb.Instance{}, now))
}
