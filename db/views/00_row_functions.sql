-- The functions whose signature or body names a table. The others are in db/functions.

-- audit_row_hash is the hash of a row of the audit log. PL/pgSQL keeps the plan of the expression
-- in a session; a function in SQL would be planned again for every row.
CREATE OR REPLACE FUNCTION audit_row_hash(r audit_log) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN sha256(r.prev_hash || convert_to(jsonb_build_array(
        r.pos, r.id, r.resource_kind, r.resource_id, r.seq, r.node_id, r.kind, r.name, r.from_state, r.to_state, r.triggered_by, r.owner,
        r.actor_id, r.comment, r.metadata, r.workflow_id, r.version, r.txid, extract(epoch FROM r.at)::text)::text, 'UTF8'));
END $$;

-- ledger_entry_text is what the hash covers of an entry with its transaction.
CREATE OR REPLACE FUNCTION ledger_entry_text(e ledger_entries, t ledger_transactions) RETURNS text LANGUAGE sql STABLE
    RETURN jsonb_build_array(e.transaction_id, e.line, e.ledger_account_id, e.currency, e.amount_minor, e.account_seq, e.balance_after_minor, t.key, t.kind,
        t.billing_account_id, t.of_project, t.of_allocation, extract(epoch FROM t.effective_at)::text, extract(epoch FROM t.posted_at)::text, t.reason,
        t.actor, encode(t.request_hash, 'hex'))::text;

-- usage_windows_hash is the hash over the windows of a debit, in the order of their records and
-- times.
CREATE OR REPLACE FUNCTION usage_windows_hash(p_transaction bigint) RETURNS bytea LANGUAGE sql STABLE
    RETURN (SELECT sha256(string_agg(usage_window_bytes(w.record_id, w.segment, w.window_start, w.window_end, w.amount_minor), ''
        ORDER BY w.record_id COLLATE "C", w.window_start)) FROM usage_windows w WHERE w.transaction_id = p_transaction);

-- usage_least_end is the earliest end of the charge of a record: an instance costs no erasure, and
-- may end at once.
CREATE OR REPLACE FUNCTION usage_least_end(r usage_records) RETURNS timestamptz LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN r.allocation_id IS NULL THEN r.start_time ELSE least_end(r.start_time) END;

-- holders_of_node returns the machines of projects that are, or may be, the hardware of a node: the
-- one that is linked to it, and those that have its serial number, one of its MAC addresses, its
-- SSH host key or its SSH address at the same site. Queries inline it.
CREATE OR REPLACE FUNCTION holders_of_node(p_id text, p_site text, p_serial text, p_macs text[], p_host_key text, p_ssh text)
RETURNS TABLE (machine_id text, project_id text, reason text) LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT m.id, m.project_id, 'is linked to the node' FROM machines m WHERE m.node_id = p_id AND m.project_id IS NOT NULL AND m.status <> 'RETIRED'
    UNION ALL
    SELECT m.id, m.project_id, 'has its serial number' FROM machines m
    WHERE upper(m.spec ->> 'serial') = nullif(upper(p_serial), '') AND m.project_id IS NOT NULL AND m.status <> 'RETIRED'
    UNION ALL
    SELECT m.id, m.project_id, 'has one of its MAC addresses' FROM machine_macs x JOIN machines m ON m.id = x.machine_id
    WHERE x.mac = ANY (p_macs) AND m.project_id IS NOT NULL AND m.status <> 'RETIRED'
    UNION ALL
    SELECT m.id, m.project_id, 'has its SSH host key' FROM machines m
    WHERE split_part(m.host_key, ' ', 2) = nullif(split_part(p_host_key, ' ', 2), '') AND m.project_id IS NOT NULL AND m.status <> 'RETIRED'
    UNION ALL
    SELECT m.id, m.project_id, 'has its SSH address' FROM machines m
    WHERE m.spec ->> 'ssh_endpoint' = nullif(p_ssh, '') AND m.site_id = p_site AND m.project_id IS NOT NULL AND m.status <> 'RETIRED';
END;
