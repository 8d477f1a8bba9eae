package agentapi

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxBuckets bounds the memory of the rate limit; beyond it full buckets, which
// say nothing, are dropped, and if none is full the newcomer waits.
const maxBuckets = 16384

// limiter is a token bucket an address; an IPv6 address counts as its /64.
type limiter struct {
	rate  float64 // tokens a second
	burst float64
	now   func() time.Time
	mu    sync.Mutex
	at    map[netip.Addr]bucket
}

type bucket struct {
	tokens float64
	seen   time.Time
}

func newLimiter(rate float64, burst int, now func() time.Time) *limiter {
	return &limiter{rate: rate, burst: float64(burst), now: now, at: map[netip.Addr]bucket{}}
}

// allow takes one token, or says how long to wait for the next.
func (l *limiter) allow(addr string) (bool, time.Duration) {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b, known := l.at[ip]
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
	l.at[ip] = b
	return ok, time.Duration((1 - b.tokens) / l.rate * float64(time.Second))
}

func (l *limiter) filled(b bucket, now time.Time) float64 {
	return min(l.burst, b.tokens+max(0, now.Sub(b.seen).Seconds())*l.rate)
}

func (l *limiter) dropFull(now time.Time) bool {
	for ip, b := range l.at {
		if l.filled(b, now) >= l.burst {
			delete(l.at, ip)
		}
	}
	return len(l.at) < maxBuckets
}

func remoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
