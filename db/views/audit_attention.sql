CREATE OR REPLACE VIEW audit_attention AS
SELECT 'audit_broken'::text AS kind, ('audit_broken:' || b.resource_kind || ':' || b.resource_id)::text AS id, b.found_at::timestamptz AS since,
    coalesce(n.site_id, '')::text AS site_id, coalesce(n.id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, ''::text AS bmc_id,
    ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage, ''::text AS failure_class,
    (CASE b.resource_kind WHEN 'ledger' THEN 'the ledger of billing account ' || split_part(b.resource_id, '/', 1) || ', account ' || split_part(b.resource_id, '/', 2)
        || ', is missing entry ' || b.broken_seq
        ELSE 'the audit log of ' || b.resource_kind || ' ' || b.resource_id || ' is missing row ' || b.broken_seq END || ' or it was changed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM audit_breaks b LEFT JOIN nodes n ON b.resource_kind = 'node' AND n.id = b.resource_id
UNION ALL
SELECT 'audit_silent', 'audit_silent:', coalesce(c.finished_at, c.begun_at), '', '', '', '', '', '', '', '', '', '',
    'the audit log was not verified whole for a day; verification stands at '
        || CASE WHEN c.part_kind <> '' THEN c.part_kind || ' ' || c.part_id || ', row ' || c.part_seq WHEN c.after_kind <> '' THEN c.after_kind || ' ' || c.after_id ELSE 'its beginning' END,
    '', '', false, false
FROM audit_checks c WHERE coalesce(c.finished_at, c.begun_at) < now() - interval '1 day';
