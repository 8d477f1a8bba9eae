-- The ledger is verified in the background with the audit log, part by part.

-- +goose Up
-- A part of the ledger is a chain: ACCOUNT/CODE/ANCHOR, where the anchor is the number of the entry before its first, with leading zeros.
CREATE OR REPLACE VIEW audit_chains AS
SELECT resource_kind, resource_id FROM audit_heads
UNION ALL
SELECT 'ledger'::text, a.billing_account_id || '/' || a.code || '/' || lpad(p.seq::text, 15, '0')
FROM ledger_accounts a CROSS JOIN LATERAL (SELECT 0 AS seq UNION ALL SELECT n.seq FROM ledger_anchors n WHERE n.ledger_account_id = a.id) p;

-- chain_verify returns the first broken number of a chain, or null when it is whole.
-- +goose StatementBegin
CREATE FUNCTION chain_verify(p_kind text, p_id text) RETURNS bigint LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    account bigint;
BEGIN
    IF p_kind <> 'ledger' THEN
        RETURN audit_verify(p_kind, p_id);
    END IF;
    SELECT a.id INTO account FROM ledger_accounts a WHERE a.billing_account_id = split_part(p_id, '/', 1) AND a.code = split_part(p_id, '/', 2);
    IF NOT FOUND OR split_part(p_id, '/', 3) !~ '^[0-9]{1,15}$' THEN
        RETURN 1;
    END IF;
    RETURN ledger_verify(account, split_part(p_id, '/', 3)::bigint, 10000);
END $$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    (CASE b.resource_kind WHEN 'ledger' THEN 'the ledger of billing account ' || split_part(b.resource_id, '/', 1) || ', account ' || split_part(b.resource_id, '/', 2)
        || ', is missing entry ' || b.broken_seq
        ELSE 'the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq END || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id;

-- +goose Down
CREATE OR REPLACE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id;
DROP FUNCTION chain_verify;
CREATE OR REPLACE VIEW audit_chains AS SELECT resource_kind, resource_id FROM audit_heads;
DELETE FROM audit_breaks WHERE resource_kind = 'ledger';
