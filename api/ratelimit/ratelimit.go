// Package ratelimit bounds what one address or one principal may ask of an API: a token bucket for
// each, in bounded memory.
package ratelimit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxBuckets bounds the memory; beyond it full buckets, which say nothing, are
// dropped, and if none is full the newcomer waits.
const maxBuckets = 16384

// Limiter is a token bucket for each address and each name; an IPv6 address counts as its /64. Its
// methods may be called from any goroutine.
type Limiter struct {
	rate  float64 // tokens a second
	burst float64
	now   func() time.Time
	mu    sync.Mutex
	at    map[key]bucket
	// noneFullBefore is when the first of the buckets may be full, if dropFull found
	// none. Until then it need not look again: a request only delays it.
	noneFullBefore time.Time
}

// key is whose a bucket is. The zero key is the bucket that everybody shares.
type key struct {
	addr netip.Addr
	name string
}

type bucket struct {
	tokens float64
	seen   time.Time
}

// New makes a limiter of rate requests a second, burst at once, by the clock
// given.
func New(rate float64, burst int, now func() time.Time) *Limiter {
	return &Limiter{rate: rate, burst: float64(burst), now: now, at: map[key]bucket{}}
}

// Allow takes one token of an address, or says how long to wait for the next.
func (l *Limiter) Allow(addr string) (bool, time.Duration) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return false, time.Second
	}
	ip = ip.Unmap()
	if ip.Is6() {
		if p, err := ip.WithZone("").Prefix(64); err == nil {
			ip = p.Addr()
		}
	}
	return l.take(key{addr: ip})
}

// AllowName takes one token of a name such as a principal's id, or says how long to wait for the next.
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
		b = bucket{tokens: l.burst, seen: now}
	}
	b.tokens = l.filled(b, now)
	b.seen = now
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	l.at[k] = b
	return ok, time.Duration((1 - b.tokens) / l.rate * float64(time.Second))
}

func (l *Limiter) filled(b bucket, now time.Time) float64 {
	return min(l.burst, b.tokens+max(0, now.Sub(b.seen).Seconds())*l.rate)
}

// dropFull makes room in a map that has none. It returns false when no bucket is
// full.
func (l *Limiter) dropFull(now time.Time) bool {
	if now.Before(l.noneFullBefore) {
		return false
	}
	most := 0.0
	for k, b := range l.at {
		tokens := l.filled(b, now)
		if tokens >= l.burst {
			delete(l.at, k)
		}
		most = max(most, tokens)
	}
	l.noneFullBefore = now.Add(time.Duration((l.burst - most) / l.rate * float64(time.Second)))
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
