package simhw

import (
	"context"
	"sync"
	"time"
)

// Clock is a virtual clock that runs Speed times faster than the wall and can
// be stepped forward. Durations given to it are virtual.
type Clock struct {
	mu    sync.Mutex
	start time.Time     // wall time of the start
	base  time.Time     // virtual time at start
	speed float64       // virtual seconds a wall second
	skip  time.Duration // virtual time stepped over
	wake  chan struct{} // closed and replaced by Step
}

// NewClock starts a clock at the present time; speed below 1 is taken as 1.
func NewClock(speed float64) *Clock {
	if speed < 1 {
		speed = 1
	}
	now := time.Now()
	return &Clock{start: now, base: now, speed: speed, wake: make(chan struct{})}
}

// Now is the virtual time in UTC.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() time.Time {
	run := time.Duration(float64(time.Since(c.start)) * c.speed)
	return c.base.Add(run + c.skip).UTC()
}

// Speed is virtual seconds a wall second.
func (c *Clock) Speed() float64 { return c.speed }

// Step moves the clock forward and wakes all sleepers to look again.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skip += d
	close(c.wake)
	c.wake = make(chan struct{})
}

// Sleep waits a virtual duration or until ctx ends.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	return c.sleepUntil(ctx, c.Now().Add(d))
}

func (c *Clock) sleepUntil(ctx context.Context, until time.Time) error {
	for {
		c.mu.Lock()
		left, wake := until.Sub(c.nowLocked()), c.wake
		c.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		t := time.NewTimer(time.Duration(float64(left)/c.speed) + time.Microsecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// AfterFunc runs f in its own goroutine after a virtual duration unless the
// returned cancel is called first or ctx ends.
func (c *Clock) AfterFunc(ctx context.Context, d time.Duration, f func()) (cancel func()) {
	ctx, stop := context.WithCancel(ctx)
	until := c.Now().Add(d) // taken here, so that a Step right after the call counts
	go func() {
		defer stop()
		if c.sleepUntil(ctx, until) == nil {
			f()
		}
	}()
	return stop
}
