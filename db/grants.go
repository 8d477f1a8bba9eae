package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Access is what RoleApp may do with a table or view. Nobody but RoleOwner may truncate or alter
// one, and RoleRead reads what tableReads leaves it.
type Access string

// The kinds of access.
const (
	AccessNone   Access = ""                               // only functions of the owner touch it
	AccessRead   Access = "SELECT"                         // made by migrations or by triggers
	AccessAppend Access = "SELECT, INSERT"                 // rows that are never changed
	AccessKeep   Access = "SELECT, INSERT, UPDATE"         // rows that are never deleted
	AccessPrune  Access = "SELECT, INSERT, DELETE"         // rows that are never changed, and dropped when old
	AccessFull   Access = "SELECT, INSERT, UPDATE, DELETE" // everything else
)

// auditColumns are those of audit_log that a writer sets. The trigger audit_log_chain sets the
// rest.
const auditColumns = "id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, " +
	"workflow_id, version"

// tableAccess names every table and view of the schema public. A migration that adds one adds it
// here. Partitions are reached through their table and are not named.
var tableAccess = map[string]Access{
	"account_balances":            AccessKeep,
	"balance_holds":               AccessKeep,
	"balance_notices":             AccessKeep,
	"balance_thresholds":          AccessRead,
	"billing_attention":           AccessRead,
	"billing_control":             "SELECT, UPDATE",
	"cluster_tokens":              AccessPrune,
	"clusters":                    AccessFull,
	"machine_clusters":            AccessFull,
	"currencies":                  AccessRead,
	"key_attention":               AccessRead,
	"ledger_accounts":             AccessAppend,
	"ledger_anchors":              AccessRead,
	"ledger_entries":              AccessAppend,
	"ledger_transactions":         AccessAppend,
	"payment_attention":           AccessRead,
	"payment_control":             "SELECT, UPDATE",
	"payment_differences":         AccessFull,
	"payment_disputes":            AccessKeep,
	"payment_foreign_sessions":    AccessKeep,
	"payment_movements":           AccessAppend,
	"payment_refunds":             AccessKeep,
	"payment_sessions":            AccessKeep,
	"payment_stuck":               AccessRead,
	"prices":                      AccessFull, // a trigger keeps what has begun
	"stripe_events":               AccessFull,
	"budget_spend":                AccessRead,
	"project_budgets":             AccessFull,
	"usage_records":               AccessKeep,
	"usage_segments":              AccessKeep,
	"usage_windows":               AccessAppend,
	"action_logs":                 AccessFull,
	"agent_attention":             AccessRead,
	"agent_certificates":          AccessFull,
	"agent_identities":            AccessKeep,
	"agent_inventories":           AccessKeep,
	"agent_listeners":             AccessFull,
	"agent_refusals":              AccessFull,
	"agent_releases":              AccessAppend,
	"allocation_keys":             AccessFull,
	"allocations":                 AccessKeep,
	"api_tokens":                  AccessKeep,
	"attention":                   AccessRead,
	"attention_raised":            AccessRead,
	"audit_attention":             AccessRead,
	"audit_breaks":                AccessFull,
	"audit_chains":                AccessRead,
	"audit_checks":                "SELECT, UPDATE",
	"audit_heads":                 AccessNone,
	"audit_log":                   "SELECT, INSERT (" + auditColumns + ")",
	"batch_items":                 AccessKeep,
	"batches":                     AccessKeep,
	"billing_account_groups":      AccessFull,
	"billing_accounts":            AccessFull,
	"bmc_log_entries":             AccessPrune,
	"bmc_log_reads":               AccessKeep,
	"bmc_accepted_logins":         AccessFull,
	"bmc_recoveries":              AccessFull,
	"bmc_rotations":               AccessKeep,
	"bmc_surveys":                 AccessKeep,
	"bmcs":                        AccessFull,
	"catalogue_items":             AccessFull,
	"certificates":                AccessAppend,
	"claim_wakes":                 AccessFull,
	"claimable_nodes":             AccessRead,
	"device_groups":               AccessFull,
	"drift_attention":             AccessRead,
	"drift_bmcs":                  AccessKeep,
	"drift_findings":              AccessFull,
	"drift_machines":              AccessFull,
	"drift_marks":                 AccessKeep,
	"drift_passes":                AccessKeep,
	"enrollment_tokens":           AccessFull,
	"event_attention":             AccessRead,
	"event_cursor":                "SELECT, UPDATE",
	"events":                      AccessPrune,
	"notice_emails":               AccessFull,
	"notices":                     AccessFull,
	"project_event_cursors":       AccessKeep,
	"webhook_cursor":              "SELECT, UPDATE",
	"webhook_deliveries":          AccessFull,
	"webhooks":                    AccessFull,
	"goose_db_version":            AccessNone,
	"heartbeats":                  AccessKeep,
	"idempotency_records":         AccessFull,
	"install_workflows":           AccessFull,
	"instance_attention":          AccessRead,
	"instance_looks":              AccessFull,
	"instance_orphans":            AccessFull,
	"instance_state_history":      AccessRead,
	"instances":                   AccessKeep,
	"job_stages":                  AccessKeep,
	"jobs":                        AccessKeep,
	"lifecycle_edges":             AccessRead,
	"machine_macs":                AccessPrune,
	"machines":                    AccessKeep,
	"plans":                       AccessAppend,
	"run_log_heads":               AccessFull,
	"rack_devices":                AccessPrune,
	"run_logs":                    AccessFull,
	"runs":                        AccessFull,
	"campaign_attention":          AccessRead,
	"machine_attention":           AccessRead,
	"run_campaign_members":        AccessKeep,
	"run_campaigns":               AccessKeep,
	"node_decommissions":          AccessRead,
	"node_drives":                 AccessFull,
	"node_agreements":             AccessKeep,
	"node_occupancies":            AccessKeep,
	"node_onboardings":            AccessRead,
	"node_plans":                  AccessFull,
	"node_search":                 AccessRead,
	"node_serial_sources":         AccessKeep,
	"node_tasks":                  AccessFull,
	"nodes":                       AccessFull,
	"outbox":                      AccessFull,
	"portal_logouts":              AccessPrune,
	"portal_sessions":             AccessFull,
	"portal_sign_ins":             AccessPrune,
	"profiles":                    AccessFull,
	"project_group_roles":         AccessFull,
	"project_idempotency_records": AccessFull,
	"project_invitations":         AccessFull,
	"project_members":             AccessFull,
	"project_quotas":              AccessFull,
	"project_ssh_keys":            AccessFull,
	"project_tokens":              AccessFull,
	"projects":                    AccessFull,
	"pxe_attention":               AccessRead,
	"pxe_macs":                    AccessFull,
	"pxe_nodes":                   AccessKeep,
	"pxe_tokens":                  AccessFull,
	"roce_assignments":            AccessFull,
	"secret_uses":                 AccessFull,
	"secret_versions":             AccessFull,
	"signing_keys":                AccessKeep,
	"sites":                       AccessFull,
	"restore_attention":           AccessRead,
	"restores":                    AccessKeep,
	"sku_reserves":                AccessFull,
	"skus":                        AccessFull,
	"state_transitions":           AccessRead,
	"sweep_findings":              AccessFull,
	"sweep_passes":                "SELECT, UPDATE",
	"tenant_attention":            AccessRead,
}

// tableReads names the columns that RoleRead sees of a table that holds secrets, hashes of secrets
// or whole answers. RoleRead sees every column of the other tables.
var tableReads = map[string]string{
	"api_tokens":          "id, name, roles, created_at, expires_at, revoked_at, last_used_at",
	"enrollment_tokens":   "id, node_id, job_id, created_at, expires_at, used_generation, used_at, revoked_at",
	"idempotency_records": "principal, route, key, state, status, created_at, expires_at",
	"instances": "id, project_id, name, provider, account, zone, type, image, model, status, error_code, error_message, progress_percent, reached_percent, failed_stage, " +
		"job_id, server_asks, server_asked_at, server_id, resources, ip_address, host_key, enrolled_at, heartbeat_seq, heartbeat_at, heartbeat, agent_checksum, agent_verified_at, " +
		"recoveries, health_ok, health_logged_at, health_failed_since, last_health_check, absent_looks, absent_since, deleted_by_provider, drain_seconds, created_by, version, " +
		"created_at, updated_at, server_created_at, ready_at, failed_at, terminated_at, archived_at",
	"portal_logouts": "expires_at",
	"portal_sessions": "id, method, principal, name, roles, issuer, subject, created_at, seen_at, idle_until, ends_at, auth_time, " +
		"step_up_until",
	"portal_sign_ins":             "session_id, expires_at",
	"project_idempotency_records": "project_id, principal, route, key, state, status, created_at, expires_at",
	"project_tokens":              tokenColumns,
	"stripe_events": "id, type, object_kind, object_id, live, release, source, state, session_id, attempts, next_at, last_error, event_at, " +
		"received_at, processed_at",
	"run_logs":        "run_id, seq, step, attempt, stream, next, gap, at", // a command may have written anything
	"pxe_tokens":      "node_id, round, attempt, created_at, expires_at, used_at, source",
	"secret_versions": "name, version, keeper_url, created_at",
	"webhooks":        "project_id, id, name, event_types, status, disabled_reason, failures, last_reason, last_success_at, last_failure_at, slow, tried, lane, due_at, version, created_at, updated_at",
}

// customerAccess names the tables that RoleCustomer may use, with its rights. Row-level security
// binds each of them that has a project to the project of the transaction.
var customerAccess = map[string]Access{
	"clusters":         "SELECT (ref, project_id)", // which clusters the project has, and nothing of how they are reached
	"balance_holds":    AccessRead,
	"budget_spend":     AccessRead,
	"instances":        "SELECT (id, project_id, name, provider, zone, type, model, status, progress_percent, error_code, version, created_at, ready_at, terminated_at)",
	"payment_sessions": AccessRead,
	"project_budgets":  AccessFull,
	"usage_records":    AccessRead,
	"usage_segments":   AccessRead,
	"usage_windows":    AccessRead,
	"allocation_keys":  "SELECT, UPDATE (withdrawn_at, withdrawn_member, refused_at, tried_at)", // the end of an SSH key withdraws it
	"allocations":      AccessRead,
	// Not the cursor of all events, from which a customer would learn how much others do.
	"events":                      "SELECT (project_id, project_cursor, event_id, resource_kind, resource_id, type, payload, at)",
	"machines":                    AccessRead,
	"runs":                        AccessRead,
	"run_campaigns":               AccessRead,
	"notice_emails":               AccessRead,
	"notices":                     AccessRead,
	"project_event_cursors":       AccessRead,
	"webhook_deliveries":          AccessKeep,
	"webhooks":                    AccessFull,
	"lifecycle_edges":             AccessRead, // the guard of an invitation's status reads it
	"project_group_roles":         AccessFull,
	"project_idempotency_records": AccessKeep,
	"project_invitations":         "SELECT, INSERT, UPDATE (status, version, ended_at)",
	"project_members":             "SELECT, UPDATE (role, version, updated_at), DELETE",
	"project_quotas":              AccessRead,
	"project_ssh_keys":            AccessPrune,
	"project_tokens":              "SELECT (" + tokenColumns + "), INSERT, DELETE",
	"projects":                    "SELECT, UPDATE (name, tags, version, updated_at)",
	"skus":                        "SELECT (id, name)", // of quotas
}

// tokenColumns are those of project_tokens but the hash.
const tokenColumns = "project_id, id, member_id, name, role, created_at, expires_at, last_used_at"

// sequenceAccess names the sequences that belong to no column.
var sequenceAccess = map[string]string{"audit_pos": "USAGE"}

// functionCallers names the functions that are no triggers, with the roles that may call each.
var functionCallers = map[string][]string{
	"app_project":             {RoleCustomer},
	"audit_ensure_partitions": {RoleApp},
	"audit_row_hash":          {},
	"audit_verify":            {RoleApp, RoleRead},
	"audit_verify_part":       {RoleApp, RoleRead},
	"event_epoch":             {RoleApp},
	"bill_accounts":           {RoleApp},
	"chain_verify":            {RoleApp, RoleRead},
	"guard_edge":              {RoleApp, RoleCustomer},
	"ledger_entry_text":       {RoleApp, RoleRead},
	"ledger_head":             {},
	"ledger_verify":           {RoleApp, RoleRead},
	"holders_of_node":         {RoleApp, RoleRead},
	"holds_traces":            {RoleApp, RoleRead},
	"is_run_unneeded":         {RoleApp},
	"leaves_traces":           {RoleApp, RoleRead},
	"may_use_machine":         {RoleApp, RoleRead, RoleCustomer},
	"next_ledger_head":        {},
	"node_occupant":           {RoleApp, RoleRead, RoleCustomer},
	"rate_at":                 {RoleApp, RoleRead},
	"split_usage":             {RoleApp},
	"least_end":               {RoleApp, RoleRead},
	"bmcs_since":              {RoleApp, RoleRead},
	"unconfirmed_nodes":       {RoleApp, RoleRead},
	"usage_subject":           {RoleApp, RoleRead},
	"usage_least_end":         {RoleApp, RoleRead},
	"usage_cost":              {RoleApp, RoleRead, RoleCustomer},
	"usage_window_bytes":      {RoleApp, RoleRead},
	"usage_windows_hash":      {RoleApp, RoleRead},
	"isolate_by_project":      {},
	"project_audit":           {RoleCustomer},
	"project_audit_append":    {RoleCustomer},
	"prune_jobs":              {RoleApp},
	"prune_runs":              {RoleApp},
	"search_needles":          {RoleApp, RoleRead},
	"search_pieces":           {},
}

// revokeSQL takes every right on the owner's objects.
const revokeSQL = `DO $$
DECLARE statement text;
BEGIN
    FOR statement IN SELECT 'REVOKE ALL ON ' || kind || ' ' || name FROM (` + ownedSQL + `) AS owned LOOP
        EXECUTE statement || ' FROM %s';
    END LOOP;
END $$`

// grantSQL are the statements that give every role its rights and take all others.
func grantSQL() string {
	others := strings.Join(append([]string{"PUBLIC"}, RoleApp, RoleCustomer, RoleRead), ", ")
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+";\n", args...) }
	line("REVOKE ALL ON SCHEMA public FROM %s", others)
	line("GRANT USAGE ON SCHEMA public TO %s, %s, %s", RoleApp, RoleCustomer, RoleRead)
	line(revokeSQL, others)
	for _, table := range slices.Sorted(maps.Keys(tableAccess)) {
		if access := tableAccess[table]; access != AccessNone {
			line("GRANT %s ON public.%s TO %s", access, table, RoleApp)
		}
		if columns := tableReads[table]; columns != "" {
			line("GRANT SELECT (%s) ON public.%s TO %s", columns, table, RoleRead)
		} else {
			line("GRANT SELECT ON public.%s TO %s", table, RoleRead)
		}
	}
	for _, table := range slices.Sorted(maps.Keys(customerAccess)) {
		line("GRANT %s ON public.%s TO %s", customerAccess[table], table, RoleCustomer)
	}
	for _, sequence := range slices.Sorted(maps.Keys(sequenceAccess)) {
		line("GRANT %s ON SEQUENCE public.%s TO %s", sequenceAccess[sequence], sequence, RoleApp)
	}
	for _, function := range slices.Sorted(maps.Keys(functionCallers)) {
		for _, role := range functionCallers[function] {
			line("GRANT EXECUTE ON FUNCTION public.%s TO %s", function, role)
		}
	}
	return b.String()
}

// applyGrants gives every role its rights, as RoleOwner and in one transaction, so that a process
// that serves never lacks one.
func applyGrants(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('slipway:roles', 0)); SET LOCAL ROLE "+RoleOwner+";\n"+grantSQL())
		return err
	})
	if err != nil {
		return fmt.Errorf("grant the roles their rights: %w", err)
	}
	return nil
}

// RolesFingerprint changes with the roles and their rights. A template of a migrated database is
// outdated when it changes.
func RolesFingerprint() string { return grantSQL() + foreignSQL + publicTempSQL }
