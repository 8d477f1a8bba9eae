package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// Every POST that creates goes through the same matrix.
func TestIdempotencyMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	site := map[string]any{"maas_url": "https://maas.example:5240/MAAS", "maas_api_key_ref": "maas/north"}
	item := func(host string) map[string]any {
		return map[string]any{"hostname": host, "bmc": map[string]any{"address": "10.0.0.2", "credential_ref": "bmc/a"}}
	}
	manual := func(host string) map[string]any {
		return map[string]any{"site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID, "hostname": host}
	}
	hand := w.post("/api/v1/admin/nodes", manual("by-hand")).want(http.StatusCreated)
	var bundle struct{ Node struct{ ID string } }
	hand.into(&bundle)
	batch := func(host string) map[string]any {
		return map[string]any{"site_id": w.site.ID, "profile_id": w.profile.ID, "sku_id": w.sku.ID, "items": []any{item(host)}}
	}
	bmc, _ := w.bmc(nil)
	for path, c := range map[string]struct {
		status      int
		body, other any
		oneTime     bool
	}{
		"/api/v1/admin/maas-sites":                             {201, map[string]any{"name": "s1", "spec": site}, map[string]any{"name": "s2", "spec": site}, false},
		"/api/v1/admin/maas-sites/" + w.site.ID + "/profiles":  {201, map[string]any{"name": "p1"}, map[string]any{"name": "p2"}, false},
		"/api/v1/admin/skus":                                   {201, map[string]any{"name": "k1"}, map[string]any{"name": "k2"}, false},
		"/api/v1/admin/api-tokens":                             {201, map[string]any{"name": "t1", "roles": []string{"viewer"}}, map[string]any{"name": "t2", "roles": []string{"viewer"}}, true},
		"/api/v1/admin/nodes":                                  {201, manual("m1"), manual("m2"), true},
		"/api/v1/admin/onboardings":                            {202, w.onboarding("o1"), w.withBMC("o2", map[string]any{"address": "10.0.0.9"}), false},
		"/api/v1/admin/bmcs/" + bmc.ID + "/rotations":          {202, map[string]any{"reason": "a"}, nil, false},
		"/api/v1/admin/onboarding-batches":                     {202, batch("b1"), batch("b2"), false},
		"/api/v1/admin/nodes/" + bundle.Node.ID + "/bootstrap": {201, nil, nil, true},
	} {
		t.Run(path, func(t *testing.T) {
			w.do("POST", path, c.body).refused(problem.KeyMissing)
			w.do("POST", path, c.body, header{"Idempotency-Key": "with space"}).refused(problem.Invalid)
			key := header{"Idempotency-Key": db.NewID("key")}
			first := w.do("POST", path, c.body, key).want(c.status)
			require.Empty(t, first.header.Get("Idempotency-Replayed"))
			again := w.do("POST", path, c.body, header{"X-Idempotency-Key": key["Idempotency-Key"]}).want(c.status)
			require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
			require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
			require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"))
			var want, got map[string]any
			first.into(&want)
			again.into(&got)
			if c.oneTime {
				require.NotEmpty(t, want["token"])
				require.Nil(t, got["token"], "a one-time secret is shown once")
				delete(want, "token")
			}
			require.Equal(t, want, got)
			if c.other != nil {
				w.do("POST", path, c.other, key).refused(problem.KeyReused)
				// Another principal's key is another key.
				w.do("POST", path, c.other, key, header{"Authorization": "Bearer " + otherAdmin(t, w)}).want(c.status)
			}
		})
	}
}

func TestAKeyInUseAnswers409(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	who := "token:the-admin:" + w.do("GET", "/api/v1/admin/api-tokens?limit=200", nil).idOfName("the-admin")
	const path = "/api/v1/admin/skus"
	err := w.store.Tx(t.Context(), func(tx *db.Tx) error {
		state, _, err := tx.BeginIdempotent(t.Context(), who, "POST "+path, "k", []byte("x"))
		require.NoError(t, err)
		require.Equal(t, db.IdempotencyNew, state)
		p := w.do("POST", path, map[string]any{"name": "k"}, header{"Idempotency-Key": "k"})
		p.refused(problem.KeyInFlight)
		require.NotEmpty(t, p.header.Get("Retry-After"))
		return fmt.Errorf("give the key back")
	})
	require.Error(t, err)
	w.do("POST", path, map[string]any{"name": "k"}, header{"Idempotency-Key": "k"}).want(http.StatusCreated)
}

// A request that fails leaves nothing, so that it can be repeated when its
// cause is fixed.
func TestAFailedRequestGivesItsKeyBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	node := dbtest.Node(t, w.store, dbtest.At(w.site.ID), dbtest.Hostname("busy"), dbtest.Active())
	key := header{"Idempotency-Key": "again"}
	p := w.do("POST", "/api/v1/admin/onboardings", w.onboarding("busy"), key).refused(problem.Conflict)
	require.Equal(t, node.ID, p.Existing)
	w.do("POST", "/api/v1/admin/onboardings", w.onboarding("free"), key).want(http.StatusAccepted)
}

func TestManyAtOnceMakeOneJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids, statuses := map[string]bool{}, map[int]int{}
	for i := range 8 {
		wg.Go(func() {
			a := w.do("POST", "/api/v1/admin/onboardings", w.onboarding("race"), header{"Idempotency-Key": fmt.Sprintf("k%d", i%2)})
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
			if a.status == http.StatusAccepted {
				ids[a.id()] = true
			}
		})
	}
	wg.Wait()
	require.Len(t, ids, 1, statuses)
	require.Equal(t, 8, statuses[http.StatusAccepted]+statuses[http.StatusConflict], statuses)
	jobs, err := w.store.ListJobs(t.Context(), db.JobFilter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
}

func otherAdmin(t *testing.T, w *world) string {
	t.Helper()
	var v struct{ Token string }
	w.post("/api/v1/admin/api-tokens", map[string]any{"name": "other", "roles": []string{"admin"}}).want(http.StatusCreated).into(&v)
	return v.Token
}

func (a answer) idOfName(name string) string {
	a.t.Helper()
	var v struct{ Data []struct{ ID, Name string } }
	require.NoError(a.t, json.Unmarshal(a.raw, &v))
	for _, d := range v.Data {
		if d.Name == name {
			return d.ID
		}
	}
	require.Fail(a.t, "no "+name, string(a.raw))
	return ""
}
