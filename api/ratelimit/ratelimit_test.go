package ratelimit_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/ratelimit"
)

func TestEachAddressHasItsBurstAndItsRate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := ratelimit.New(0.5, 2, func() time.Time { return now })
	allowed := func(addr string) bool { ok, _ := l.Allow(addr); return ok }
	require.True(t, allowed("10.0.0.1"))
	require.True(t, allowed("10.0.0.1"))
	ok, wait := l.Allow("10.0.0.1")
	require.False(t, ok)
	require.Equal(t, 2*time.Second, wait)
	require.True(t, allowed("10.0.0.2"), "another address")
	require.True(t, allowed("::ffff:10.0.0.2"))
	require.False(t, allowed("10.0.0.2"), "the same address in its other form")
	require.True(t, allowed("2001:db8::1"))
	require.True(t, allowed("2001:db8::2"))
	require.False(t, allowed("2001:db8::3"), "a /64 is one")
	require.False(t, allowed("no address"))
	now = now.Add(2 * time.Second)
	require.True(t, allowed("10.0.0.1"))
	require.False(t, allowed("10.0.0.1"))
	for range 2 {
		ok, _ := l.AllowName("alice")
		require.True(t, ok)
	}
	ok, _ = l.AllowName("alice")
	require.False(t, ok)
	ok, _ = l.AllowName("bob")
	require.True(t, ok, "another name")
	for range 2 {
		ok, _ := l.AllowAll()
		require.True(t, ok)
	}
	ok, _ = l.AllowAll()
	require.False(t, ok, "one bucket for everybody")
}

// Whoever waits as told gets a token, and a refused request costs none.
func TestTheWaitIsThatForTheNextToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := ratelimit.New(0.5, 1, func() time.Time { return now })
	ok, _ := l.AllowAll()
	require.True(t, ok)
	for range 3 {
		ok, wait := l.AllowAll()
		require.False(t, ok)
		require.Equal(t, 2*time.Second, wait)
	}
	now = now.Add(-time.Hour) // a clock that jumps back gives nothing away
	ok, _ = l.AllowAll()
	require.False(t, ok)
	now = now.Add(time.Hour + 2*time.Second)
	ok, _ = l.AllowAll()
	require.True(t, ok)
}

// However many addresses come, the memory is bounded; when all buckets are in
// use a newcomer waits, and full ones make room.
func TestTheMemoryIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := ratelimit.New(1, 1, func() time.Time { return now })
	allowed := 0
	for i := range 20_000 {
		if ok, _ := l.Allow(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)); ok {
			allowed++
		}
	}
	require.Equal(t, 16384, allowed)
	for _, c := range []struct {
		after   time.Duration
		allowed bool
	}{{0, false}, {999 * time.Millisecond, false}, {time.Millisecond, true}} {
		now = now.Add(c.after)
		ok, _ := l.Allow("192.0.2.1")
		require.Equal(t, c.allowed, ok, now)
	}
}

func TestRemoteAddress(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10.0.0.1", ratelimit.RemoteAddress(&http.Request{RemoteAddr: "10.0.0.1:1234"}))
	require.Equal(t, "::1", ratelimit.RemoteAddress(&http.Request{RemoteAddr: "[::1]:1234"}))
	require.Equal(t, "pipe", ratelimit.RemoteAddress(&http.Request{RemoteAddr: "pipe"}))
}
