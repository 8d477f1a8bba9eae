package tenancy_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// running is an allocation whose node accepts all its keys, and its job has ended.
func (m *market) running() string {
	m.t.Helper()
	m.freeNode()
	id := m.create(nil)
	m.tx(func(tx *db.Tx) error {
		keys, err := allocationdb.ListKeys(m.t.Context(), tx, id)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if err := allocationdb.RecordKey(m.t.Context(), tx, id, k.Fingerprint, true); err != nil {
				return err
			}
		}
		_, err = allocationdb.Activate(m.t.Context(), tx, id, allocationdb.Connection{Host: "127.0.0.1"}, allocationdb.Image{ID: "i"}, job)
		if err != nil {
			return err
		}
		provision, err := tx.LiveJobOfResource(m.t.Context(), allocationdb.Resource, id)
		if err != nil {
			return err
		}
		for _, t := range []lifecycle.Transition[lifecycle.JobStatus]{lifecycle.JobStart, lifecycle.JobComplete} {
			if _, err := tx.TransitionJob(m.t.Context(), provision.ID, t, nil, db.Actor{Owner: lifecycle.OwnerSystem}); err != nil {
				return err
			}
		}
		return nil
	})
	return id
}

// liveJob returns the kind of the live job of an allocation, "" without one.
func (m *market) liveJob(id string) string {
	m.t.Helper()
	found, err := m.store.LiveJobsOfResources(m.t.Context(), allocationdb.Resource, []string{id})
	require.NoError(m.t, err)
	if len(found) == 0 {
		return ""
	}
	return found[0].Kind
}

func (m *market) shown(id string) tenancy.Allocation {
	m.t.Helper()
	var out tenancy.Allocation
	require.NoError(m.t, json.Unmarshal(m.do(m.owner, "GET", m.base+"/"+id, nil).want(http.StatusOK).raw, &out))
	return out
}

// TestKeys_EndWithTheirMember: whatever ends a member's keys starts the job that takes them off the
// nodes, with the answer of that call.
func TestKeys_EndWithTheirMember(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(m *market, bob, member, key string){
		"the key is deleted": func(m *market, bob, _, key string) {
			m.do(bob, "DELETE", "/projects/"+m.project+"/ssh-keys/"+key, nil).want(http.StatusNoContent)
		},
		"the member is removed": func(m *market, _, member, _ string) {
			m.do(m.owner, "DELETE", "/projects/"+m.project+"/members/"+member, nil).want(http.StatusNoContent)
		},
		"the member leaves": func(m *market, bob, member, _ string) {
			m.do(bob, "DELETE", "/projects/"+m.project+"/members/"+member, nil).want(http.StatusNoContent)
		},
		"the member becomes viewer": func(m *market, _, member, _ string) {
			m.do(m.owner, "PATCH", "/projects/"+m.project+"/members/"+member, map[string]any{"role": "viewer"}).want(http.StatusOK)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMarket(t)
			bob, member := m.addMember(m.tenant, "bob", "member")
			key := m.do(bob, "POST", "/projects/"+m.project+"/ssh-keys", map[string]any{"name": "bobs", "public_key": publicKey(t)}).want(http.StatusCreated)
			id := m.running()
			require.Len(t, m.shown(id).SSHKeys, 2)
			end(m, bob, member, key.field("id"))
			require.Equal(t, "allocation_keys", m.liveJob(id))
			shown := m.shown(id)
			require.Equal(t, lifecycle.AllocationActive, shown.Status)
			require.Equal(t, 3, shown.Progress.Stages)
			for _, k := range shown.SSHKeys {
				require.Equal(t, k.Fingerprint == key.field("fingerprint"), k.WithdrawnAt != nil)
				require.Nil(t, k.RefusedAt, "nothing proves that yet")
			}
		})
	}
}

// TestSetAllocationKeys replaces the keys of an active allocation, by both paths.
func TestSetAllocationKeys(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	id := m.running()
	second := m.do(m.owner, "POST", "/projects/"+m.project+"/ssh-keys", map[string]any{"name": "second", "public_key": publicKey(t)}).want(http.StatusCreated)
	body := map[string]any{"ssh_key_ids": []string{second.field("id")}}
	require.Contains(t, m.shown(id).AllowedActions, "set_keys")

	viewer, _ := m.addMember(m.tenant, "eve", "viewer")
	m.do(viewer, "PUT", m.base+"/"+id+"/keys", body).want(http.StatusForbidden)
	m.do(m.token, "PUT", m.base+"/"+id+"/keys", body).want(http.StatusForbidden) // a token changes nobody's access
	m.do(m.owner, "PUT", m.base+"/"+id+"/keys", map[string]any{"ssh_key_ids": []string{}}).want(http.StatusUnprocessableEntity)
	m.do(m.owner, "PUT", m.base+"/"+id+"/keys", map[string]any{"ssh_key_ids": []string{"key_none"}}).want(http.StatusUnprocessableEntity)
	m.do(m.newTenant("beta").owner, "PUT", "/allocations/"+id+"/keys", body).want(http.StatusNotFound)
	require.Empty(t, m.liveJob(id))

	for _, path := range []string{m.base + "/" + id + "/keys", "/allocations/" + id + "/keys"} {
		m.do(m.owner, "PUT", path, body).want(http.StatusAccepted)
		shown := m.shown(id)
		require.Len(t, shown.SSHKeys, 2)
		for _, k := range shown.SSHKeys {
			require.Equal(t, k.Fingerprint != second.field("fingerprint"), k.WithdrawnAt != nil)
		}
	}
	require.Equal(t, "allocation_keys", m.liveJob(id))
	var audited int
	require.NoError(t, m.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE name = 'set_allocation_keys'").Scan(&audited))
	require.Equal(t, 1, audited, "a repetition changes nothing")

	m.do(m.owner, "POST", m.base+"/"+id+"/release", nil).want(http.StatusAccepted)
	m.do(m.owner, "PUT", m.base+"/"+id+"/keys", body).want(http.StatusConflict)
}
