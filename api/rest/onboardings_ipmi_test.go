package rest_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
)

// withBMC is an onboarding whose BMC has further fields.
func (w *world) withBMC(hostname string, fields map[string]any) map[string]any {
	body := w.onboarding(hostname)
	bmc := map[string]any{"address": "10.0.0.1", "credential_ref": "bmc/a"}
	maps.Copy(bmc, fields)
	body["bmc"] = bmc
	return body
}

func TestIPMIIsOptedIntoBMCByBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	for hostname, c := range map[string]struct {
		fields   map[string]any
		protocol string
		suite    int
	}{
		"gpu-1": {nil, "redfish", 17},
		"gpu-2": {map[string]any{"protocol": "ipmi", "address": "10.0.0.2:6230"}, "ipmi", 17},
		"gpu-3": {map[string]any{"protocol": "ipmi", "address": "10.0.0.3", "ipmi_cipher_suite": 3}, "ipmi", 3},
	} {
		var job jobAnswer
		w.post("/api/v1/admin/onboardings", w.withBMC(hostname, c.fields)).want(http.StatusAccepted).into(&job)
		got, err := w.store.BMCOfNode(t.Context(), job.NodeID)
		require.NoError(t, err)
		require.Equal(t, c.protocol, got.Protocol)
		require.Equal(t, c.suite, got.IPMICipherSuite)
		shown := string(w.do("GET", "/api/v1/admin/bmcs/"+got.ID, nil).want(http.StatusOK).raw)
		if c.protocol == "ipmi" {
			require.Contains(t, shown, `"ipmi_cipher_suite":`)
		} else {
			require.NotContains(t, shown, "ipmi_cipher_suite")
		}
	}
}

func TestWhatIPMIDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	for location, fields := range map[string]map[string]any{
		"body.bmc.address":           {"protocol": "ipmi", "address": "https://10.0.0.1"},
		"body.bmc.ipmi_cipher_suite": {"ipmi_cipher_suite": 3},
	} {
		p := w.post("/api/v1/admin/onboardings", w.withBMC("gpu-1", fields)).refused(problem.Invalid)
		require.Len(t, p.Errors, 1)
		require.Equal(t, location, p.Errors[0].Location)
	}
	for _, fields := range []map[string]any{{"protocol": "telnet"}, {"protocol": "ipmi", "ipmi_cipher_suite": 0}, {"protocol": "ipmi", "ipmi_cipher_suite": 1}} {
		w.post("/api/v1/admin/onboardings", w.withBMC("gpu-1", fields)).refused(problem.Invalid)
	}
}
