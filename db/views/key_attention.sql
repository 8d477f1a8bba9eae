-- Withdrawn keys of active allocations of which nothing proves for a minute that the node refuses
-- them: whoever had one may still be logged in.
CREATE OR REPLACE VIEW key_attention WITH (security_invoker = true) AS
SELECT 'keys_unconfirmed'::text AS kind, ('keys_unconfirmed:' || a.id)::text AS id, k.since::timestamptz AS since, coalesce(a.site_id, '')::text AS site_id,
    a.node_id::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    a.status::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('nothing proves that the node refuses what was withdrawn from allocation ' || a.id || ': ' || k.names
        || CASE WHEN k.keys > 5 THEN ', and ' || k.keys - 5 || ' more' ELSE '' END)::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM (SELECT u.project_id, u.allocation_id, min(u.withdrawn_at) AS since, count(*) AS keys,
        array_to_string((array_agg('key ' || u.fingerprint || ' of ' || CASE u.withdrawn_member WHEN '' THEN 'an unknown member' ELSE 'member ' || u.withdrawn_member END
            ORDER BY u.withdrawn_at, u.fingerprint))[1:5], ', ') AS names
    FROM allocation_keys u WHERE u.withdrawn_at IS NOT NULL AND u.refused_at IS NULL GROUP BY u.project_id, u.allocation_id) k
JOIN allocations a ON a.project_id = k.project_id AND a.id = k.allocation_id AND a.status = 'active'
WHERE k.since < now() - interval '1 minute';
