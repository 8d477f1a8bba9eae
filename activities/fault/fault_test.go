package fault_test

import (
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

func typeOf(t *testing.T, err error) string {
	t.Helper()
	var app *temporal.ApplicationError
	require.True(t, errors.As(err, &app), "%v", err)
	require.True(t, app.NonRetryable(), "the runner repeats, in the open; Temporal does not")
	return app.Type()
}

// TestStrayBytes: Temporal takes only UTF-8; a failure that holds what a node
// wrote to stderr must still arrive.
func TestStrayBytes(t *testing.T) {
	t.Parallel()
	var app *temporal.ApplicationError
	require.ErrorAs(t, fault.New(lifecycle.FailSSHSeed, "install ended: %s", "\xff\xfe\x00 caf\xc3"), &app)
	require.True(t, utf8.ValidString(app.Message()))
	require.NotContains(t, app.Message(), "\x00")
	require.ErrorAs(t, fault.New(lifecycle.FailSSHSeed, "%s", string(make([]byte, 100_000))), &app)
	require.Less(t, len(app.Message()), 2100)
}

// TestSecretStoreThatIsAway is no missing secret: it comes back by itself.
func TestSecretStoreThatIsAway(t *testing.T) {
	t.Parallel()
	away := &providers.Error{Kind: providers.KindUnavailable, Op: "secrets.resolve"}
	missing := &providers.Error{Kind: providers.KindNotFound, Op: "secrets.resolve"}
	require.Equal(t, string(lifecycle.FailStoreUnavailable), typeOf(t, fault.Secret(t.Context(), away)))
	require.Equal(t, string(lifecycle.FailSecretUnavailable), typeOf(t, fault.Secret(t.Context(), missing)))
}

// TestDatabaseThatIsAway is no internal error: it comes back by itself, and a
// failover at night must not park every job that was under way.
func TestDatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("read the node: %w", &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"})
	require.Equal(t, string(lifecycle.FailStoreUnavailable), typeOf(t, fault.Internal(t.Context(), away)))
	require.Equal(t, string(lifecycle.FailStoreUnavailable), typeOf(t, fault.MAAS(t.Context(), away)), "whatever the activity was about")
	require.Equal(t, string(lifecycle.FailInternal), typeOf(t, fault.Internal(t.Context(), &pgconn.PgError{Code: "42703"})))
	require.GreaterOrEqual(t, lifecycle.Failure(lifecycle.FailStoreUnavailable).AutoAttempts, 10)
}
