package relay_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestCheckAudit_ManyStatements: a round of several statements does not wait between them.
func TestCheckAudit_ManyStatements(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	for range 45 {
		dbtest.Node(t, store)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&relay.Relay{Store: store, Log: slog.New(slog.DiscardHandler)}).CheckAudit(ctx)
	}()
	require.Eventually(t, func() bool {
		at, err := store.AuditCheck(t.Context())
		return err == nil && at.FinishedAt != nil && at.Checked >= 45
	}, runenv.Patience(10*time.Second), 50*time.Millisecond)
	cancel()
	<-done
}
