package agentapi

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clock is the clock that dates heartbeats; *db.Store is one.
type Clock interface {
	// Clock returns the time of the clock.
	Clock(ctx context.Context) (time.Time, error)
}

const (
	clockFresh = 10 * time.Second // an older reading is replaced
	clockLimit = 2 * time.Second  // how long one reading may take
	clockSlack = time.Second      // a slower reading is too inexact
)

// dbClock returns the database's time without a query for each heartbeat. It adds the time since
// the last reading, by this process's monotonic clock, to that reading. The machine's own clock
// dates nothing, since it may differ from the sweeper's. The time never goes back, so the later of
// two heartbeats of a node has the later time.
type dbClock struct {
	source Clock

	reading sync.Mutex // held during a query; other callers use the last reading
	mu      sync.Mutex
	said    time.Time // the database's time; zero before the first reading
	at      time.Time // when it was read, by the monotonic clock
	last    time.Time // the last time that now returned
}

// now returns the database's time. It returns an error when there is no reading yet and the
// database does not answer.
func (c *dbClock) now(ctx context.Context) (time.Time, error) {
	said, at := c.known()
	if said.IsZero() {
		c.reading.Lock()
		defer c.reading.Unlock()
		if said, _ = c.known(); said.IsZero() {
			if err := c.read(ctx); err != nil {
				return time.Time{}, err
			}
		}
	} else if time.Since(at) > clockFresh && c.reading.TryLock() {
		_ = c.read(ctx) // on an error the old reading is still exact enough
		c.reading.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.said.Add(time.Since(c.at)); now.After(c.last) {
		c.last = now
	}
	return c.last, nil
}

func (c *dbClock) known() (said, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said, c.at
}

func (c *dbClock) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockLimit)
	defer cancel()
	before := time.Now()
	said, err := c.source.Clock(ctx)
	took := time.Since(before)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if took > clockSlack && !c.said.IsZero() {
		return nil
	}
	c.said, c.at = said, before.Add(took/2)
	return nil
}
