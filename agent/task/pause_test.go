package task

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type busyServer struct{ error }

func (busyServer) RetryAfter() time.Duration { return 40 * time.Second }

func TestLoop_WaitsAsLongAsTheServerAsks(t *testing.T) {
	t.Parallel()
	l := NewLoop(LoopConfig{Backoff: time.Millisecond})
	l.failures = 1
	require.LessOrEqual(t, l.pause(errors.New("cut")), time.Millisecond)
	asked := l.pause(fmt.Errorf("claim: %w", busyServer{errors.New("busy")}))
	require.True(t, asked >= 40*time.Second && asked <= 51*time.Second, asked)
}
