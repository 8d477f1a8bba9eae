package agentapi

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clock is the time by which heartbeats are dated and judged; *db.Store is one.
type Clock interface {
	// Clock reads it.
	Clock(ctx context.Context) (time.Time, error)
}

const (
	clockFresh = 10 * time.Second // a reading older than this is taken anew
	clockLimit = 2 * time.Second  // how long one reading may take
	clockSlack = time.Second      // a slower reading says too little of when it was true
)

// dbClock tells the database's time without asking at each beat: what it last
// said, plus what has passed since on this process's monotonic clock. So the
// machine's own clock, which nobody compares with the sweeper's, dates nothing.
// It never goes back: of two beats of a node the later one has the later time.
type dbClock struct {
	source Clock

	reading sync.Mutex // one reads at a time; the others go on with what is known
	mu      sync.Mutex
	said    time.Time // what the database said, no reading yet when zero
	at      time.Time // when, with the monotonic clock
	last    time.Time // what was last told
}

// now is the database's time. The first call asks the database and fails when
// it does not answer; later ones go on with the last reading.
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
		_ = c.read(ctx) // the old reading is still right but for a drift
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
