-- After a restore the stored logins of BMCs may be older than their last rotation. docs/operations.md says what follows.

-- +goose Up
-- When a BMC last took its stored login.
CREATE TABLE bmc_accepted_logins (
    bmc_id      text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    accepted_at timestamptz NOT NULL
);

-- The one login beside the stored one that is tried after a restore. adopted_ref is where it is stored, '' when the BMC did not take it.
CREATE TABLE bmc_recoveries (
    bmc_id      text NOT NULL REFERENCES bmcs (id) ON DELETE CASCADE,
    restore_id  bigint NOT NULL REFERENCES restores (id),
    source      text NOT NULL CHECK (source IN ('copy', 'maas')),
    adopted_ref text NOT NULL DEFAULT '',
    tried_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (bmc_id, restore_id)
);

-- bmcs_since returns the BMCs whose login says something about the last restore: adopted ones, and those that have not taken a login that
-- is older than the restore. It is a function, so that lists read no BMCs while there was no restore.
CREATE FUNCTION bmcs_since(restore bigint, began timestamptz) RETURNS TABLE (address text, maas boolean, adopted boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT b.address, n.maas_system_id IS NOT NULL, t.adopted_ref IS NOT NULL
    FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id LEFT JOIN bmc_accepted_logins l ON l.bmc_id = b.id
    LEFT JOIN bmc_recoveries t ON t.bmc_id = b.id AND t.restore_id = restore AND t.adopted_ref <> '' AND t.adopted_ref = b.credential_ref
    WHERE t.adopted_ref IS NOT NULL OR coalesce(l.accepted_at, '-infinity') < began AND b.created_at < began
        AND (n.id IS NULL OR n.status <> 'retired')
        AND (SELECT max(v.created_at) FROM secret_versions v WHERE v.name = split_part(b.credential_ref, '@', 1)
            AND (strpos(b.credential_ref, '@') = 0 OR v.version::text = split_part(b.credential_ref, '@', 2))) < began
$$;

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

-- +goose Down
CREATE OR REPLACE VIEW restore_attention AS
SELECT 'restore_unconfirmed'::text AS kind, 'restore_unconfirmed:'::text AS id, r.began_at::timestamptz AS since, ''::text AS site_id, ''::text AS node_id,
    ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    (count(*) || CASE count(*) WHEN 1 THEN ' node has' ELSE ' nodes have' END || ' not agreed with the restored database about who is on them: '
        || array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') || CASE WHEN count(*) > 5 THEN ', ...' ELSE '' END)::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM (SELECT id, began_at FROM restores ORDER BY id DESC LIMIT 1) r CROSS JOIN LATERAL unconfirmed_nodes(r.id) n
GROUP BY r.id, r.began_at;
DROP FUNCTION bmcs_since;
DROP TABLE bmc_recoveries, bmc_accepted_logins;
