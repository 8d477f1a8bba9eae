package portal_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// object is a body of the REST API.
type object = map[string]any

// call sends a request with the operator's token. It returns the status and the answer.
func (w *world) call(t *testing.T, method, path string, body object) (int, object) {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, bytes.NewReader(raw))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", db.NewID("key"))
	req.Header.Set("If-Match", "*")
	req.Header.Set("Slipway-Reason", "a test fills the portal")
	client := http.Client{Timeout: runenv.Patience(time.Minute)}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	answer := object{}
	_ = json.Unmarshal(raw, &answer) // an answer without a body is an empty object
	return res.StatusCode, answer
}

// mustCall is call for a request that has to succeed.
func (w *world) mustCall(t *testing.T, method, path string, body object) object {
	t.Helper()
	status, answer := w.call(t, method, path, body)
	require.Less(t, status, 300, "%s %s: %v", method, path, answer)
	return answer
}

// owner connects as the owner of the database, who may write what no request may.
func (w *world) owner(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.Postgres.DSN(w.Database))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// fill gives the portal one of each thing that it has a page for: a batch of two onboardings, one of
// which has failed, a finding of drift, and a project.
func (w *world) fill(t *testing.T) {
	t.Helper()
	machines := w.Sims.Fleet.All()
	_, err := w.Sims.MAAS.AddFault(maassim.Fault{Name: "http_403", Op: "set_boot_disk", Count: -1, Machine: machines[1].Spec().NICs[0].MAC})
	require.NoError(t, err)
	var items []object
	for _, m := range machines[:2] {
		items = append(items, object{"hostname": hostOf(m), "bmc": object{"address": m.Spec().BMCAddress, "credential_ref": stack.BMCSecret(m.Spec().ID)}})
	}
	w.mustCall(t, http.MethodPost, "/api/v1/admin/onboarding-batches", object{
		"name": "rack 1", "site_id": w.Site.ID, "profile_id": w.Profile.ID, "sku_id": w.SKU.ID, "items": items,
	})
	require.Eventually(t, func() bool {
		nodes, err := w.App.Store.ListNodes(t.Context(), db.NodeFilter{Hostname: hostOf(machines[0])}, "", 1)
		return err == nil && len(nodes) == 1 && nodes[0].Status == "active"
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the first node is not active")
	require.Eventually(t, func() bool {
		_, answer := w.call(t, http.MethodGet, "/api/v1/admin/attention", nil)
		rows, _ := answer["data"].([]any)
		return len(rows) > 0
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the job with a fault requires no operator action")
	node := w.nodeID(t, hostOf(machines[0]))
	_, err = w.owner(t).Exec(t.Context(), `INSERT INTO drift_findings (id, site_id, detector, scope, subject, node_id, severity, status, key, message)
		VALUES ($1, $2, 'hostname_changed', 'node', $3, $3, 'warning', 'open', 'k', 'The name in MAAS differs.')`, db.NewID("drift"), w.Site.ID, node)
	require.NoError(t, err)
	w.fillProject(t)
}

// fillProject makes a billing account and a project with what belongs to one. It returns the
// project's id.
func (w *world) fillProject(t *testing.T) string {
	t.Helper()
	account := w.mustCall(t, http.MethodPost, "/api/v1/admin/billing-accounts", object{"name": "example"})
	project := w.mustCall(t, http.MethodPost, "/api/v1/admin/projects", object{
		"name": "training", "billing_account_id": account["id"], "owner_subject": "oidc:owner", "tags": object{"team": "a"},
	})
	id, ok := project["id"].(string)
	require.True(t, ok)
	path := "/api/v1/projects/" + id
	w.mustCall(t, http.MethodPost, path+"/invitations", object{"email": "member@example.com", "role": "viewer"})
	w.mustCall(t, http.MethodPost, path+"/webhooks", object{"name": "hook", "url": "https://hooks.example.com/slipway"})
	w.mustCall(t, http.MethodPut, "/api/v1/admin/projects/"+id+"/quotas/"+w.SKU.ID, object{"max_nodes": 4, "reason": "as agreed"})
	return id
}

// printable is a text as PostgreSQL can store it.
func printable(text string) string { return strings.ReplaceAll(text, "\x00", "") }

// quote is a text as a literal of JavaScript.
func quote(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	require.NoError(t, err)
	return string(raw)
}
