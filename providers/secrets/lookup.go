package secrets

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// lookupTTL is how long an answer counts.
const lookupTTL = time.Minute

// lookups remembers what names resolve to. Its zero value is ready. It is safe for concurrent use.
type lookups struct {
	mu    sync.Mutex
	names map[string]lookup
	now   func() time.Time // nil is time.Now
}

type lookup struct {
	found []netip.Addr // the last good answer
	asked time.Time
}

// lookup returns the addresses of a name. A lookup that fails leaves those of the last good answer
// for another lookupTTL. Where there is none, the next call asks again.
func (l *lookups) lookup(ctx context.Context, resolver providers.Resolver, host string) []netip.Addr {
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	l.mu.Lock()
	known, asked := l.names[host]
	l.mu.Unlock()
	if asked && now().Sub(known.asked) < lookupTTL {
		return known.found
	}
	limited, cancel := context.WithTimeout(ctx, providers.LookupLimit)
	defer cancel()
	found, err := resolver.LookupNetIP(limited, "ip", host)
	if err != nil || len(found) == 0 {
		found = known.found
	}
	if len(found) == 0 || ctx.Err() != nil {
		return found // a caller that gave up says nothing of the name server
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = map[string]lookup{}
	}
	l.names[host] = lookup{found, now()}
	return found
}
