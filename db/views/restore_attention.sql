-- One line for all nodes that claims pass over since the restore: it is one restore that they are
-- the sign of.
CREATE OR REPLACE VIEW restore_attention AS
WITH r AS (SELECT id, began_at FROM restores ORDER BY id DESC LIMIT 1),
lines AS (
    SELECT 'restore_unconfirmed:' AS id, r.began_at,
        count(*) || CASE count(*) WHEN 1 THEN ' node has' ELSE ' nodes have' END || ' not agreed with the restored database about who is on them: '
            || array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') || CASE WHEN count(*) > 5 THEN ', ...' ELSE '' END AS message
    FROM r CROSS JOIN LATERAL unconfirmed_nodes(r.id) n GROUP BY r.id, r.began_at
    UNION ALL
    SELECT 'restore_unconfirmed:' || CASE WHEN b.adopted THEN 'adopted' ELSE 'bmc' END, r.began_at,
        CASE WHEN b.adopted THEN 'a login that the restored database did not have was found and adopted for the BMC'
            ELSE 'the stored login is older than the restore and not proven since, of the BMC' END || CASE count(*) WHEN 1 THEN ' ' ELSE 's ' END
            || array_to_string((array_agg(b.address ORDER BY b.address))[1:20], ', ') || CASE WHEN count(*) > 20 THEN ', ...' ELSE '' END
            || ' (' || count(*) || ' in all' || CASE WHEN b.adopted THEN '' ELSE ', ' || count(*) FILTER (WHERE NOT b.maas) || ' without MAAS' END || ')'
    FROM r CROSS JOIN LATERAL bmcs_since(r.id, r.began_at) b GROUP BY r.id, r.began_at, b.adopted)
SELECT 'restore_unconfirmed'::text AS kind, l.id::text AS id, l.began_at::timestamptz AS since, ''::text AS site_id, ''::text AS node_id,
    ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage,
    ''::text AS failure_class, l.message::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM lines l;
