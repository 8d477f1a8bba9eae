package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/bounds"
)

// Every field of every request has bounds: path, query, headers and body.
func TestInputs_HaveBounds(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	api, err := httpapi.New(httpapi.Config{API: op.Config{Store: store}, REST: rest.Config{Temporal: &engine{}, Secrets: sealed(t, store)}})
	require.NoError(t, err)
	require.Greater(t, len(api.Inputs()), 80)
	for _, in := range api.Inputs() {
		for _, missing := range bounds.Missing(in) {
			t.Error(missing)
		}
	}
}

func TestRequests_OutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	node := dbtest.Node(t, w.store)
	secret := func(name string) map[string]any { return map[string]any{"name": name, "value": "x", "use": bmcUse} }
	sku := func(field string, v any) map[string]any {
		return map[string]any{"name": "x", "spec": map[string]any{field: v}}
	}
	site := func(field string, v any) map[string]any {
		return map[string]any{"name": "x", "spec": map[string]any{"maas_url": "https://m.example/MAAS", "maas_api_key_ref": "maas/a", field: v}}
	}
	reason := func(s string) map[string]any { return map[string]any{"reason": s} }
	labels := map[string]any{}
	for i := range 200 {
		labels[strings.Repeat("k", 1+i%60)+string(rune('a'+i%26))+strings.Repeat("z", i/60)] = "v"
	}
	for name, c := range map[string]struct {
		method, path string
		body         any
		wrong        string
	}{
		"negative GPUs":       {"POST", "/admin/skus", sku("gpus", -8), "body.spec.gpus"},
		"GPUs":                {"POST", "/admin/skus", sku("gpus", 1<<40), "body.spec.gpus"},
		"fraction":            {"POST", "/admin/skus", sku("gpus", 0.5), "body.spec.gpus"},
		"model with bidi":     {"POST", "/admin/skus", sku("gpu_model_contains", "H\u202e100"), "body.spec.gpu_model_contains"},
		"port":                {"POST", "/admin/maas-sites", site("ssh_port", 99999), "body.spec.ssh_port"},
		"user with control":   {"POST", "/admin/maas-sites", site("ssh_user", "root\x1b[2J"), "body.spec.ssh_user"},
		"certificates":        {"POST", "/admin/maas-sites", site("maas_ca_pem", strings.Repeat("x", 70_000)), "body.spec.maas_ca_pem"},
		"secret path":         {"PUT", "/admin/secrets", secret("../../x"), "body.name"},
		"secret path within":  {"PUT", "/admin/secrets", secret("bmc/../../x"), "body.name"},
		"secret double":       {"PUT", "/admin/secrets", secret("bmc//x"), "body.name"},
		"limit":               {"GET", "/nodes?limit=-1", nil, "query.limit"},
		"limit of a billion":  {"GET", "/nodes?limit=1000000000", nil, "query.limit"},
		"cursor":              {"GET", "/nodes?cursor=%21%21", nil, "query.cursor"},
		"offset":              {"GET", "/nodes/" + node.ID + "/history?offset=-1", nil, "query.offset"},
		"reason of 1 MB":      {"POST", "/nodes/" + node.ID + "/actions/quarantine", reason(strings.Repeat("x", 1<<20-100)), "body.reason"},
		"reason with bidi":    {"POST", "/nodes/" + node.ID + "/actions/quarantine", reason("fine \u2066 not"), "body.reason"},
		"reason with NUL":     {"POST", "/nodes/" + node.ID + "/actions/quarantine", reason("a\x00b"), "body.reason"},
		"grace":               {"POST", "/nodes/" + node.ID + "/actions/drain", map[string]any{"grace_seconds": -5}, "body.grace_seconds"},
		"labels":              {"PATCH", "/nodes/" + node.ID, map[string]any{"labels": labels}, "body.labels"},
		"label key":           {"PATCH", "/nodes/" + node.ID, map[string]any{"labels": map[string]any{strings.Repeat("k", 300): "v"}}, "body.labels"},
		"token life":          {"POST", "/admin/api-tokens", map[string]any{"name": "x", "roles": []string{"viewer"}, "ttl": "-1h"}, "body.ttl"},
		"token life for ever": {"POST", "/admin/api-tokens", map[string]any{"name": "x", "roles": []string{"viewer"}, "ttl": "87601h"}, "body.ttl"},
	} {
		a := w.do(c.method, op.Prefix+c.path, c.body, header{"Idempotency-Key": "k-" + strings.ReplaceAll(name, " ", "-"), "If-Match": "*"})
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", name, a.raw)
		p := a.refused(problem.Invalid)
		require.Equal(t, c.wrong, locations(p), name)
		require.Less(t, len(a.raw), 4000, "%s: a value is not repeated", name)
	}
	w.do("POST", op.Prefix+"/admin/skus", sku("gpus", 8), header{"Idempotency-Key": strings.Repeat("k", 300)}).refused(problem.Invalid)
}
