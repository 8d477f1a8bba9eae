// Package ratelimit bounds what one address or one principal may ask of an API: a token bucket for
// each, in bounded memory.
package ratelimit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/slipway-cloud/slipway/internal/sender"
)

// maxBuckets bounds the memory; beyond it full buckets, which say nothing, are
// dropped, and if none is full the newcomer waits.
const maxBuckets = 16384

// Limiter is a token bucket for each address and each name; an IPv6 address counts as its /64. Its
// methods may be called from any goroutine.
type Limiter struct {
	rate  rate.Limit
	burst int
	now   func() time.Time
	mu    sync.Mutex
	at    map[key]*rate.Limiter
	// noneFullBefore is when the first of the buckets may be full, if dropFull found
	// none. Until then it need not look again: a request only delays it.
	noneFullBefore time.Time
}

// key is whose a bucket is. The zero key is the bucket that everybody shares.
type key struct {
	addr netip.Addr
	name string
}

// New makes a limiter of perSecond requests a second, burst at once, by the clock
// given.
func New(perSecond float64, burst int, now func() time.Time) *Limiter {
	return &Limiter{rate: rate.Limit(perSecond), burst: burst, now: now, at: map[key]*rate.Limiter{}}
}

// Allow takes one token of an address, or says how long to wait for the next.
func (l *Limiter) Allow(addr string) (bool, time.Duration) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return false, time.Second
	}
	return l.take(key{addr: sender.Network(ip).Addr()})
}

// AllowName takes one token of a name such as a principal's id, or says how long to wait for the
// next.
func (l *Limiter) AllowName(name string) (bool, time.Duration) { return l.take(key{name: name}) }

// AllowAll takes one token of the bucket that everybody shares.
func (l *Limiter) AllowAll() (bool, time.Duration) { return l.take(key{}) }

func (l *Limiter) take(k key) (bool, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b, known := l.at[k]
	if !known {
		if len(l.at) >= maxBuckets && !l.dropFull(now) {
			return false, time.Second
		}
		b = rate.NewLimiter(l.rate, l.burst)
		l.at[k] = b
	}
	token := b.ReserveN(now, 1)
	wait := token.DelayFrom(now)
	if wait > 0 {
		token.CancelAt(now)
		return false, wait
	}
	return true, 0
}

// dropFull makes room in a map that has none. It returns false when no bucket is
// full.
func (l *Limiter) dropFull(now time.Time) bool {
	if now.Before(l.noneFullBefore) {
		return false
	}
	most := 0.0
	for k, b := range l.at {
		tokens := b.TokensAt(now)
		if tokens >= float64(l.burst) {
			delete(l.at, k)
		}
		most = max(most, tokens)
	}
	l.noneFullBefore = now.Add(time.Duration((float64(l.burst) - most) / float64(l.rate) * float64(time.Second)))
	return len(l.at) < maxBuckets
}

// RemoteAddress is the address that a request came from, without its port.
func RemoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
