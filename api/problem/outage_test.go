package problem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	temporalsdk "go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// An outage is 503 with a time to come back, and the problem says what is known of a change.
func TestFrom_OutageIs503(t *testing.T) {
	t.Parallel()
	store, cut := dbtest.Cuttable(t)
	broken := store.Tx(t.Context(), func(tx *db.Tx) error {
		cut()
		return tx.Lock(t.Context(), "x")
	})
	require.Error(t, broken)
	_, refused := store.Clock(t.Context())
	require.Error(t, refused)
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	_, away := temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{WorkflowID: "w", UpdateName: "u", WaitForStage: client.WorkflowUpdateStageAccepted})
	require.Error(t, away)
	for name, c := range map[string]struct {
		err  error
		kind problem.Kind
	}{
		"connection broken":     {broken, problem.Unavailable},
		"connection refused":    {refused, problem.Unavailable},
		"pool exhausted":        {fmt.Errorf("read: %w", db.ErrNoConnection), problem.Unavailable},
		"too many connections":  {&pgconn.PgError{Code: "53300"}, problem.Unavailable},
		"administrator ends it": {fmt.Errorf("read: %w", &pgconn.PgError{Code: "57P01"}), problem.Unavailable},
		"starting up":           {&pgconn.PgError{Code: "57P03"}, problem.Unavailable},
		"a plan met it away":    {planOutage(), problem.Unavailable},
		"a lock took too long":  {db.MapError("read", &pgconn.PgError{Code: "55P03"}), problem.Unavailable},
		"a query took too long": {db.MapError("read", &pgconn.PgError{Code: "57014"}), problem.Unavailable},
		"deadlocks":             {db.MapError("write", &pgconn.PgError{Code: "40P01"}), problem.Unavailable},
		"repeated in vain":      {fmt.Errorf("write: %w", db.ErrRepeat), problem.Unavailable},
		"client gave up":        {fmt.Errorf("read: %w", context.Canceled), problem.Unavailable},
		"Temporal refused":      {away, problem.EngineUnavailable},
		"Temporal is busy":      {serviceerror.NewResourceExhausted(0, "x"), problem.EngineUnavailable},
	} {
		for _, p := range []*problem.Problem{problem.From(c.err), problem.FromAction(c.err)} {
			require.True(t, p.Of(c.kind), "%s: %s: %v", name, p.Type, c.err)
			require.Equal(t, http.StatusServiceUnavailable, p.Status, name)
			require.Equal(t, strconv.Itoa(p.RetryAfter), p.GetHeaders().Get("Retry-After"), name)
			require.True(t, p.RetryAfter >= 2 && p.RetryAfter <= 8, "%s: %d", name, p.RetryAfter)
			require.Contains(t, p.Detail, "not known", name)
			require.Contains(t, p.Detail, "same Idempotency-Key", name)
		}
	}
	unresolved := &providers.Error{Kind: providers.KindUnreachable, Op: "secrets.address", Message: "the name maas.example cannot be resolved"}
	require.True(t, problem.From(unresolved).Of(problem.OutsideFailed), "Slipway itself is up")
	silent := &providers.Error{Kind: providers.KindUnavailable, Op: "secrets.resolve", Message: "the secret store did not answer"}
	require.True(t, problem.From(silent).Of(problem.Unavailable))
	seen := map[int]bool{}
	for range 100 {
		seen[problem.From(refused).RetryAfter] = true
	}
	require.Greater(t, len(seen), 2, "a fleet must not come back in one moment")
	require.True(t, problem.From(errors.New("a bug")).Of(problem.Internal))
	require.True(t, problem.FromAction(serviceerror.NewInvalidArgument("a bug")).Of(problem.Internal))
}

// planOutage is what the result of a workflow says whose activity found the database away.
func planOutage() error {
	return fmt.Errorf("workflow execution error: %w", temporalsdk.NewApplicationErrorWithCause("a part of the plan failed", "plan_failed",
		temporalsdk.NewApplicationError("Slipway's database did not answer", string(lifecycle.FailStoreUnavailable))))
}
