package agentapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

func TestServer_DatabaseAwayIs503(t *testing.T) {
	t.Parallel()
	store, cut := dbtest.Cuttable(t)
	b := start(t, func(c *agentapi.Config) { c.Store = agentapi.NewStore(store) })
	cut()
	ask := protocol.EnrollRequest{Token: "x", CSRPEM: csr(t, newKey(t))}
	h := b.client(nil).refused(503, protocol.ProblemUnavailable, protocol.PathEnroll, ask)
	require.Regexp(t, "^[2-8]$", h.Get("Retry-After"))
}
