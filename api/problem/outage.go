package problem

import (
	"context"
	"errors"
	"math/rand/v2"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The bounds of Retry-After where something does not answer, in seconds. It is random between them,
// so that a fleet does not come back in one moment.
const (
	retryLeast = 2
	retryMost  = 8
)

func retryAfter() int { return retryLeast + rand.IntN(retryMost-retryLeast+1) }

// repeatDetail says what a client may conclude. It is true for reads and for changes.
const repeatDetail = "repeat the request. Whether a change was made is not known: repeat it with the same Idempotency-Key, " +
	"which cannot make it twice; without a key, read the resource first"

// fromOutage answers for a database or a Temporal that does not answer or is too busy, for a
// request that ran out of time, and for one that its client gave up. It returns nil for every other
// error.
func fromOutage(err error) *Problem {
	switch {
	case db.IsNotConnected(err):
		return New(Unavailable, "the database does not answer; "+repeatDetail).Class(lifecycle.FailStoreUnavailable)
	case errors.Is(err, context.Canceled):
		return New(Unavailable, "the request was given up before it was answered; "+repeatDetail)
	case errors.Is(err, context.DeadlineExceeded):
		return New(OutcomeUnknown, "the request took longer than it may; "+repeatDetail)
	case isTemporalAway(err):
		return New(EngineUnavailable, "Temporal does not answer; "+repeatDetail)
	case db.IsBusy(err):
		return New(Unavailable, "the database is too busy to answer in time; "+repeatDetail)
	case db.IsUnavailable(err), isStoreAway(err):
		return New(Unavailable, "the database does not answer; "+repeatDetail).Class(lifecycle.FailStoreUnavailable)
	}
	return nil
}

// isStoreAway reports whether a worker, asked by the API, found the database or the secret store
// away.
func isStoreAway(err error) bool {
	var app *temporal.ApplicationError
	for errors.As(err, &app) {
		if app.Type() == string(lifecycle.FailStoreUnavailable) {
			return true
		}
		err = app.Unwrap()
	}
	return false
}

// isTemporalAway reports whether Temporal, or the way to it, failed for now.
func isTemporalAway(err error) bool {
	var away *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	var busy *serviceerror.ResourceExhausted
	return errors.As(err, &away) || errors.As(err, &late) || errors.As(err, &busy)
}
