// Package fault is the one place where an outside or database error becomes a Temporal error with
// its retryability. The error's type is a failure class of package lifecycle. The stage runner
// reads the class and decides how often the stage is tried, which an operator can see. So every
// error made here is non-retryable for Temporal, which itself retries only after a worker was lost.
// Errors are matched by type, never by text. An unknown error is "internal error" for readers, and
// its detail is in the log only.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// New makes a typed failure. The message is for operators: no secrets.
func New(class lifecycle.FailureClass, format string, args ...any) error {
	return wrap(class, fmt.Sprintf(format, args...), nil)
}

func wrap(class lifecycle.FailureClass, msg string, cause error) error {
	return temporal.NewApplicationErrorWithOptions(readable(msg), string(class), temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Category:     category(class),
		Cause:        redacted(cause),
	})
}

const maxMessage = 2000

// readable removes what Temporal does not accept in a message. A node or a region may have written
// an invalid byte, and with it the failure could not be reported at all.
func readable(msg string) string {
	msg = strings.ToValidUTF8(strings.ReplaceAll(msg, "\x00", "?"), "?")
	if len(msg) > maxMessage {
		msg = strings.ToValidUTF8(msg[:maxMessage], "") + "…"
	}
	return msg
}

// category keeps expected outcomes out of error logs and metrics.
func category(class lifecycle.FailureClass) temporal.ApplicationErrorCategory {
	if class == lifecycle.FailInternal {
		return temporal.ApplicationErrorCategoryUnspecified
	}
	return temporal.ApplicationErrorCategoryBenign
}

// redacted keeps only a provider error's kind and operation as the cause that
// enters the history; a cause of any other type stays in the log.
func redacted(err error) error {
	var pe *providers.Error
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %s", pe.Op, pe.Kind)
	}
	return nil
}

// MAAS turns an error of a MAAS call into a typed failure.
func MAAS(ctx context.Context, err error) error { return from(ctx, providers.SideMAAS, err) }

// BMC turns an error of a BMC call into a typed failure.
func BMC(ctx context.Context, err error) error { return from(ctx, providers.SideBMC, err) }

// SSH turns an error of a command on a node into a typed failure.
func SSH(ctx context.Context, err error) error { return from(ctx, providers.SideSSH, err) }

// Secret turns an error of the secret store into a typed failure.
func Secret(ctx context.Context, err error) error { return from(ctx, providers.SideSecrets, err) }

// Payments turns an error of the payment provider into a typed failure. An error of the database
// gets the class of the database.
func Payments(ctx context.Context, err error) error { return from(ctx, providers.SideStripe, err) }

// Cloud turns an error of a cloud provider, or of the way to it, into a typed failure.
func Cloud(ctx context.Context, err error) error { return from(ctx, providers.SideCloud, err) }

// Cluster turns an error of a Kubernetes cluster's API into a typed failure.
func Cluster(ctx context.Context, err error) error { return from(ctx, providers.SideCluster, err) }

// Login turns an error of the secret store about a login into a typed failure. A name that does not
// resolve is a target that cannot be reached, and a refused address is one that was configured: of
// names the table of that target, such as BMC.
func Login(ctx context.Context, err error, of func(context.Context, error) error) error {
	if providers.IsKind(err, providers.KindUnreachable) || providers.IsRefusedAddress(err) {
		return of(ctx, err)
	}
	return Secret(ctx, err)
}

// Internal turns any other error, the database's among them, into a typed
// failure.
func Internal(ctx context.Context, err error) error {
	return from(ctx, "", err)
}

// from does the work for all of them. An error is internal when it is neither typed already nor of
// a provider, of a rule of lifecycle, or of an unavailable database.
func from(ctx context.Context, side providers.Side, err error) error {
	if err == nil {
		return nil
	}
	var app *temporal.ApplicationError
	var pe *providers.Error
	var illegal *lifecycle.IllegalTransitionError
	var invalid *spec.InvalidError
	switch {
	case errors.As(err, &app):
		return err // already typed
	case ctx.Err() != nil:
		return ctx.Err() // cancelled or out of time: not the other side's failure
	case errors.As(err, &illegal):
		return wrap(lifecycle.FailStateDisagreement, illegal.Error(), nil)
	case errors.As(err, &invalid):
		return wrap(lifecycle.FailConfiguration, invalid.Error(), nil)
	case errors.As(err, &pe):
		return wrap(side.FailureClass(pe.Kind), pe.Error(), pe)
	case db.IsUnavailable(err):
		if activity.IsActivity(ctx) {
			activity.GetLogger(ctx).Warn("the database is away", "error", err)
		}
		return wrap(lifecycle.FailStoreUnavailable, "Slipway's database did not answer", nil)
	}
	if activity.IsActivity(ctx) {
		activity.GetLogger(ctx).Error("internal error", "error", err)
	}
	return wrap(lifecycle.FailInternal, "internal error; the worker's log holds the detail", nil)
}

// Projection lets Temporal retry a projection, for example while the database is away. An illegal
// transition and an error marked with ErrFinal, such as a missing row, are final: repeating them
// changes nothing.
func Projection(ctx context.Context, err error) error {
	var illegal *lifecycle.IllegalTransitionError
	if err == nil || ctx.Err() != nil {
		return err
	}
	if errors.As(err, &illegal) || errors.Is(err, ErrFinal) {
		return from(ctx, "", err)
	}
	return temporal.NewApplicationErrorWithOptions("the projection was not written", "projection", temporal.ApplicationErrorOptions{Cause: err})
}

// ErrFinal marks a database answer that no repetition changes.
var ErrFinal = errors.New("final")
