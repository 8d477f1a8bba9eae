package contract

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Refusal is the error with which a workflow answers an action that the matrix
// refuses. Its text says all, for those who see no more than that (the Temporal
// command line); its details are the actions allowed now and the refusal itself.
func Refusal(e lifecycle.ActionRefusedError) error {
	return temporal.NewNonRetryableApplicationError(e.WithAllowed(), ErrTypeActionRefused, nil, e.Allowed, e)
}

// RefusalOf reads a Refusal back, from either side of Temporal.
func RefusalOf(err error) (*lifecycle.ActionRefusedError, bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != ErrTypeActionRefused {
		return nil, false
	}
	var allowed []lifecycle.Action
	var e lifecycle.ActionRefusedError
	if app.Details(&allowed, &e) != nil || e.Action == "" {
		return nil, false
	}
	return &e, true
}
