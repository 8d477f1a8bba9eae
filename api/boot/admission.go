package boot

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/slipway-cloud/slipway/api/ratelimit"
)

// Limits bound the requests that need no login, for each process. A zero field has its default.
type Limits struct {
	// Requests of one source: a second, and at once. A relay or a NAT in front of
	// a rack is one source.
	RequestRate  float64
	RequestBurst int
	// New nodes of one source, and of all.
	DiscoveryRate     float64
	DiscoveryBurst    int
	AllDiscoveryRate  float64
	AllDiscoveryBurst int
	// AtOnce is how many requests may be at the database together; the others wait
	// for a moment.
	AtOnce int
}

func (l Limits) withDefaults() Limits {
	set := func(p *float64, n *int, rate float64, burst int) {
		if *p == 0 {
			*p = rate
		}
		if *n == 0 {
			*n = burst
		}
	}
	set(&l.RequestRate, &l.RequestBurst, 50, 400)
	set(&l.DiscoveryRate, &l.DiscoveryBurst, 0.5, 64)
	set(&l.AllDiscoveryRate, &l.AllDiscoveryBurst, 5, 256)
	if l.AtOnce == 0 {
		l.AtOnce = 3
	}
	return l
}

// admissionControl limits the rates of requests and discoveries, and the requests at the database.
type admissionControl struct {
	requests, discoveries, all *ratelimit.Limiter
	places                     chan struct{}
}

func newAdmissionControl(l Limits, now func() time.Time) *admissionControl {
	l = l.withDefaults()
	return &admissionControl{
		requests:    ratelimit.New(l.RequestRate, l.RequestBurst, now),
		discoveries: ratelimit.New(l.DiscoveryRate, l.DiscoveryBurst, now),
		all:         ratelimit.New(l.AllDiscoveryRate, l.AllDiscoveryBurst, now),
		places:      make(chan struct{}, l.AtOnce),
	}
}

// busyError refuses a request because of a limit. Wait is the time until the next try.
type busyError struct {
	What string
	Wait time.Duration
}

func (b *busyError) Error() string {
	return fmt.Sprintf("%s; come back in %d seconds", b.What, b.seconds())
}

// seconds is Wait in whole seconds, at least one.
func (b *busyError) seconds() int { return max(1, int(math.Ceil(b.Wait.Seconds()))) }

// placeWait is how long a request waits for a place.
const placeWait = 5 * time.Second

// enterFrom admits a request of a source. The caller must call leave at its end. It returns
// *busyError when the source sends too many requests, or too many are at the database.
func (s *Server) enterFrom(ctx context.Context, source string) (leave func(), err error) {
	d := s.admission
	if ok, wait := d.requests.Allow(source); !ok {
		return nil, &busyError{"too many requests from this address", wait}
	}
	full := time.NewTimer(placeWait)
	defer full.Stop()
	select {
	case d.places <- struct{}{}:
		return func() { <-d.places }, nil
	case <-full.C:
		return nil, &busyError{"too many machines report at once", placeWait}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// discover admits one new node of a source. It returns *busyError when there are too many.
func (d *admissionControl) discover(source string) error {
	if ok, wait := d.discoveries.Allow(source); !ok {
		return &busyError{"too many new machines from this address", wait}
	}
	if ok, wait := d.all.AllowAll(); !ok {
		return &busyError{"too many new machines", wait}
	}
	return nil
}
