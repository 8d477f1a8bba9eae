package agentapi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestHeartbeats_UseTheDatabasesClock: a machine two minutes
// behind would otherwise make all its nodes look silent, and one that is ahead
// would keep dead ones alive.
func TestHeartbeats_UseTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		b := start(t, nil)
		b.ahead.Store(int64(wrong))
		a := b.enrolled("n1")
		in := a.heartbeat()
		in.SentAt = time.Now()
		var out protocol.HeartbeatResponse
		a.ok(protocol.PathHeartbeat, in, &out)
		require.Eventually(t, func() bool { _, n := b.store.Heartbeat("n1"); return n > 0 }, runenv.Patience(5*time.Second), 5*time.Millisecond)
		got, _ := b.store.Heartbeat("n1")
		require.WithinDuration(t, time.Now(), got.At, 30*time.Second)
		require.Less(t, got.ClockSkew.Abs(), 30*time.Second, "of the agent, which is right")
		require.WithinDuration(t, time.Now(), out.ServerTime, 30*time.Second)
	}
}

// source is a database whose clock and health the test moves.
type source struct {
	ahead time.Duration
	slow  time.Duration
	err   error
	asked int
}

func (s *source) Clock(context.Context) (time.Time, error) {
	s.asked++
	now := time.Now().Add(s.ahead)
	<-time.After(s.slow) // of the bubble: no real time passes
	return now, s.err
}

func TestDBClock_ReadsRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: errors.New("the database is away")}
		tell := agentapi.ClockOf(s)
		_, err := tell(t.Context())
		require.ErrorIs(t, err, s.err, "nothing is dated by a guess")
		now := func() time.Duration {
			got, err := tell(t.Context())
			require.NoError(t, err)
			return time.Until(got)
		}
		s.err, s.ahead, s.asked = nil, time.Hour, 0
		for range 100 {
			require.Equal(t, time.Hour, now())
		}
		require.Equal(t, 1, s.asked)
		<-time.After(11 * time.Second)
		s.err = errors.New("the database is away")
		require.Equal(t, time.Hour, now(), "it goes on by itself")
		s.err, s.ahead = nil, 2*time.Hour // another server took over
		require.Equal(t, 2*time.Hour, now())
		at := time.Now()
		<-time.After(11 * time.Second)
		s.ahead = time.Hour
		require.Equal(t, 2*time.Hour-time.Since(at), now(), "it never goes back")
		<-time.After(time.Minute)
		require.Equal(t, 2*time.Hour-time.Since(at), now())
		<-time.After(61 * time.Minute)
		require.Equal(t, time.Hour, now())
		<-time.After(11 * time.Second)
		s.ahead, s.slow = 3*time.Hour, 1500*time.Millisecond
		require.Equal(t, time.Hour, now(), "a slow answer says too little")
	})
}
