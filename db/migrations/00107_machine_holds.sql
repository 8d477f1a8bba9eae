-- A node that is the hardware of a machine of a project is given to nobody, and has to be sanitized when the project loses the machine after a run has changed
-- it. docs/allocations.md explains it.

-- +goose Up
-- The node was marked as one that a tenant left because of a machine of a project: no allocation gave anybody access, so nothing was kept of the BMC.
ALTER TABLE nodes ADD COLUMN left_by_machine boolean NOT NULL DEFAULT false;
CREATE INDEX machines_held_serial ON machines (upper(spec ->> 'serial')) WHERE project_id IS NOT NULL AND status <> 'RETIRED';
CREATE INDEX machines_held_key ON machines (split_part(host_key, ' ', 2)) WHERE project_id IS NOT NULL AND status <> 'RETIRED';
CREATE INDEX machines_held_ssh ON machines ((spec ->> 'ssh_endpoint')) WHERE project_id IS NOT NULL AND status <> 'RETIRED';

-- holders_of_node returns the machines of projects that are, or may be, the hardware of a node: the one that is linked to it, and those that have its serial
-- number, one of its MAC addresses, its SSH host key or its SSH address at the same site. Queries inline it.
-- +goose StatementBegin
CREATE FUNCTION holders_of_node(p_id text, p_site text, p_serial text, p_macs text[], p_host_key text, p_ssh text)
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
-- +goose StatementEnd

-- holds_traces says whether a run has brought something of a project to a machine, and nothing has proven the node that is the machine clean since.
CREATE FUNCTION holds_traces(p_machine text, p_node text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM (
        SELECT c.joined_at AS at FROM machine_clusters c WHERE c.machine_id = p_machine AND c.joined_at IS NOT NULL
        UNION ALL
        SELECT coalesce(r.finished_at, now()) FROM runs r WHERE r.machine_id = p_machine AND r.project_id IS NOT NULL AND r.started_at IS NOT NULL
            AND jsonb_path_exists(r.steps, '$[*] ? (exists (@.ssh) || exists (@.net) || exists (@.join))')) t
    WHERE NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = p_node AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > t.at))
$$;

-- When a project loses a machine that a run has changed, the node that is the machine is as dirty as one that a tenant left. A node that an allocation has is
-- marked when that ends.
-- +goose StatementBegin
CREATE FUNCTION mark_machine_left() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE nodes n SET tenant_left_at = now(), left_by_machine = true WHERE n.tenant_left_at IS NULL AND n.allocation_id IS NULL AND n.lifecycle = 'maas'
        AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
        AND EXISTS (SELECT FROM holders_of_node(n.id, n.site_id, n.serial, n.macs, n.ssh_host_key, n.ssh_address) h WHERE h.machine_id = OLD.id)
        AND holds_traces(OLD.id, n.id);
    RETURN NEW;
END $$;
-- +goose StatementEnd
-- What identifies a linked machine may change: the link says which node it is.
CREATE TRIGGER machines_left BEFORE UPDATE ON machines FOR EACH ROW
    WHEN (OLD.project_id IS NOT NULL AND OLD.status <> 'RETIRED' AND (NEW.project_id IS DISTINCT FROM OLD.project_id OR NEW.status = 'RETIRED'
        OR NEW.node_id IS DISTINCT FROM OLD.node_id OR NEW.node_id IS NULL AND (NEW.host_key <> OLD.host_key
            OR (NEW.spec -> 'serial', NEW.spec -> 'mac_addresses', NEW.spec -> 'ssh_endpoint') IS DISTINCT FROM
               (OLD.spec -> 'serial', OLD.spec -> 'mac_addresses', OLD.spec -> 'ssh_endpoint'))))
    EXECUTE FUNCTION mark_machine_left();

CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND coalesce(h.allocation, '') = ''
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
  AND coalesce((SELECT max(r.id) FROM restores r), 0) <= coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0)
  -- An operator who ignores the finding lets the node be claimed.
  AND NOT EXISTS (SELECT FROM drift_findings f WHERE f.site_id = n.site_id AND f.detector IN ('network_open', 'identity_conflict') AND f.subject = n.id AND f.status = 'open')
  AND NOT EXISTS (SELECT FROM machines m JOIN machine_clusters c ON c.machine_id = m.id WHERE m.node_id = n.id AND c.joined_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = n.id AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > c.joined_at))
  AND NOT EXISTS (SELECT FROM holders_of_node(n.id, n.site_id, n.serial, n.macs, n.ssh_host_key, n.ssh_address));

CREATE OR REPLACE VIEW tenant_attention WITH (security_invoker = true) AS
-- Nodes that a tenant left, that nothing proves clean, and that no job works on. A retired one is out of service, and waits for nobody.
SELECT 'tenant_left'::text AS kind, ('tenant_left:' || n.id)::text AS id, n.tenant_left_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, ''::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n
WHERE n.lifecycle = 'maas' AND n.tenant_left_at IS NOT NULL AND n.allocation_id IS NULL AND n.status IN ('active', 'offline', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- Nodes that look free and are the hardware of a machine of a project.
SELECT 'tenant_left', 'tenant_left:held:' || n.id, m.created_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is given to nobody: machine ' || h.machine_id || ' of project ' || h.project_id || ' ' || h.reason, '', '', false, false
FROM nodes n CROSS JOIN LATERAL (SELECT * FROM holders_of_node(n.id, n.site_id, n.serial, n.macs, n.ssh_host_key, n.ssh_address)
    ORDER BY machine_id, reason LIMIT 1) h JOIN machines m ON m.id = h.machine_id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL;

-- +goose Down
CREATE OR REPLACE VIEW tenant_attention WITH (security_invoker = false) AS
SELECT 'tenant_left'::text AS kind, ('tenant_left:' || n.id)::text AS id, n.tenant_left_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, ''::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n
WHERE n.lifecycle = 'maas' AND n.tenant_left_at IS NOT NULL AND n.allocation_id IS NULL AND n.status IN ('active', 'offline', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'));
CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND coalesce(h.allocation, '') = ''
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
  AND coalesce((SELECT max(r.id) FROM restores r), 0) <= coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0)
  -- An operator who ignores the finding lets the node be claimed.
  AND NOT EXISTS (SELECT FROM drift_findings f WHERE f.site_id = n.site_id AND f.detector IN ('network_open', 'identity_conflict') AND f.subject = n.id AND f.status = 'open')
  AND NOT EXISTS (SELECT FROM machines m JOIN machine_clusters c ON c.machine_id = m.id WHERE m.node_id = n.id AND c.joined_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = n.id AND e.verdict = 'clean' AND e.issued_at > c.joined_at));
DROP TRIGGER machines_left ON machines;
DROP FUNCTION mark_machine_left, holds_traces, holders_of_node;
ALTER TABLE nodes DROP COLUMN left_by_machine;
DROP INDEX machines_held_serial, machines_held_key, machines_held_ssh;
