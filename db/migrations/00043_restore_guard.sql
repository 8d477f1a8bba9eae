-- After a restore no node is claimed until MAAS and its agent have said who is on it. docs/allocations.md explains the rules.

-- +goose Up
-- The allocation that the agent says its node holds: '' is none, NULL is an agent that does not say.
ALTER TABLE heartbeats ADD COLUMN allocation text CHECK (char_length(allocation) <= 128);

-- Each restore of the database from a backup. The highest id is the one that counts.
CREATE TABLE restores (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The restore after which a node was last seen to agree with the database about who is on it.
CREATE TABLE node_agreements (
    node_id    text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    restore_id bigint NOT NULL REFERENCES restores (id),
    agreed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND coalesce(h.allocation, '') = ''
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
  AND coalesce((SELECT max(r.id) FROM restores r), 0) <= coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0);

-- unconfirmed_nodes returns the hostnames of the free nodes that have not agreed since a restore. It is a function, so that lists read
-- no nodes while there was no restore.
CREATE FUNCTION unconfirmed_nodes(restore bigint) RETURNS TABLE (hostname text) LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT n.hostname FROM nodes n LEFT JOIN node_agreements g ON g.node_id = n.id
    WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL AND coalesce(g.restore_id, 0) < restore
$$;

-- One line for all nodes that claims pass over since the restore: it is one restore that they are the sign of.
CREATE VIEW restore_attention AS
SELECT 'restore_unconfirmed'::text AS kind, 'restore_unconfirmed:'::text AS id, r.began_at::timestamptz AS since, ''::text AS site_id, ''::text AS node_id,
    ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    (count(*) || CASE count(*) WHEN 1 THEN ' node has' ELSE ' nodes have' END || ' not agreed with the restored database about who is on them: '
        || array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') || CASE WHEN count(*) > 5 THEN ', ...' ELSE '' END)::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM (SELECT id, began_at FROM restores ORDER BY id DESC LIMIT 1) r CROSS JOIN LATERAL unconfirmed_nodes(r.id) n
GROUP BY r.id, r.began_at;

-- +goose Down
DROP VIEW restore_attention;
DROP FUNCTION unconfirmed_nodes;
CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL);
DROP TABLE node_agreements, restores;
ALTER TABLE heartbeats DROP COLUMN allocation;
