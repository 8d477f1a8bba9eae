package rest_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Sites, profiles, SKUs, RoCE assignments: read, change by version, delete.
func TestResourcesAreChangedByVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	spec := map[string]any{"maas_url": "https://maas.example:5240/MAAS", "maas_api_key_ref": "maas/north"}
	free := dbtest.Site(t, w.store)
	profile := dbtest.Profile(t, w.store, dbtest.At(w.site.ID))
	sku := dbtest.SKU(t, w.store)
	roce := "/api/v1/admin/maas-sites/" + w.site.ID + "/roce-assignments/gpu-1"
	ports := map[string]any{"ports": []any{map[string]any{"interface": "ens1", "mtu": 9000, "subnet_cidr": "10.1.0.0/24", "ip": "10.1.0.7"}}}
	w.do("PUT", roce, ports, header{"If-Match": `"1"`}).refused(problem.Stale)
	w.do("PUT", roce, ports).want(http.StatusOK)
	for path, body := range map[string]any{
		"/api/v1/admin/maas-sites/" + free.ID:                               map[string]any{"name": "south", "spec": spec},
		"/api/v1/admin/maas-sites/" + w.site.ID + "/profiles/" + profile.ID: map[string]any{"name": "fast", "spec": map[string]any{"poll_interval": "1s"}},
		"/api/v1/admin/skus/" + sku.ID:                                      map[string]any{"name": "a100", "spec": map[string]any{"gpus": 8}},
		roce:                                                                ports,
	} {
		t.Run(path, func(t *testing.T) {
			tag := w.do("GET", path, nil).want(http.StatusOK).header.Get("ETag")
			require.Equal(t, `"1"`, tag)
			if path != roce {
				w.do("PUT", path, body).refused(problem.VersionMissing)
			}
			w.do("PUT", path, body, header{"If-Match": "x"}).refused(problem.Invalid)
			a := w.do("PUT", path, body, header{"If-Match": tag}).want(http.StatusOK)
			require.Equal(t, `"2"`, a.header.Get("ETag"))
			w.do("PUT", path, body, header{"If-Match": tag}).refused(problem.Stale)
			w.do("PUT", path, body, header{"If-Match": "*"}).want(http.StatusOK)
			w.do("DELETE", path, nil).refused(problem.VersionMissing)
			w.do("DELETE", path, nil, header{"If-Match": tag}).refused(problem.Stale)
			w.do("DELETE", path, nil, header{"If-Match": `"3"`}).want(http.StatusNoContent)
			w.do("GET", path, nil).refused(problem.NotFound)
			w.do("DELETE", path, nil, header{"If-Match": `"3"`}).refused(problem.NotFound)
		})
	}
	used := w.do("DELETE", "/api/v1/admin/maas-sites/"+w.site.ID, nil, header{"If-Match": "*"}).refused(problem.Conflict)
	require.Equal(t, "Site "+w.site.ID+" cannot be deleted: it is used by profiles; delete those first.", used.Detail)
	w.do("GET", "/api/v1/admin/maas-sites/"+free.ID+"/profiles/"+w.profile.ID, nil).refused(problem.NotFound)
	p := w.post("/api/v1/admin/skus", map[string]any{"name": "h100x8"}).refused(problem.Conflict)
	require.Equal(t, w.sku.ID, p.Existing)
	rows, err := w.store.ResourceTimeline(t.Context(), "sku", sku.ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"delete", "update", "update"}, []string{rows[0].Name, rows[1].Name, rows[2].Name})
}

func TestWrongInputIsNamedAllAtOnceAndNeverRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	bad := w.onboarding("Not_A_Host")
	bad["site_id"], bad["profile_id"], bad["sku_id"] = "site_none", "prof_none", "node_x"
	bad["bmc"] = map[string]any{"address": "root:hunter2@10.0.0.1", "credential_ref": "nowhere"}
	a := w.post("/api/v1/admin/onboardings", bad)
	require.Equal(t, "body.site_id body.profile_id body.sku_id body.hostname body.bmc.address body.bmc.credential_ref", locations(a.refused(problem.Invalid)))
	require.NotContains(t, string(a.raw), "hunter2")

	elsewhere := dbtest.Profile(t, w.store)
	other := w.onboarding("gpu-1")
	other["profile_id"] = elsewhere.ID
	require.Equal(t, "body.profile_id", locations(w.post("/api/v1/admin/onboardings", other).refused(problem.Invalid)))

	a = w.post("/api/v1/admin/maas-sites", map[string]any{"name": "x", "spec": map[string]any{"maas_url": "ftp://x", "maas_api_key_ref": "A B"}})
	require.Equal(t, "body.spec.maas_url body.spec.maas_api_key_ref", locations(a.refused(problem.Invalid)))
	w.post("/api/v1/admin/maas-sites", map[string]any{"name": "site_01234567-", "spec": map[string]any{}}).refused(problem.Invalid)
	a = w.post("/api/v1/admin/maas-sites/"+w.site.ID+"/profiles", map[string]any{"name": "x", "spec": map[string]any{"stage_deadlines": map[string]any{"nap": "1m"}}})
	require.Equal(t, "body.spec.stage_deadlines.nap", locations(a.refused(problem.Invalid)))
	require.Contains(t, string(a.raw), "deploy_via_maas")

	a = w.do("PUT", "/api/v1/admin/secrets", map[string]any{"name": "x", "value": "s3cr3t", "extra": "s3cr3t"})
	a.refused(problem.Invalid)
	require.NotContains(t, string(a.raw), "s3cr3t")
	a = w.do("PUT", "/api/v1/admin/secrets", `{"name": "x", "value": "s3cr3t`)
	a.refused(problem.Malformed)
	require.NotContains(t, string(a.raw), "s3cr3t")
	for _, own := range []string{payloadcodec.KeyName, "slipway/signing/tsk_1", "slipway/node-ca", "slipway/another"} {
		w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": own, "value": "v"}).refused(problem.Invalid)
		w.do("GET", "/api/v1/admin/secrets?name="+own, nil).refused(problem.Invalid)
		a = w.post("/api/v1/admin/maas-sites", map[string]any{"name": "x", "spec": map[string]any{"maas_url": "https://maas.example/MAAS", "maas_api_key_ref": own}})
		require.Equal(t, "body.spec.maas_api_key_ref", locations(a.refused(problem.Invalid)))
	}
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "NOT OK", "value": "v"}).refused(problem.Invalid)
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "big", "value": strings.Repeat("x", 65<<10)}).refused(problem.Invalid)
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "big", "value": strings.Repeat("x", 2<<20)}).refused(problem.TooLarge)
	w.do("PUT", "/api/v1/admin/secrets", "<x/>", header{"Content-Type": "application/xml"}).refused(problem.UnsupportedMedia)
	for _, q := range []string{"limit=0", "limit=201", "limit=x", "cursor=%21", "status=asleep", "except_status=asleep", "colour=red"} {
		w.do("GET", "/api/v1/nodes?"+q, nil).refused(problem.Invalid)
	}
	for _, ports := range []any{
		[]any{map[string]any{"interface": ""}},
		[]any{map[string]any{"interface": "a", "ip": "10.9.0.1", "subnet_cidr": "10.1.0.0/24"}},
		[]any{map[string]any{"interface": "a"}, map[string]any{"interface": "a"}},
		[]any{map[string]any{"interface": "02:00:00:00:00:0A"}, map[string]any{"interface": "02:00:00:00:00:0a"}},
		[]any{map[string]any{"interface": "ens1 f0"}},
		[]any{map[string]any{"interface": "a", "mtu": 551}},
		[]any{map[string]any{"interface": "a", "mtu": 65536}},
		[]any{map[string]any{"interface": "a", "subnet_cidr": "10.1.0.7/24"}},
		[]any{map[string]any{"interface": "a", "ip": "10.1.0.0", "subnet_cidr": "10.1.0.0/24"}},
		[]any{map[string]any{"interface": "a", "ip": "10.1.0.255", "subnet_cidr": "10.1.0.0/24"}},
		[]any{map[string]any{"interface": "a", "ip": "fe80::1%eth0", "subnet_cidr": "fe80::/64"}},
		[]any{map[string]any{"interface": "a", "ip": "10.1.0.7", "subnet_cidr": "10.1.0.0/24"}, map[string]any{"interface": "b", "ip": "10.1.0.7", "subnet_cidr": "10.1.0.0/24"}},
		[]any{map[string]any{"interface": "a", "tags": []any{"roce,fast"}}},
		[]any{map[string]any{"interface": "a", "tags": []any{""}}},
	} {
		w.do("PUT", "/api/v1/admin/maas-sites/"+w.site.ID+"/roce-assignments/gpu-1", map[string]any{"ports": ports}).refused(problem.Invalid)
	}
	for _, ports := range []any{
		[]any{map[string]any{"interface": "a", "mtu": 552, "ip": "10.1.0.0", "subnet_cidr": "10.1.0.0/31"}, map[string]any{"interface": "b", "mtu": 65535}},
		[]any{map[string]any{"interface": "a", "ip": "10.1.0.7", "subnet_cidr": "10.1.0.7/32", "tags": []any{"roce"}}},
	} {
		w.do("PUT", "/api/v1/admin/maas-sites/"+w.site.ID+"/roce-assignments/gpu-1", map[string]any{"ports": ports}).want(http.StatusOK)
	}
}

func TestSecretsAreNeverAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, want := range []string{"k@1", "k@1"} {
		a := w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "k", "value": `{"username":"root","password":"v4lue"}`}).want(http.StatusOK)
		require.Contains(t, string(a.raw), `"reference":"`+want+`"`)
		require.NotContains(t, string(a.raw), "v4lue")
	}
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "k", "value": `{"username":"root","password":"other"}`}).want(http.StatusOK)
	a := w.do("GET", "/api/v1/admin/secrets?name=k", nil).want(http.StatusOK)
	require.JSONEq(t, `{"name":"k","version":2,"reference":"k@2"}`, string(a.raw))
	w.do("GET", "/api/v1/admin/secrets?name=none", nil).refused(problem.NotFound)
	w.do("GET", "/api/v1/admin/secrets?name=_slipway/fingerprint-key", nil).refused(problem.Invalid)
	w.do("PUT", "/api/v1/admin/secrets", map[string]any{"use": bmcUse, "name": "bmc/a", "value": `{"username":"root","password":"v4lue"}`}).want(http.StatusOK)
	var list struct{ Data []rest.StoredSecret }
	a = w.do("GET", "/api/v1/admin/secret-names", nil, header{"Authorization": "Bearer " + w.tokens["operator"]}).want(http.StatusOK)
	require.NotContains(t, string(a.raw), "v4lue")
	a.into(&list)
	stored := map[string]rest.StoredSecret{}
	for _, one := range list.Data {
		stored[one.Name] = one
		require.NotContains(t, one.Name, "_slipway")
	}
	require.Equal(t, rest.Secret{Name: "k", Version: 2, Reference: "k@2"}, stored["k"].Secret)
	require.Equal(t, 2, stored["k"].Versions)
	require.False(t, stored["k"].StoredAt.Before(stored["k"].FirstStoredAt))
	w.do("GET", "/api/v1/admin/secret-names?prefix=bmc/a", nil).want(http.StatusOK).into(&list)
	require.Len(t, list.Data, 1)
	w.do("GET", "/api/v1/admin/secret-names", nil, header{"Authorization": "Bearer " + w.tokens["viewer"]}).refused(problem.Forbidden)
}

func TestProbe(t *testing.T) {
	t.Parallel()
	var fails error
	w := newWorld(t, func(c *httpapi.Config) {
		c.REST.MAASProbe = func(_ context.Context, _ string, s spec.SiteSpec) (any, error) {
			return map[string]string{"version": "3.5", "at": s.MAASURL}, fails
		}
	}).ready()
	path := "/api/v1/admin/maas-sites/" + w.site.ID + "/probe"
	require.Contains(t, string(w.do("POST", path, nil).want(http.StatusOK).raw), `"version":"3.5"`)
	fails = &providers.Error{Kind: providers.KindUnreachable, Op: "maas.version", Message: "no answer from maas.example", Err: errors.New("secret detail")}
	a := w.do("POST", path, nil)
	failed := a.refused(problem.OutsideFailed)
	require.Contains(t, failed.Detail, "No answer from maas.example")
	require.Equal(t, lifecycle.FailMAASUnavailable, failed.FailureClass)
	require.Equal(t, "/docs/runbooks/maas_unavailable", failed.Runbook, "where the page is served, below the public URL if one is set")
	require.NotContains(t, string(a.raw), "secret detail")
	fails = errors.New("secret detail")
	a = w.do("POST", path, nil)
	a.refused(problem.Internal)
	require.NotContains(t, string(a.raw), "secret detail")
}

func TestListsArePagedByCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		dbtest.SKU(t, w.store)
	}
	seen, cursor := map[string]bool{}, ""
	for range 3 {
		var page struct {
			Data       []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}
		w.do("GET", "/api/v1/admin/skus?limit=2&cursor="+cursor, nil).want(http.StatusOK).into(&page)
		for _, d := range page.Data {
			require.False(t, seen[d.ID])
			seen[d.ID] = true
		}
		cursor = page.NextCursor
	}
	require.Len(t, seen, 5)
	require.Empty(t, cursor)
	require.JSONEq(t, `{"data":[]}`, string(w.do("GET", "/api/v1/admin/skus?name=none", nil).want(http.StatusOK).raw))
}

func TestBMCPinAndLoginBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store)
	bmc, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &node.ID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	pin, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	require.NoError(t, w.store.SetBMCPinPending(t.Context(), bmc.ID, pin))
	require.NoError(t, w.store.BlockBMCLogin(t.Context(), bmc.ID, "rejected"))
	base := "/api/v1/admin/bmcs/" + bmc.ID
	require.Equal(t, pin, w.do("POST", base+"/actions/approve-pin", map[string]any{"pin_sha256": other}).refused(problem.Conflict).Existing)
	w.do("POST", base+"/actions/approve-pin", map[string]any{"pin_sha256": "zz"}).refused(problem.Invalid)
	for range 2 {
		require.Contains(t, string(w.do("POST", base+"/actions/approve-pin", map[string]any{"pin_sha256": pin}).want(http.StatusOK).raw), `"pin_sha256":"`+pin)
	}
	require.Contains(t, string(w.do("GET", base, nil).want(http.StatusOK).raw), "auth_blocked_at")
	require.NotContains(t, string(w.do("POST", base+"/actions/clear-auth-block", nil).want(http.StatusOK).raw), "auth_blocked_at")
	w.do("GET", "/api/v1/admin/bmcs/node_x", nil).refused(problem.NotFound)
	require.Contains(t, string(w.do("GET", "/api/v1/nodes/"+node.ID+"/timeline", nil).raw), "approve_pin")
}

// TestSKU_TenancyAndReserves: what a SKU says of its tenants is set, stays when it is left out, and
// does not change under a tenant.
func TestSKU_TenancyAndReserves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := dbtest.Site(t, w.store)
	body := func(more map[string]any) map[string]any {
		out := map[string]any{"name": "h200", "spec": map[string]any{"gpus": 8}}
		maps.Copy(out, more)
		return out
	}
	type sku struct {
		ID         string
		TenantRoot bool `json:"tenant_root"`
		Reserves   []struct {
			SiteID string `json:"site_id"`
			Nodes  int
		}
	}
	var made, got sku
	w.post("/api/v1/admin/skus", body(map[string]any{"tenant_root": false, "reserves": []any{map[string]any{"site_id": site.ID, "nodes": 2}}})).
		want(http.StatusCreated).into(&made)
	require.False(t, made.TenantRoot)
	require.Len(t, made.Reserves, 1)
	one := "/api/v1/admin/skus/" + made.ID
	put := func(more map[string]any) answer { return w.do("PUT", one, body(more), header{"If-Match": "*"}) }
	put(nil).want(http.StatusOK).into(&got)
	require.Equal(t, made, got, "what is left out stays")
	require.Contains(t, string(w.do("GET", "/api/v1/admin/skus?name=h200", nil).want(http.StatusOK).raw), `"nodes":2`)
	got = sku{}
	put(map[string]any{"tenant_root": true, "reserves": []any{}}).want(http.StatusOK).into(&got)
	require.True(t, got.TenantRoot)
	require.Empty(t, got.Reserves)

	put(map[string]any{"reserves": []any{map[string]any{"site_id": "site_none", "nodes": 1}}}).refused(problem.Invalid)
	twice := map[string]any{"site_id": site.ID, "nodes": 1}
	put(map[string]any{"reserves": []any{twice, twice}}).refused(problem.Invalid)
	put(map[string]any{"reserves": []any{map[string]any{"site_id": site.ID, "nodes": 0}}}).refused(problem.Invalid)

	a := dbtest.Occupy(t, w.store, dbtest.Node(t, w.store, dbtest.Of(made.ID), dbtest.Active()).ID)
	put(map[string]any{"tenant_root": true}).want(http.StatusOK)
	put(map[string]any{"tenant_root": false}).refused(problem.Conflict)
	dbtest.EndTenancy(t, w.store, a.ID)
	put(map[string]any{"tenant_root": false}).refused(problem.Conflict) // he left, and nothing proves the node clean
	_, err := w.store.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = NULL")
	require.NoError(t, err)
	put(map[string]any{"tenant_root": false}).want(http.StatusOK)
}
