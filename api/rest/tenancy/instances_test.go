package tenancy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInstances_OfAProject: its members make, read and end its instances, within the limit, and see
// nothing of the provider's account.
func TestInstances_OfAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.addInstance(v)
	at := "/projects/" + v.project + "/instances"
	types := string(w.do(v.token, "GET", "/instance-types", nil).want(http.StatusOK).raw)
	require.Contains(t, types, "MOCK-GPU")
	require.NotContains(t, types, "L4-1-24G", "Scaleway is not configured")
	key := header{"Idempotency-Key": "two"}
	second := w.do(v.owner, "POST", at, instanceBody("second"), key).want(http.StatusAccepted).field("id")
	require.Equal(t, second, w.do(v.owner, "POST", at, instanceBody("second"), key).want(http.StatusAccepted).field("id"), "the answer may have been lost")
	require.Contains(t, string(w.do(v.owner, "POST", at, instanceBody("third")).want(http.StatusConflict).raw), "may have 2")
	w.do(v.owner, "POST", at, map[string]any{"name": "x", "provider": "scaleway", "zone": "fr-par-2", "type": "L4-1-24G", "model": "m"}).want(http.StatusUnprocessableEntity)

	w.exec("UPDATE instances SET error_code = 'WAITING_FOR_WORKER_HEARTBEAT', error_message = 'secret-message', ip_address = '192.0.2.77', server_id = 'secret-server' WHERE id = $1", second)
	w.exec(`INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms, error_message, metadata)
		SELECT 'act_1', job_id, 99, 's', 1, 'PROVIDER_CREATE', 'orchestrator', 'failed', now(), now(), 0, 'secret-message', '{"server_id": "secret-server"}' FROM instances WHERE id = $1`, second)
	for _, path := range []string{at, at + "/" + second, at + "/" + second + "/action-logs"} {
		text := string(w.do(v.owner, "GET", path, nil).want(http.StatusOK).raw)
		require.NotContains(t, text, "secret-", path)
		require.NotContains(t, text, "192.0.2.77", path)
	}
	require.Contains(t, string(w.do(v.owner, "GET", at+"/"+second+"/action-logs", nil).raw), "PROVIDER_CREATE")

	viewer, _ := w.addMember(v, "viewer", "viewer")
	w.do(viewer, "GET", at+"/"+second, nil).want(http.StatusOK)
	w.do(viewer, "POST", at+"/"+second+"/terminate", nil).want(http.StatusForbidden)
	ended := w.do(v.owner, "POST", at+"/"+second+"/terminate", map[string]any{"reason": "too slow"}).want(http.StatusOK)
	require.Equal(t, "terminating", ended.field("status"))
	w.do(v.owner, "POST", at+"/"+second+"/terminate", nil).want(http.StatusOK)
	log := string(w.do(v.owner, "GET", "/projects/"+v.project+"/audit-log", nil).want(http.StatusOK).raw)
	require.Contains(t, log, "create_instance")
	require.Contains(t, log, "too slow")
	require.Equal(t, 1, strings.Count(string(w.do(w.admin, "GET", "/admin/instances?status=terminating", nil).want(http.StatusOK).raw), second))
}

// TestInstances_EndWithTheirProject: a project that is closed ends its instances and is closing until they
// have ended, and one that has any is not deleted.
func TestInstances_EndWithTheirProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.addInstance(v)
	at := "/projects/" + v.project
	require.Contains(t, string(w.do(v.owner, "DELETE", at, nil).want(http.StatusConflict).raw), "instance "+v.ids["instance_id"])
	require.Equal(t, "closing", w.do(v.owner, "POST", at+"/close", nil).want(http.StatusOK).field("status"))
	require.Equal(t, "terminating", w.do(v.owner, "GET", at+"/instances/"+v.ids["instance_id"], nil).want(http.StatusOK).field("status"))
	w.do(v.owner, "POST", at+"/instances", instanceBody("late")).want(http.StatusConflict)
	w.exec("SET session_replication_role = replica; UPDATE instances SET status = 'terminated', terminated_at = now() WHERE project_id = '" + v.project + "'")
	require.Equal(t, "closed", w.do(v.owner, "POST", at+"/close", nil).want(http.StatusOK).field("status"))
}

// TestInstances_NoneForDepletedAccounts: whoever operates Slipway pays for an instance.
func TestInstances_NoneForDepletedAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.addInstance(v)
	at := "/projects/" + v.project + "/instances"
	w.exec("SET session_replication_role = replica; UPDATE account_balances SET depletions = 1 WHERE billing_account_id = '" + v.account + "'")
	require.Contains(t, string(w.do(v.owner, "POST", at, instanceBody("second")).want(http.StatusConflict).raw), "balance")
	w.do(w.admin, "POST", "/admin/instances", func() map[string]any { b := instanceBody("by-an-operator"); b["project_id"] = v.project; return b }()).want(http.StatusAccepted)
}
