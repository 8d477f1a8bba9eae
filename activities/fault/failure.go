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
