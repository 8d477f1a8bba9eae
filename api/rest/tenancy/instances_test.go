package tenancy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/db"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
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

// TestInstances_EndWithTheirProject: a project that is closed ends its instances and is closing
// until they have ended, and one that has any is not deleted.
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

// TestInstances_ProgressIsFollowed: a member follows the stream of the project and sees each state
// and each step of an instance with its percentage, and nobody sees that of another project.
func TestInstances_ProgressIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, other := w.newTenant("alpha"), w.newTenant("beta")
	w.addInstance(v)
	w.addInstance(other)
	id := v.ids["instance_id"]
	job := db.Actor{Owner: lifecycle.OwnerJob}
	step := func(do func(*db.Tx, instancedb.Instance) error) {
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			i, err := instancedb.Lock(t.Context(), tx, id)
			if err != nil {
				return err
			}
			return do(tx, i)
		}))
	}
	reach := func(percent int) {
		step(func(tx *db.Tx, i instancedb.Instance) error {
			return instancedb.SetProgress(t.Context(), tx, i, percent, percent, "")
		})
	}
	move := func(to lifecycle.Transition[lifecycle.InstanceStatus]) {
		step(func(tx *db.Tx, i instancedb.Instance) error {
			_, err := instancedb.MoveTo(t.Context(), tx, i, instancedb.Move{To: to, Actor: job})
			return err
		})
	}
	reach(5)
	reach(20)
	move(lifecycle.InstanceBoot)
	reach(40)
	reach(40) // nothing new
	move(lifecycle.InstanceBecomeReady)
	w.relay()
	viewer, _ := w.addMember(v, "viewer", "viewer")
	text := w.followUntil(viewer, "/projects/"+v.project+"/events", `"progress_percent":100`)
	require.NotContains(t, text, other.ids["instance_id"])
	var seen []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, id) {
			continue
		}
		var e struct {
			Type    string
			Payload struct {
				Status  string
				Percent int `json:"progress_percent"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "data: ")), &e), line)
		seen = append(seen, fmt.Sprintf("%s %s %d", e.Type, e.Payload.Status, e.Payload.Percent))
	}
	require.Equal(t, []string{
		"instance.provisioning provisioning 0", "instance.progress provisioning 5", "instance.progress provisioning 20", "instance.booting booting 20",
		"instance.progress booting 40", "instance.ready ready 100",
	}, seen[:min(len(seen), 6)])
}

// TestInstances_AreCharged: a type gets a price by its dry run, an instance holds back an hour and
// is refused without it, and usage, days and statement name it.
func TestInstances_AreCharged(t *testing.T) {
	t.Parallel()
	m := &priced{market: newMarket(t)}
	price := map[string]any{"instance_type": "mock/MOCK-GPU", "currency": "USD", "rate_minor_per_hour": 600}
	m.do(m.admin, "POST", "/admin/prices/plan", map[string]any{"instance_type": "mock/NONE", "currency": "USD", "rate_minor_per_hour": 1}).want(http.StatusUnprocessableEntity)
	m.do(m.admin, "POST", "/admin/prices/plan", map[string]any{"currency": "USD", "rate_minor_per_hour": 1}).want(http.StatusUnprocessableEntity)
	price["plan_hash"] = m.do(m.admin, "POST", "/admin/prices/plan", price).want(http.StatusOK).field("plan_hash")
	m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusCreated)
	require.Len(t, list[tenancy.Price](t, m.do(m.admin, "GET", "/admin/prices?instance_type=mock%2FMOCK-GPU", nil)), 1)
	at := "/projects/" + m.project
	require.Contains(t, string(m.do(m.owner, "POST", at+"/instances", instanceBody("poor")).want(http.StatusConflict).raw), "6.00 USD an hour")
	m.adjust(5000, "").want(http.StatusCreated)
	id := m.do(m.owner, "POST", at+"/instances", instanceBody("one")).want(http.StatusAccepted).field("id")
	var b tenancy.Balance
	require.NoError(t, json.Unmarshal(m.do(m.owner, "GET", at+"/balance", nil).want(http.StatusOK).raw, &b))
	require.Equal(t, int64(600), b.HeldMinor)
	for _, to := range []lifecycle.Transition[lifecycle.InstanceStatus]{lifecycle.InstanceBoot, lifecycle.InstanceBecomeReady} {
		require.NoError(t, m.store.Tx(t.Context(), func(tx *db.Tx) error {
			i, err := instancedb.Lock(t.Context(), tx, id)
			if err != nil {
				return err
			}
			_, err = instancedb.MoveTo(t.Context(), tx, i, instancedb.Move{To: to, Actor: db.Actor{Owner: lifecycle.OwnerJob}})
			return err
		}))
	}
	m.exec(`SET session_replication_role = replica;
		UPDATE prices SET valid = tstzrange(lower(valid) - interval '80 minutes', NULL);
		UPDATE usage_records SET start_time = start_time - interval '80 minutes';
		UPDATE usage_segments SET started_at = started_at - interval '80 minutes', billed_through = billed_through - interval '80 minutes'`)
	now, err := m.store.Clock(t.Context())
	require.NoError(t, err)
	_, err = ledgerdb.Tick(t.Context(), m.store, ledgerdb.TickInput{Boundary: now})
	require.NoError(t, err)
	usage := list[tenancy.UsageSegment](t, m.do(m.owner, "GET", at+"/usage?instance_id="+id, nil))
	require.Len(t, usage, 1)
	require.Equal(t, []string{id, "mock/MOCK-GPU", ""}, []string{usage[0].InstanceID, usage[0].InstanceType, usage[0].AllocationID})
	require.GreaterOrEqual(t, usage[0].CostMinor, int64(790))
	days, sum := list[tenancy.UsageDay](t, m.do(m.owner, "GET", at+"/usage/days", nil)), int64(0)
	for _, d := range days {
		require.Equal(t, id, d.InstanceID)
		sum += d.CostMinor
	}
	require.Equal(t, usage[0].CostMinor, sum)
	month := now.UTC().Format("2006-01")
	require.Contains(t, string(m.do(m.owner, "GET", at+"/statements/"+month, nil).want(http.StatusOK).raw), `"instance_id":"`+id+`"`)
	csv := string(m.do(m.owner, "GET", at+"/statements/"+month+"?format=csv", nil).want(http.StatusOK).raw)
	require.Contains(t, csv, ",currency,instance_id\n")
	require.Contains(t, csv, ",USD,"+id+"\n")
}

// TestInstances_AddressWithoutAProject: GET /instances shows the instances of the caller with their
// present progress.
func TestInstances_AddressWithoutAProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.addInstance(v)
	id := v.ids["instance_id"]
	w.exec("UPDATE instances SET progress_percent = 50 WHERE id = $1", id)
	for _, at := range []string{w.url + "/instances", w.url + "/api/v1/instances"} {
		for token, project := range map[string]string{v.token: "", v.owner: v.project, w.admin: ""} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			if project != "" {
				r.Header.Set("Slipway-Project", project)
			}
			res, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			raw, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", at, raw)
			require.Contains(t, string(raw), id)
			require.Contains(t, string(raw), `"progress_percent":50`)
		}
	}
	w.do("slpp_wrong", "GET", "/instances", nil).want(http.StatusUnauthorized)
}
