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
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
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

// fill gives the portal one of each thing that it has a page for: a batch of three onboardings, one
// of which has failed and one whose node was decommissioned since, a finding of drift, a node that
// boots from the network, an install workflow, and a project. It returns the paths of further
// pages, which show what the first of their kind does not.
func (w *world) fill(t *testing.T) []string {
	t.Helper()
	machines := w.Sims.Fleet.All()
	_, err := w.Sims.MAAS.AddFault(maassim.Fault{Name: "http_403", Op: "set_boot_disk", Count: -1, Machine: machines[1].Spec().NICs[0].MAC})
	require.NoError(t, err)
	var items []object
	for _, m := range machines[:3] {
		items = append(items, object{"hostname": hostOf(m), "bmc": object{"address": m.Spec().BMCAddress, "credential_ref": stack.BMCSecret(m.Spec().ID)}})
	}
	w.mustCall(t, http.MethodPost, "/api/v1/admin/onboarding-batches", object{
		"name": "rack 1", "site_id": w.Site.ID, "profile_id": w.Profile.ID, "sku_id": w.SKU.ID, "items": items,
	})
	w.awaitStatus(t, hostOf(machines[0]), "active")
	w.awaitStatus(t, hostOf(machines[2]), "active")
	require.Eventually(t, func() bool {
		_, answer := w.call(t, http.MethodGet, "/api/v1/admin/attention", nil)
		rows, _ := answer["data"].([]any)
		return len(rows) > 0
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the job with a fault requires no operator action")
	node := w.nodeID(t, hostOf(machines[0]))
	_, err = w.owner(t).Exec(t.Context(), `INSERT INTO drift_findings (id, site_id, detector, scope, subject, node_id, severity, status, key, message)
		VALUES ($1, $2, 'hostname_changed', 'node', $3, $3, 'warning', 'open', 'k', 'The name in MAAS differs.')`, db.NewID("drift"), w.Site.ID, node)
	require.NoError(t, err)
	w.fillAutomation(t, w.fillProject(t))
	certified, booted := w.certify(t, hostOf(machines[2])), w.fillPXE(t)
	return []string{
		"/nodes/" + certified, "/nodes/" + booted, "/nodes?lifecycle=pxe&status=every", "/statistics?days=1",
		"/audit?kind=transition&node_id=" + node, "/drift?status=every", "/jobs?kind=decommission",
	}
}

func (w *world) awaitStatus(t *testing.T, host string, status lifecycle.NodeStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		nodes, err := w.App.Store.ListNodes(t.Context(), db.NodeFilter{Hostname: host}, "", 1)
		return err == nil && len(nodes) == 1 && nodes[0].Status == status
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the node %s does not become %s", host, status)
}

// certify decommissions a node, so that it has a certificate. It returns the node's id.
func (w *world) certify(t *testing.T, host string) string {
	t.Helper()
	node := w.nodeID(t, host)
	ask := object{"node_id": node, "mode": lifecycle.ModeFull, "grace_seconds": 1}
	ask["plan_hash"] = w.mustCall(t, http.MethodPost, "/api/v1/admin/decommissions/plan", ask)["plan_hash"]
	ask["reason"] = "end of life"
	w.mustCall(t, http.MethodPost, "/api/v1/admin/decommissions", ask)
	require.Eventually(t, func() bool {
		n, err := w.App.Store.Node(t.Context(), node)
		return err == nil && n.Status == lifecycle.NodeDeleted
	}, runenv.Patience(jobEnd), time.Second, runenv.Deadline+"the node %s is not decommissioned", host)
	return node
}

// fillPXE makes an install workflow, and a node that has shown itself on the boot network. It
// returns the node's id.
func (w *world) fillPXE(t *testing.T) string {
	t.Helper()
	w.mustCall(t, http.MethodPost, "/api/v1/admin/install-workflows", object{"name": "ubuntu", "spec": object{
		"kernel": object{"url": "http://images.example.com/vmlinuz"}, "initrds": []object{}, "command_line": "autoinstall ds=nocloud;s={{ .SeedURL }}", "user_data": "#cloud-config",
	}})
	var id string
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		n, _, err := tx.Discover(t.Context(), db.Discovery{MAC: "52:54:00:00:00:01", Source: "127.0.0.9", Facts: db.PXEFacts{Vendor: "HPE", Model: "XL675d"}})
		id = n.ID
		return err
	}))
	return id
}

// fillProject makes a billing account, a project with what belongs to one, and an offer of the
// catalogue. It returns the project's id.
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
	w.mustCall(t, http.MethodPut, "/api/v1/admin/catalogue/"+w.SKU.ID, object{"profile_id": w.Profile.ID, "title": "Eight H100", "isolation": "dedicated_network"})
	w.plantProjectParts(t)
	w.fillAllocations(t, id)
	w.fillUsage(t, id)
	w.project = id
	w.topUp(t, 1000)
	return id
}

// fillAllocations gives a project an allocation that never became active.
func (w *world) fillAllocations(t *testing.T, project string) {
	t.Helper()
	by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		a, err := allocationdb.Create(t.Context(), tx, allocationdb.New{
			ProjectID: project, SKUID: w.SKU.ID, Name: "train", Tags: map[string]string{"team": "research"}, RequestedBy: "test", Actor: by,
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		_, err = allocationdb.Fail(t.Context(), tx, a.ID, lifecycle.FailureProvision, "login at prove_login", by)
		return err
	}))
}

// fillUsage gives a project an allocation that ran for two hours and has ended, and charges it.
func (w *world) fillUsage(t *testing.T, project string) {
	t.Helper()
	conn := w.owner(t)
	_, err := conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	id := db.NewID("alc")
	for _, sql := range []string{
		`INSERT INTO prices (id, sku_id, currency, rate_minor_per_hour, valid, set_by)
			SELECT 'prc_planted', sku_id, 'USD', 1993, tstzrange(now() - interval '2 days', NULL), 'test' FROM allocations WHERE project_id = $1 AND id <> $2 LIMIT 1`,
		`INSERT INTO allocations (id, project_id, sku_id, name, status, outcome, access, requested_by, requested_at, access_given_at, start_time, access_ended_at, released_at)
			SELECT $2, $1, sku_id, 'ended', 'released', 'released', 'revoked', 'test', now() - interval '4 hours', now() - interval '3 hours', now() - interval '3 hours',
				now() - interval '1 hour', now() FROM prices WHERE id = 'prc_planted'`,
		`INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, start_time, end_time)
			SELECT a.project_id, a.id, replace(a.id, 'alc_', 'usg_'), p.billing_account_id, a.sku_id, 'USD', a.start_time, a.access_ended_at
			FROM allocations a JOIN projects p ON p.id = a.project_id WHERE a.project_id = $1 AND a.id = $2`,
		`INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
			SELECT project_id, id, 0, billing_account_id, currency, 1993, start_time, start_time FROM usage_records WHERE project_id = $1 AND allocation_id = $2`,
	} {
		done, err := conn.Exec(t.Context(), sql, project, id)
		require.NoError(t, err, sql)
		require.EqualValues(t, 1, done.RowsAffected(), sql)
	}
	_, err = ledgerdb.Tick(t.Context(), w.App.Store, ledgerdb.TickInput{})
	require.NoError(t, err)
	month := time.Now().UTC().Format("2006-01")
	statement := w.mustCall(t, http.MethodGet, "/api/v1/projects/"+project+"/statements/"+month, nil)
	require.EqualValues(t, adjusted-2*1993, statement["total_minor"], "%v", statement)
}

// adjusted is what each project gets, for the reason of an adjustment.
const adjusted = 5000

// plantProjectParts gives each project that has none a member, and what only members and deliveries
// make: a key, a token, a notice with its e-mail, and a delivery for each webhook. Each gets a line
// in the ledger.
func (w *world) plantProjectParts(t *testing.T) {
	t.Helper()
	conn := w.owner(t)
	for _, sql := range []string{
		`INSERT INTO project_members (project_id, id, subject, name, role) SELECT id, replace(id, 'prj_', 'mem_'), 'oidc:planted', 'A. Member', 'member' FROM projects`,
		`INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
			SELECT id, replace(id, 'prj_', 'key_'), replace(id, 'prj_', 'mem_'), 'laptop', 'ssh-ed25519', 'ssh-ed25519 AAAA', 'SHA256:abc' FROM projects`,
		`INSERT INTO project_tokens (project_id, id, member_id, name, hash, role, expires_at)
			SELECT id, replace(id, 'prj_', 'tok_'), replace(id, 'prj_', 'mem_'), 'ci', sha256(id::bytea), 'viewer', now() + interval '1 day' FROM projects`,
		`INSERT INTO notices (project_id, id, kind, episode, node, message) SELECT id, replace(id, 'prj_', 'ntc_'), 'maintenance', 'planted', 'gpu-01', 'The node restarts tonight.' FROM projects`,
		`INSERT INTO notice_emails (project_id, notice_id, recipient, message_id, status, reason)
			SELECT id, replace(id, 'prj_', 'ntc_'), 'member@example.com', 'planted', 'dead', 'the mailbox is full' FROM projects`,
		`INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at, status, reason, ended_at)
			SELECT project_id, id, 'evt_planted', 0, 'node.changed', 'gpu-01', '{}', now(), 'dead', 'the answer was 500', now() FROM webhooks`,
	} {
		_, err := conn.Exec(t.Context(), sql+" ON CONFLICT DO NOTHING")
		require.NoError(t, err, sql)
	}
	rows, err := conn.Query(t.Context(), "SELECT id, billing_account_id FROM projects p WHERE NOT EXISTS (SELECT FROM ledger_transactions l WHERE l.of_project = p.id)")
	require.NoError(t, err)
	without, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ ID, Account string }])
	require.NoError(t, err)
	for _, p := range without {
		w.mustCall(t, http.MethodPost, "/api/v1/admin/adjustments", object{"billing_account_id": p.Account, "project_id": p.ID, "amount_minor": adjusted, "reason": image})
	}
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
