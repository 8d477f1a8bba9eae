package fault

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Failure returns class and message of an error that this package has made. A plan shows them
// instead of failing. It returns false for any other error, such as the end of a context.
func Failure(err error) (f contract.Failure, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return f, false
	}
	class := lifecycle.FailureClass(app.Type())
	if lifecycle.Failure(class).Class != class {
		return f, false
	}
	return contract.Failure{Class: class, Message: app.Message()}, true
}

// WithDid adds to a failure what was done before it, for the action log. The first detail of the
// failure stays, and nil stays nil.
func WithDid(err error, did lifecycle.ActionMetadata) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	var first any = ""
	if app.HasDetails() {
		if derr := app.Details(&first); derr != nil {
			return err
		}
	}
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: app.NonRetryable(), Category: app.Category(), Cause: app.Unwrap(), NextRetryDelay: app.NextRetryDelay(), Details: []any{first, did},
	})
}

// DidOf returns what an activity did before it failed, as far as its failure says.
func DidOf(err error) (did lifecycle.ActionMetadata) {
	var app *temporal.ApplicationError
	var first any
	if errors.As(err, &app) && app.HasDetails() && app.Details(&first, &did) != nil {
		return lifecycle.ActionMetadata{}
	}
	return did
}
