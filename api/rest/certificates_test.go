package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/providers"
)

func TestCertificatesOfANodeCanBeVerifiedAsTheyAreAnswered(t *testing.T) {
	t.Parallel()
	var sealed providers.Secrets
	w := newWorld(t, func(c *httpapi.Config) { sealed = c.REST.Secrets })
	node := dbtest.Node(t, w.store)
	path := "/api/v1/nodes/" + node.ID + "/certificates"
	w.do("GET", "/api/v1/nodes/node_none/certificates", nil).refused(problem.NotFound)

	var none rest.Certificates
	w.do("GET", path, nil).want(http.StatusOK).into(&none)
	require.Empty(t, none.Data)
	_, problems := evidence.Verify(none.Bundle, none.Keys)
	require.Empty(t, problems)

	ring := &signing.Ring{Store: w.store, Secrets: sealed}
	for _, run := range []string{"job_1", "job_2"} {
		_, err := ring.Certify(t.Context(), evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname},
			Run:     evidence.Run{ID: run, Kind: "decommission", Mode: "soft_reset"}, Simulated: true,
			Devices: []lifecycle.DeviceResult{{Kind: "gpu", Name: "0", Serial: "G1", Method: lifecycle.SanitizeClear, Verified: run == "job_2"}},
		})
		require.NoError(t, err)
	}
	var got rest.Certificates
	w.do("GET", path, nil).want(http.StatusOK).into(&got)
	require.Len(t, got.Data, 2)
	require.Equal(t, evidence.VerdictNotVerified, got.Data[0].Verdict)
	require.Equal(t, evidence.VerdictClean, got.Data[1].Verdict)
	_, problems = evidence.Verify(got.Bundle, got.Keys)
	require.Empty(t, problems)
	got.Certificates[0].Payload[20] ^= 1
	_, problems = evidence.Verify(got.Bundle, got.Keys)
	require.NotEmpty(t, problems)
}
