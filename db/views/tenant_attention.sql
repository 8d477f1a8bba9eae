CREATE OR REPLACE VIEW tenant_attention WITH (security_invoker = true) AS
-- Nodes that a tenant left, that nothing proves clean, and that no job works on. A retired one is
-- out of service, and waits for nobody.
SELECT 'tenant_left'::text AS kind, ('tenant_left:' || n.id)::text AS id, n.tenant_left_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, ''::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n
WHERE n.lifecycle = 'maas' AND n.tenant_left_at IS NOT NULL AND n.allocation_id IS NULL AND n.status IN ('active', 'offline', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- Nodes that look free and are the hardware of a machine of a project. They are found from the few
-- machines, with the same comparisons as in holders_of_node.
SELECT DISTINCT ON (n.id) 'tenant_left', 'tenant_left:held:' || n.id, m.created_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is given to nobody: machine ' || m.id || ' of project ' || m.project_id || ' ' || k.reason, '', '', false, false
FROM machines m CROSS JOIN LATERAL (
    SELECT m.node_id AS id, 'is linked to the node' AS reason
    UNION ALL
    SELECT x.id, 'has its serial number' FROM nodes x WHERE x.status = 'active' AND x.serial <> '' AND upper(x.serial) = nullif(upper(m.spec ->> 'serial'), '')
    UNION ALL
    SELECT x.id, 'has one of its MAC addresses' FROM machine_macs a JOIN nodes x ON x.status <> 'deleted' AND x.macs @> ARRAY[a.mac] WHERE a.machine_id = m.id
    UNION ALL
    SELECT x.id, 'has its SSH host key' FROM nodes x
    WHERE x.status = 'active' AND x.ssh_host_key <> '' AND split_part(x.ssh_host_key, ' ', 2) = nullif(split_part(m.host_key, ' ', 2), '')
    UNION ALL
    SELECT x.id, 'has its SSH address' FROM nodes x
    WHERE x.status = 'active' AND x.ssh_address <> '' AND x.ssh_address = nullif(m.spec ->> 'ssh_endpoint', '') AND x.site_id = m.site_id
) k CROSS JOIN LATERAL (
    SELECT x.* FROM nodes x WHERE x.id = k.id AND x.lifecycle = 'maas' AND x.status = 'active' AND x.allocation_id IS NULL AND x.tenant_left_at IS NULL OFFSET 0
) n
WHERE m.project_id IS NOT NULL AND m.status <> 'RETIRED';
