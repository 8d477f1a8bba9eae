package rig

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
)

// temporalEnv names a running Temporal server, as `make test` and `make bench`
// start one.
const temporalEnv = "SLIPWAY_TEMPORAL_ADDRESS"

const engineLimit = 10 * time.Minute // the first run on a machine builds the server

// engine is the Temporal server of this test process; one of its own ends with
// the process.
var engine = sync.OnceValues(func() (*temporal.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit)
	defer cancel()
	return temporal.Acquire(ctx, temporalEnv, temporal.Options{})
})

// Temporal connects to the Temporal server of the tests until tb ends, under a
// name that tells nothing of the machine: recorded histories carry it. A nil
// codec leaves payloads plain.
func Temporal(tb testing.TB, payloads *payloadcodec.Codec) client.Client {
	tb.Helper()
	srv, err := engine()
	require.NoError(tb, err, "a Temporal server for the tests")
	c, err := temporalx.Dial(temporalx.ClientOptions{
		Address: srv.Address(), Namespace: temporal.Namespace, Identity: "rig", Log: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		Payloads: payloads,
	})
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}
