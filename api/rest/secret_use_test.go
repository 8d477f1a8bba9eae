package rest_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// locations lists the fields that a problem names.
func locations(p problem.Problem) string {
	var all []string
	for _, f := range p.Errors {
		all = append(all, f.Location)
	}
	return strings.Join(all, " ")
}

func TestSecretUse_RequiredAndAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	secret := map[string]any{"name": "bmc/x", "value": `{"username":"root","password":"v4lue"}`}
	with := func(use map[string]any) map[string]any {
		body := maps.Clone(secret)
		body["use"] = use
		return body
	}
	w.do("PUT", "/api/v1/admin/secrets", secret).refused(problem.Invalid)
	for name, tc := range map[string]struct {
		use   map[string]any
		wrong string
	}{
		"no target":    {map[string]any{"kind": "bmc_login"}, "body.use.sites"},
		"own kind":     {map[string]any{"kind": "internal", "installation": true}, "body.use.kind"},
		"two scopes":   {map[string]any{"kind": "bmc_login", "installation": true, "sites": []string{w.site.ID}}, "body.use.installation"},
		"host bits":    {map[string]any{"kind": "bmc_login", "networks": []string{"10.0.0.1/8"}}, "body.use.networks"},
		"unknown site": {map[string]any{"kind": "maas_key", "sites": []string{"site_none"}}, "body.use.sites[0]"},
	} {
		require.Contains(t, locations(w.do("PUT", "/api/v1/admin/secrets", with(tc.use)).refused(problem.Invalid)), tc.wrong, name)
	}
	login := with(map[string]any{"kind": "bmc_login", "sites": []string{w.site.ID}})
	for _, value := range []string{"v4lue", `{"user":"root","password":"v4lue"}`, `["root"]`} {
		wrong := maps.Clone(login)
		wrong["value"] = value
		a := w.do("PUT", "/api/v1/admin/secrets", wrong)
		require.Equal(t, "body.value", locations(a.refused(problem.Invalid)))
		require.NotContains(t, string(a.raw), "v4lue")
	}
	w.do("PUT", "/api/v1/admin/secrets", login).want(http.StatusOK)

	change := map[string]any{"name": "bmc/x", "use": map[string]any{"kind": "bmc_login", "installation": true}}
	operator := header{"Authorization": "Bearer " + w.tokens["operator"]}
	w.do("PUT", "/api/v1/admin/secret-uses", change, operator).refused(problem.Forbidden)
	w.do("PUT", "/api/v1/admin/secret-uses", change).want(http.StatusOK)
	w.do("PUT", "/api/v1/admin/secret-uses", map[string]any{"name": "bmc/none", "use": change["use"]}).refused(problem.NotFound)
	rows, err := w.store.ResourceTimeline(t.Context(), "secret", "bmc/x", 0, 10)
	require.NoError(t, err)
	require.Equal(t, "state_use", rows[0].Name)
	require.JSONEq(t, `{"use": {"kind": "bmc_login", "installation": true}, "old_use": {"kind": "bmc_login", "sites": ["`+w.site.ID+`"]}}`, string(rows[0].Metadata))
}

// TestOnboarding_LoginOfAnotherTarget: an operator names a stored login and an address of his
// choice.
func TestOnboarding_LoginOfAnotherTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	other := dbtest.Site(t, w.store)
	for name, use := range map[string]map[string]any{
		"bmc/other": {"kind": "bmc_login", "sites": []string{other.ID}}, "maas/key": {"kind": "maas_key", "sites": []string{w.site.ID}},
		"bmc/site": {"kind": "bmc_login", "sites": []string{w.site.ID}},
	} {
		w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": name, "value": `{"username":"root","password":"calvin"}`, "use": use}).want(http.StatusOK)
	}
	site := w.site
	site.Spec.Simulated = false
	_, err := w.store.UpdateSite(t.Context(), site.ID, site.Version, site.Name, site.Spec)
	require.NoError(t, err)
	for name, tc := range map[string]struct{ address, ref, wrong string }{
		"another site's login":     {"10.0.0.1", "bmc/other", "body.bmc.credential_ref"},
		"a secret of another kind": {"10.0.0.1", "maas/key", "body.bmc.credential_ref"},
		"outside bmc_networks":     {"203.0.113.9", "bmc/site", "body.bmc.address"},
		"plain http":               {"http://10.0.0.1", "bmc/site", "body.bmc.address"},
		"loopback":                 {"https://127.0.0.1:8443", "bmc/site", "body.bmc.address"},
		"loopback, mapped":         {"https://[::ffff:127.0.0.1]", "bmc/site", "body.bmc.address"},
		"metadata":                 {"169.254.169.254", "bmc/site", "body.bmc.address"},
	} {
		body := w.onboarding("gpu-1")
		body["bmc"] = map[string]any{"address": tc.address, "credential_ref": tc.ref}
		a := w.do("POST", "/api/v1/admin/onboardings/plan", body, header{"Authorization": "Bearer " + w.tokens["operator"]})
		require.Equal(t, tc.wrong, locations(a.refused(problem.Invalid)), name)
	}
}
