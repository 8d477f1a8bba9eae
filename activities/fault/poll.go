package fault

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
)

const pollEvery = 10 * time.Second

// PollStore calls read until it is done, and heartbeats between two calls. It returns early on a
// typed failure, on a database error that no repetition changes, and when ctx ends. It continues
// while the database is unavailable: the stage's deadline bounds it. An interval of zero is ten
// seconds.
func PollStore(ctx context.Context, every time.Duration, read func() (done bool, err error)) error {
	if every <= 0 {
		every = pollEvery
	}
	for {
		done, err := read()
		_, typed := Failure(err)
		if done || typed || err != nil && (db.Permanent(err) || errors.Is(err, db.ErrNotFound)) {
			return err
		}
		activity.RecordHeartbeat(ctx)
		if err := poll.Sleep(ctx, every); err != nil {
			return err
		}
	}
}
