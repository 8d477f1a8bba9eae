package portal_test

import (
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// plantRows writes rows that no request makes without the rest of the platform.
func (w *world) plantRows(args []any, statements ...string) {
	w.t.Helper()
	w.exec("SET session_replication_role = replica")
	for _, sql := range statements {
		done, err := w.owner.Exec(w.t.Context(), sql, args...)
		require.NoError(w.t, err, sql)
		require.NotZero(w.t, done.RowsAffected(), sql)
	}
	w.exec("SET session_replication_role = origin")
}

// seedProject gives a project one of each thing that belongs to one.
func (w *world) seedProject(project string) {
	w.t.Helper()
	sku := dbtest.SKU(w.t, w.store)
	by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		a, err := allocationdb.Create(w.t.Context(), tx, allocationdb.New{
			ProjectID: project, SKUID: sku.ID, Name: "train", RequestedBy: "test", Actor: by,
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
		if err != nil {
			return err
		}
		_, err = allocationdb.Fail(w.t.Context(), tx, a.ID, lifecycle.FailureProvision, "login at prove_login", by)
		return err
	}))
	w.asAdmin(http.MethodPost, "/api/v1/projects/"+project+"/invitations", map[string]any{"email": "guest@example.com", "role": "viewer"})
	w.asAdmin(http.MethodPut, "/api/v1/admin/projects/"+project+"/quotas/"+sku.ID, map[string]any{"max_nodes": 4, "reason": "as agreed"})
	w.plantRows([]any{project},
		`INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
			SELECT project_id, replace(id, 'mem_', 'key_'), id, 'laptop', 'ssh-ed25519', 'ssh-ed25519 AAAA', 'SHA256:abc' FROM project_members WHERE project_id = $1`,
		`INSERT INTO notices (project_id, id, kind, episode, node, message) VALUES ($1, replace($1, 'prj_', 'ntc_'), 'maintenance', 'planted', 'gpu-01', 'The node restarts tonight.')`,
		`INSERT INTO webhooks (project_id, id, name, url, secret_ref) VALUES ($1, replace($1, 'prj_', 'whk_'), 'hook', 'https://hooks.example.com/', 'hook')`,
		`INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at, status, reason, ended_at)
			SELECT project_id, id, 'evt_planted', 0, 'node.changed', 'gpu-01', '{}', now(), 'dead', 'the answer was 500', now() FROM webhooks WHERE project_id = $1`,
		`INSERT INTO instances (id, project_id, name, provider, zone, type, image, model, status, job_id, created_by, terminated_at)
			VALUES ('inst_planted', $1, 'chat', 'mock', 'mock-1', 'MOCK-GPU', 'simulated', 'acme/chat', 'terminated', 'job_planted', 'test', now())`,
		`INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency, live,
				success_url, cancel_url, expires_at)
			SELECT 'pay_planted', billing_account_id, id, 'test', 'planted', '', 'expired', 1000, 'USD', false, '', '', now() FROM projects WHERE id = $1`,
	)
}

// seedFleet makes what operators see.
func (w *world) seedFleet() {
	w.t.Helper()
	site := dbtest.Site(w.t, w.store)
	profile := dbtest.Profile(w.t, w.store, dbtest.At(site.ID))
	sku := dbtest.SKU(w.t, w.store)
	w.asAdmin(http.MethodPut, "/api/v1/admin/catalogue/"+sku.ID, map[string]any{"profile_id": profile.ID, "title": "Eight H100", "isolation": "dedicated_network"})
	node := dbtest.Node(w.t, w.store, dbtest.At(site.ID), dbtest.Of(sku.ID), dbtest.Active())
	dbtest.Job(w.t, w.store, dbtest.On(node.ID), dbtest.At(site.ID))
	dbtest.Job(w.t, w.store, dbtest.Kind("decommission"))
	dbtest.InstallWorkflow(w.t, w.store)
	w.plantRows([]any{site.ID},
		`INSERT INTO drift_findings (id, site_id, detector, scope, subject, node_id, severity, status, key, message)
			SELECT 'drift_planted', $1, 'hostname_changed', 'node', id, id, 'warning', 'open', 'k', 'The name in MAAS differs.' FROM nodes LIMIT 1`,
		`INSERT INTO bmcs (id, address, protocol, credential_ref) SELECT 'bmc_planted', '10.0.0.1', 'redfish', 'bmc/planted' WHERE $1 <> ''`,
		`INSERT INTO bmc_rotations (id, bmc_id, job_id, from_ref) SELECT 'rot_planted', 'bmc_planted', 'job_planted', 'bmc/planted' WHERE $1 <> ''`,
		`INSERT INTO rack_devices (id, site_id, kind, name, bmc_id) VALUES ('rackdev_planted', $1, 'power_shelf', 'shelf', 'bmc_planted')`,
		`INSERT INTO batches (id, site_id, max_parallel) VALUES ('batch_planted', $1, 1)`,
		`INSERT INTO node_tasks (id, node_id, kind, schema_version, args, idempotency_key, status, deadline_at)
			SELECT replace(id, 'node_', 'task_'), id, 'collect_inventory', 1, '{}', id, 'pending', now() FROM nodes WHERE $1 <> ''`,
	)
}
