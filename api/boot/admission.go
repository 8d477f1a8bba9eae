package boot

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/internal/sender"
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
	// AtOnce is how many requests may be at the database together, AtOnceOfSource how many of them
	// may be of one source; the others wait for a moment.
	AtOnce, AtOnceOfSource int
	// TransfersOfNode is how many images of a node one address may load at once. A machine that
	// reads fewer bytes a second than TransferRate loses its place, after TransferGrace.
	TransfersOfNode int
	TransferRate    int64
	TransferGrace   time.Duration
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
	if l.AtOnceOfSource == 0 {
		l.AtOnceOfSource = max(1, l.AtOnce-1)
	}
	if l.TransfersOfNode == 0 {
		l.TransfersOfNode = 2 // a machine that was reset loads again before the transfer of before has ended
	}
	if l.TransferRate == 0 {
		l.TransferRate = 128 << 10
	}
	if l.TransferGrace == 0 {
		l.TransferGrace = 20 * time.Second
	}
	return l
}

// admissionControl limits the rates of requests and discoveries, and the requests at the database.
type admissionControl struct {
	requests, discoveries, all *ratelimit.Limiter
	places                     chan struct{}
	ofSource                   *ratelimit.Places
}

func newAdmissionControl(l Limits, now func() time.Time) *admissionControl {
	l = l.withDefaults()
	return &admissionControl{
		requests:    ratelimit.New(l.RequestRate, l.RequestBurst, now),
		discoveries: ratelimit.New(l.DiscoveryRate, l.DiscoveryBurst, now),
		all:         ratelimit.New(l.AllDiscoveryRate, l.AllDiscoveryBurst, now),
		places:      make(chan struct{}, l.AtOnce),
		ofSource:    ratelimit.NewPlaces(l.AtOnceOfSource),
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

// paced takes a token of the rate of a source. It returns *busyError when there is none.
func (d *admissionControl) paced(source string) error {
	if ok, wait := d.requests.Allow(source); !ok {
		return &busyError{"too many requests from this address", wait}
	}
	return nil
}

// place waits for a place at the database: first among the requests of the source, so that one
// source never has all places. The caller must call leave at its end. It returns *busyError when
// none is free.
func (d *admissionControl) place(ctx context.Context, source string) (leave func(), err error) {
	wait, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	leaveSource, ok := d.ofSource.Enter(wait, sender.NetworkText(source))
	if ok {
		select {
		case d.places <- struct{}{}:
			return func() { <-d.places; leaveSource() }, nil
		case <-wait.Done():
			leaveSource()
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, &busyError{"too many machines report at once", placeWait}
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
