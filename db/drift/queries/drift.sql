-- name: BeginPass :one
-- Nodes without a site have a pass while there are any.
INSERT INTO drift_passes (site_id, due_seconds)
SELECT @site_id::text, @due_seconds::integer WHERE @site_id::text <> '' OR EXISTS (SELECT FROM nodes n WHERE n.site_id = '' AND n.status <> 'deleted')
ON CONFLICT (site_id) DO UPDATE SET pass = drift_passes.pass + 1, begun_at = now(), listed_at = NULL, due_seconds = excluded.due_seconds
RETURNING *;

-- name: HasNodesWithoutSite :one
SELECT EXISTS (SELECT FROM nodes n WHERE n.site_id = '' AND n.status <> 'deleted');

-- name: PassOfSite :one
SELECT * FROM drift_passes WHERE site_id = @site_id;

-- name: ListPasses :many
-- That of the nodes without a site comes last, so that its id is no cursor.
SELECT p.site_id, coalesce(s.name, '')::text AS site_name, p.pass, p.begun_at, p.listed_at, p.finished_at, p.tried_at, p.problem, p.due_seconds, p.report
FROM drift_passes p LEFT JOIN sites s ON s.id = p.site_id
WHERE p.site_id > @after::text OR p.site_id = '' ORDER BY p.site_id = '', p.site_id LIMIT @max_rows;

-- name: RecordListing :execrows
UPDATE drift_passes SET listed_at = @listed_at::timestamptz, maas_user = @maas_user WHERE site_id = @site_id AND pass = @pass;

-- name: FinishPass :execrows
UPDATE drift_passes SET tried_at = now(), problem = @problem, report = @report,
    finished_at = CASE WHEN @problem::text = '' THEN now() ELSE finished_at END
WHERE site_id = @site_id AND pass = @pass;

-- name: PutMachines :execrows
-- What has not changed is not written again.
INSERT INTO drift_machines (site_id, system_id, hostname, serial, macs, facts)
SELECT @site_id, m.system_id, m.hostname, m.serial, m.macs, m.facts
FROM jsonb_to_recordset(@machines::jsonb) AS m (system_id text, hostname text, serial text, macs text[], facts jsonb)
ON CONFLICT (site_id, system_id) DO UPDATE SET hostname = excluded.hostname, serial = excluded.serial, macs = excluded.macs, facts = excluded.facts
WHERE (drift_machines.hostname, drift_machines.serial, drift_machines.macs, drift_machines.facts)
    IS DISTINCT FROM (excluded.hostname, excluded.serial, excluded.macs, excluded.facts);

-- name: DeleteUnlistedMachines :execrows
DELETE FROM drift_machines WHERE site_id = @site_id AND system_id <> ALL (@seen::text[]);

-- name: MachinesWithBMC :many
-- Machines that are nodes with a BMC: whose BMC's address is worth asking for.
SELECT m.system_id FROM drift_machines m
JOIN nodes n ON n.site_id = m.site_id AND n.maas_system_id = m.system_id AND n.status <> 'deleted'
JOIN bmcs b ON b.node_id = n.id
WHERE m.site_id = @site_id AND m.system_id > @after::text ORDER BY m.system_id LIMIT @max_rows;

-- name: SetPowerAddresses :execrows
UPDATE drift_machines m SET power_address = a.address
FROM jsonb_to_recordset(@addresses::jsonb) AS a (system_id text, address text)
WHERE m.site_id = @site_id AND m.system_id = a.system_id AND m.power_address <> a.address;

-- name: ListNodeFacts :many
-- All that the detectors are told of a node, as one document.
SELECT n.id, jsonb_build_object(
    'node', jsonb_build_object('id', n.id, 'lifecycle', n.lifecycle, 'status', n.status, 'hostname', n.hostname, 'serial', n.serial, 'hardware_uuid', n.hardware_uuid, 'macs', n.macs,
        'system_id', coalesce(n.maas_system_id, ''), 'ip_addresses', n.ip_addresses, 'ip_addresses_source', n.ip_addresses_source, 'state_changed_at', n.state_changed_at, 'pointer', coalesce(n.allocation_id, ''),
        'occupant', coalesce((SELECT a.id FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL), ''),
        'occupied_since', (SELECT a.requested_at FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL), 'tenant_left', n.tenant_left_at IS NOT NULL),
    'machine', m.facts || jsonb_build_object('power_address', m.power_address),
    'bmc', CASE WHEN b.id IS NOT NULL THEN jsonb_build_object('id', b.id, 'address', b.address, 'protocol', b.protocol, 'pin_sha256', b.pin_sha256,
        'blocked_at', b.auth_blocked_at, 'blocked_reason', b.auth_blocked_reason) END,
    'look', to_jsonb(o),
    'parts', CASE WHEN v.bmc_id IS NOT NULL OR ai.node_id IS NOT NULL THEN jsonb_build_object('bmc_digest', coalesce(v.digest, ''), 'agent_digest', coalesce(ai.digest, ''),
        'modes', coalesce(v.modes, '{}'), 'bmc_at', v.read_at, 'agent_at', ai.read_at,
        'bmc_changes', CASE WHEN v.digest <> r.facts ->> 'bmc_parts' THEN v.inventory -> 'changes' END,
        'agent_changes', CASE WHEN ai.digest <> r.facts ->> 'agent_parts' THEN ai.inventory -> 'changes' END) END,
    'heartbeat', CASE WHEN h.node_id IS NOT NULL THEN jsonb_build_object('boot_id', h.boot_id, 'agent_version', h.agent_version, 'skew_ms', h.clock_skew_ms,
        'received_at', h.received_at, 'report', h.report, 'report_boot_id', h.report_boot_id, 'reported_at', h.reported_at, 'allocation', h.allocation) END,
    'identity', CASE WHEN i.node_id IS NOT NULL THEN jsonb_build_object('generation', i.generation, 'locked_at', i.locked_at, 'locked_reason', i.locked_reason,
        'not_before', c.not_before, 'not_after', c.not_after) END,
    'sku', k.spec, 'profile', p.spec,
    'mark', r.facts || jsonb_build_object('marked_at', r.marked_at),
    'live_job', coalesce((SELECT j.id FROM jobs j WHERE j.node_id = n.id
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating') LIMIT 1), ''),
    'last_job_at', (SELECT max(j.updated_at) FROM jobs j WHERE j.node_id = n.id AND j.kind IN ('onboarding', 'decommission', 'node_operation', 'allocation_provision', 'allocation_release', 'machine_run')),
    'restored_at', (SELECT max(s.began_at) FROM restores s),
    'network', (SELECT jsonb_build_object('asked', t.args, 'output', t.result -> 'output', 'at', t.finished_at) FROM node_tasks t
        WHERE t.node_id = n.id AND t.kind = 'node.probe_network' AND t.status = 'succeeded' ORDER BY t.id DESC LIMIT 1)
)::jsonb AS facts
FROM (SELECT * FROM nodes x WHERE x.site_id = @site_id AND x.status <> 'deleted' AND x.id > @after::text
    ORDER BY x.id LIMIT @max_rows) n
LEFT JOIN drift_machines m ON m.site_id = n.site_id AND m.system_id = n.maas_system_id
LEFT JOIN bmcs b ON b.node_id = n.id
LEFT JOIN drift_bmcs o ON o.bmc_id = b.id
LEFT JOIN bmc_surveys v ON v.bmc_id = b.id
LEFT JOIN agent_inventories ai ON ai.node_id = n.id
LEFT JOIN heartbeats h ON h.node_id = n.id
LEFT JOIN agent_identities i ON i.node_id = n.id
LEFT JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation
LEFT JOIN skus k ON k.id = n.sku_id
LEFT JOIN profiles p ON p.id = n.profile_id
LEFT JOIN drift_marks r ON r.node_id = n.id
ORDER BY n.id;

-- name: RecordAgreements :execrows
-- Nodes of which the database, MAAS and the agent agree who is on them. Without a restore there is nothing to agree after.
INSERT INTO node_agreements (node_id, restore_id)
SELECT n.id, r.id FROM nodes n, (SELECT max(id) AS id FROM restores) r
WHERE n.id = ANY (@node_ids::text[]) AND n.status <> 'deleted' AND r.id IS NOT NULL
ON CONFLICT (node_id) DO UPDATE SET restore_id = excluded.restore_id, agreed_at = clock_timestamp() WHERE node_agreements.restore_id < excluded.restore_id;

-- name: LastProbe :one
SELECT jsonb_build_object('asked', t.args, 'output', t.result -> 'output', 'at', t.finished_at)::jsonb AS probe FROM node_tasks t
WHERE t.node_id = @node_id AND t.kind = @kind AND t.status = 'succeeded' ORDER BY t.id DESC LIMIT 1;

-- name: ProbeAddresses :many
-- Where BMCs and other nodes are, as their records say. Nodes behind one address with the node that is asked are left out. Nodes stand in an order of
-- their own by chance (nodes_by_chance); the seed says where to begin, so that what is drawn is read and nothing else is.
(SELECT 'bmc'::text AS kind, b.id, b.address FROM bmcs b JOIN nodes n ON n.id = b.node_id WHERE n.id = @node_id AND n.site_id = @site_id AND n.status <> 'deleted')
UNION ALL
(SELECT d.kind, d.id, d.address FROM (
    (SELECT 'bmc'::text AS kind, b.id, b.address FROM nodes n JOIN bmcs b ON b.node_id = n.id
        WHERE n.site_id = @site_id AND n.status <> 'deleted' AND n.id <> @node_id AND md5(n.id) >= md5(@seed::text) ORDER BY md5(n.id) LIMIT @max_rows)
    UNION ALL
    (SELECT 'bmc'::text, b.id, b.address FROM nodes n JOIN bmcs b ON b.node_id = n.id
        WHERE n.site_id = @site_id AND n.status <> 'deleted' AND n.id <> @node_id AND md5(n.id) < md5(@seed::text) ORDER BY md5(n.id) LIMIT @max_rows)
    ) d LIMIT @max_rows)
UNION ALL
(SELECT d.kind, d.id, d.address FROM (
    (SELECT 'node'::text AS kind, n.id, coalesce(n.ip_addresses[1], h.address)::text AS address FROM nodes n LEFT JOIN heartbeats h ON h.node_id = n.id
        WHERE n.site_id = @site_id AND n.status <> 'deleted' AND n.id <> @node_id AND coalesce(n.ip_addresses[1], h.address, '') <> ''
            AND NOT n.ip_addresses && coalesce((SELECT o.ip_addresses FROM nodes o WHERE o.id = @node_id), '{}')
            AND md5(n.id) >= md5(@seed::text) ORDER BY md5(n.id) LIMIT @max_rows)
    UNION ALL
    (SELECT 'node'::text, n.id, coalesce(n.ip_addresses[1], h.address)::text FROM nodes n LEFT JOIN heartbeats h ON h.node_id = n.id
        WHERE n.site_id = @site_id AND n.status <> 'deleted' AND n.id <> @node_id AND coalesce(n.ip_addresses[1], h.address, '') <> ''
            AND NOT n.ip_addresses && coalesce((SELECT o.ip_addresses FROM nodes o WHERE o.id = @node_id), '{}')
            AND md5(n.id) < md5(@seed::text) ORDER BY md5(n.id) LIMIT @max_rows)
    ) d LIMIT @max_rows);

-- name: NodesToProbe :many
-- Nodes in service whose agent is heard, the one that was asked longest ago first. The addresses are not for a tenant who is root on his node, and what
-- his node says proves nothing.
SELECT n.id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
LEFT JOIN allocations a ON a.node_id = n.id AND a.node_released_at IS NULL
LEFT JOIN skus k ON k.id = a.sku_id
LEFT JOIN LATERAL (SELECT max(t.created_at) AS at FROM node_tasks t WHERE t.node_id = n.id AND t.kind = @kind) p ON true
WHERE n.site_id = @site_id AND n.status = 'active' AND n.tenant_left_at IS NULL AND h.received_at >= @heard_since::timestamptz
    AND (n.allocation_id IS NULL AND a.id IS NULL OR NOT k.tenant_root) AND (p.at IS NULL OR p.at <= @before::timestamptz)
    AND NOT EXISTS (SELECT FROM node_tasks t WHERE t.node_id = n.id AND t.status IN ('queued', 'dispatched'))
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
ORDER BY p.at NULLS FIRST, n.id LIMIT @max_rows;

-- name: PutMarks :execrows
INSERT INTO drift_marks (node_id, facts) SELECT m.node_id, m.facts FROM jsonb_to_recordset(@marks::jsonb) AS m (node_id text, facts jsonb)
ON CONFLICT (node_id) DO UPDATE SET facts = excluded.facts, marked_at = now();

-- name: ChangeMark :exec
INSERT INTO drift_marks (node_id, facts) VALUES (@node_id, @facts)
ON CONFLICT (node_id) DO UPDATE SET facts = drift_marks.facts || excluded.facts;

-- name: BMCsDue :many
-- BMCs of the site's nodes and rack devices, longest not looked at first.
SELECT b.* FROM (
    SELECT x.id FROM bmcs x JOIN nodes n ON n.id = x.node_id
    WHERE n.site_id = @site_id AND n.status IN ('active', 'offline', 'quarantined', 'retired') AND NOT (n.lifecycle = 'pxe' AND n.status = 'retired')
    UNION ALL SELECT d.bmc_id FROM rack_devices d WHERE d.site_id = @site_id) s
JOIN bmcs b ON b.id = s.id LEFT JOIN drift_bmcs o ON o.bmc_id = b.id
WHERE o.bmc_id IS NULL OR o.address <> b.address OR o.probed_at <= @before::timestamptz
ORDER BY o.probed_at NULLS FIRST, b.id LIMIT @max_rows;

-- name: BMCsOfUnknownPower :many
-- BMCs of nodes in service whose power MAAS has as off or cannot tell, and that may be asked with a login. Of a node without MAAS nobody else can tell,
-- so its BMC is asked once its agent is silent. Of one that has no agent nothing tells when to ask.
SELECT b.id FROM nodes n
LEFT JOIN drift_machines m ON m.site_id = n.site_id AND m.system_id = n.maas_system_id
LEFT JOIN heartbeats h ON h.node_id = n.id
JOIN bmcs b ON b.node_id = n.id AND b.auth_blocked_at IS NULL
LEFT JOIN drift_bmcs o ON o.bmc_id = b.id
WHERE n.site_id = @site_id AND n.status IN ('active', 'offline')
    AND (m.facts ->> 'power' <> 'on' OR n.lifecycle = 'pxe' AND h.received_at <= @silent_since::timestamptz)
    AND (o.power_at IS NULL OR o.power_at <= @before::timestamptz)
    AND NOT EXISTS (SELECT 1 FROM jobs j WHERE (j.node_id = n.id OR j.bmc_id = b.id)
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
ORDER BY o.power_at NULLS FIRST, b.id LIMIT @max_rows;

-- name: BMCsOfOldHealth :many
-- BMCs of nodes in service and of rack devices whose parts were not asked for their health since, and that may be asked with a login.
SELECT b.id, s.device FROM (
    SELECT x.id, false AS device FROM bmcs x JOIN nodes n ON n.id = x.node_id WHERE n.site_id = @site_id AND n.status IN ('active', 'offline', 'quarantined')
    UNION ALL SELECT x.id, true FROM rack_devices d JOIN bmcs x ON x.id = d.bmc_id WHERE d.site_id = @site_id AND (x.pin_sha256 <> '' OR x.protocol = 'ipmi')) s
JOIN bmcs b ON b.id = s.id LEFT JOIN drift_bmcs o ON o.bmc_id = b.id
WHERE b.auth_blocked_at IS NULL
    AND (o.health_at IS NULL OR o.address <> b.address OR o.health_at <= @before::timestamptz) AND coalesce(o.failures, 0) = 0
    AND NOT EXISTS (SELECT 1 FROM jobs j WHERE (j.node_id = b.node_id OR j.bmc_id = b.id)
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
ORDER BY o.health_at NULLS FIRST, b.id LIMIT @max_rows;

-- name: CountBMCs :one
-- BMCs whose parts are read: of nodes in service and of rack devices.
SELECT (SELECT count(*) FROM bmcs x JOIN nodes n ON n.id = x.node_id WHERE n.site_id = @site_id AND n.status IN ('active', 'offline', 'quarantined'))
    + (SELECT count(*) FROM rack_devices d WHERE d.site_id = @site_id);

-- name: RecordHealth :exec
INSERT INTO drift_bmcs (bmc_id, address, probed_at, health, health_problems, health_at, logins)
SELECT b.id, b.address, 'epoch', @health, @problems::text[], @at::timestamptz, 1 FROM bmcs b WHERE b.id = @bmc_id
ON CONFLICT (bmc_id) DO UPDATE SET health = excluded.health, health_problems = excluded.health_problems, health_at = excluded.health_at,
    logins = drift_bmcs.logins + 1;

-- name: RecordProbe :exec
INSERT INTO drift_bmcs (bmc_id, address, probed_at, answered_at, failures, pin_sha256, problem, probes)
VALUES (@bmc_id, @address, @at::timestamptz, CASE WHEN @answered::boolean THEN @at::timestamptz END, CASE WHEN @answered::boolean THEN 0 ELSE 1 END,
    @pin_sha256, @problem, 1)
ON CONFLICT (bmc_id) DO UPDATE SET address = excluded.address, probed_at = excluded.probed_at, problem = excluded.problem,
    answered_at = coalesce(excluded.answered_at, drift_bmcs.answered_at),
    failures = CASE WHEN excluded.failures = 0 THEN 0 WHEN drift_bmcs.address <> excluded.address THEN 1 ELSE drift_bmcs.failures + 1 END,
    pin_sha256 = CASE WHEN excluded.failures = 0 OR drift_bmcs.address <> excluded.address THEN excluded.pin_sha256 ELSE drift_bmcs.pin_sha256 END,
    power = CASE WHEN drift_bmcs.address <> excluded.address THEN '' ELSE drift_bmcs.power END,
    health = CASE WHEN drift_bmcs.address <> excluded.address THEN '' ELSE drift_bmcs.health END, probes = drift_bmcs.probes + 1;

-- name: RecordPower :exec
INSERT INTO drift_bmcs (bmc_id, address, probed_at, power, power_at, logins)
SELECT b.id, b.address, 'epoch', @power, @at::timestamptz, 1 FROM bmcs b WHERE b.id = @bmc_id
ON CONFLICT (bmc_id) DO UPDATE SET power = excluded.power, power_at = excluded.power_at, logins = drift_bmcs.logins + 1;

-- name: DuplicateMACs :many
-- A PXE node that is retired has given its hardware back: here and below it has none.
SELECT v.mac::text AS value, array_agg(DISTINCT v.system_id) FILTER (WHERE v.system_id <> '')::text[] AS machines,
    array_agg(DISTINCT v.node_id) FILTER (WHERE v.node_id <> '')::text[] AS nodes
FROM (SELECT unnest(m.macs) AS mac, m.system_id, '' AS node_id FROM drift_machines m WHERE m.site_id = @site_id
    UNION ALL SELECT unnest(n.macs), '', n.id FROM nodes n WHERE n.site_id = @site_id AND n.status <> 'deleted'
        AND NOT (n.lifecycle = 'pxe' AND n.status = 'retired')) v
GROUP BY v.mac
HAVING count(DISTINCT v.system_id) FILTER (WHERE v.system_id <> '') > 1 OR count(DISTINCT v.node_id) FILTER (WHERE v.node_id <> '') > 1
ORDER BY v.mac LIMIT @max_rows;

-- name: DuplicateSerials :many
SELECT upper(m.serial)::text AS value, array_agg(m.system_id ORDER BY m.system_id)::text[] AS machines, '{}'::text[] AS nodes
FROM drift_machines m WHERE m.site_id = @site_id AND m.serial <> '' GROUP BY upper(m.serial) HAVING count(*) > 1 ORDER BY 1 LIMIT @max_rows;

-- name: SharedKeys :many
-- Serial numbers, UUIDs in either byte order and MAC addresses that a node of the site has in common with other records: those that a tenant left, and
-- those that are tied to their machine.
WITH keys AS (
    SELECT k.key, n.id, coalesce(n.site_id = @site_id AND n.status <> 'deleted' AND n.lifecycle = 'maas' AND n.maas_system_id IS NOT NULL, false) AS asked
    FROM nodes n CROSS JOIN LATERAL (
        SELECT 'serial ' || upper(n.serial) AS key WHERE n.serial <> ''
        UNION SELECT 'uuid ' || least(u, substr(u, 7, 2) || substr(u, 5, 2) || substr(u, 3, 2) || substr(u, 1, 2) || '-' || substr(u, 12, 2) || substr(u, 10, 2)
            || '-' || substr(u, 17, 2) || substr(u, 15, 2) || substr(u, 19)) FROM lower(n.hardware_uuid) u WHERE length(u) = 36
        UNION SELECT 'mac ' || m FROM unnest(n.macs) m) k
    WHERE n.status <> 'discovered' AND (n.tenant_left_at IS NOT NULL
        OR n.status <> 'deleted' AND (n.maas_system_id IS NOT NULL OR n.lifecycle = 'pxe' AND n.status <> 'retired'))
)
SELECT k.key::text AS key, array_agg(k.id ORDER BY k.id)::text[] AS nodes FROM keys k WHERE k.key > @after::text
GROUP BY k.key HAVING count(*) > 1 AND bool_or(k.asked) ORDER BY k.key LIMIT @max_rows;

-- name: DuplicateBMCs :many
SELECT v.address::text AS value, '{}'::text[] AS machines, array_agg(v.node_id ORDER BY v.node_id)::text[] AS nodes
FROM (SELECT regexp_replace(regexp_replace(lower(b.address), '^https?://', ''), '(:443|:623)?/?$', '') AS address, n.id AS node_id
    FROM bmcs b JOIN nodes n ON n.id = b.node_id WHERE n.site_id = @site_id AND n.status <> 'deleted' AND NOT (n.lifecycle = 'pxe' AND n.status = 'retired')) v
GROUP BY v.address HAVING count(*) > 1 ORDER BY 1 LIMIT @max_rows;

-- name: DuplicateBoots :many
SELECT h.boot_id::text AS value, '{}'::text[] AS machines, array_agg(n.id ORDER BY n.id)::text[] AS nodes
FROM heartbeats h JOIN nodes n ON n.id = h.node_id
WHERE n.site_id = @site_id AND n.status <> 'deleted' AND NOT (n.lifecycle = 'pxe' AND n.status = 'retired') AND h.received_at > now() - interval '1 day'
GROUP BY h.boot_id HAVING count(*) > 1 ORDER BY 1 LIMIT @max_rows;

-- name: ListUnknownMachines :many
-- Machines that are no node's, and the deleted node whose cards they have. One that a job is about to tie to its node is not strange.
SELECT m.system_id, m.hostname, m.macs, m.facts, coalesce(g.id, '')::text AS deleted_node, coalesce(g.maas_system_id, '')::text AS deleted_system_id
FROM drift_machines m
LEFT JOIN LATERAL (SELECT d.id, d.maas_system_id FROM nodes d WHERE d.site_id = m.site_id AND d.status = 'deleted' AND d.macs && m.macs
    ORDER BY d.id DESC LIMIT 1) g ON true
WHERE m.site_id = @site_id AND m.system_id > @after::text AND (@pool::text = '' OR m.facts ->> 'pool' = @pool::text)
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.site_id = m.site_id AND n.maas_system_id = m.system_id AND n.status <> 'deleted')
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.site_id = m.site_id AND n.hostname = m.hostname AND n.status NOT IN ('deleted') AND n.maas_system_id IS NULL)
ORDER BY m.system_id LIMIT @max_rows;

-- name: LiveFindings :many
SELECT f.detector, f.subject, f.status FROM drift_findings f WHERE f.site_id = @site_id AND f.status <> 'closed' AND f.subject = ANY (@subjects::text[]);

-- name: ObserveFindings :many
-- Opens findings, keeps the open ones up to date, and opens again an ignored one whose key is another. Rows are taken in one order, so that two writers
-- never wait on each other in a circle. Of writers at the same moment the counts, and not what this statement saw before, tell which one opened it.
WITH seen AS (
    SELECT (e.value ->> 'id')::text AS id, (e.value ->> 'detector')::text AS detector, (e.value ->> 'scope')::text AS scope, (e.value ->> 'subject')::text AS subject, (e.value ->> 'node_id')::text AS node_id,
        (e.value ->> 'bmc_id')::text AS bmc_id, (e.value ->> 'system_id')::text AS system_id, (e.value ->> 'severity')::text AS severity, (e.value ->> 'key')::text AS key, (e.value ->> 'message')::text AS message,
        (e.value -> 'evidence')::jsonb AS evidence
    FROM jsonb_array_elements(@findings::jsonb) AS e (value)
), before AS (
    SELECT d.detector, d.subject, d.status FROM drift_findings d JOIN seen s ON s.detector = d.detector AND s.subject = d.subject
    WHERE d.site_id = @site_id AND d.status <> 'closed'
), kept AS (
    INSERT INTO drift_findings AS d (id, site_id, detector, scope, subject, node_id, bmc_id, system_id, severity, status, key, message, evidence)
    SELECT s.id, @site_id, s.detector, s.scope, s.subject, nullif(s.node_id, ''), s.bmc_id, s.system_id, s.severity, 'open', s.key, s.message, s.evidence
    FROM seen s ORDER BY s.detector, s.subject
    ON CONFLICT (site_id, detector, subject) WHERE status <> 'closed' DO UPDATE SET
        last_seen_at = now(), seen_count = d.seen_count + 1, severity = excluded.severity, message = excluded.message, evidence = excluded.evidence,
        key = excluded.key, node_id = excluded.node_id, bmc_id = excluded.bmc_id, system_id = excluded.system_id,
        status = CASE WHEN d.key <> excluded.key THEN 'open' ELSE d.status END,
        streak = CASE WHEN d.key <> excluded.key THEN 1 ELSE d.streak + 1 END,
        changed_at = CASE WHEN d.key <> excluded.key THEN now() ELSE d.changed_at END,
        version = d.version + CASE WHEN d.key <> excluded.key THEN 1 ELSE 0 END
    RETURNING d.id, d.detector, d.subject, d.node_id, d.severity, d.status, d.message, d.seen_count, d.streak
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'drift', k.id, k.node_id, 'drift.opened',
        jsonb_build_object('id', k.id, 'detector', k.detector, 'severity', k.severity, 'subject', k.subject, 'node_id', k.node_id, 'site_id', @site_id::text,
            'message', k.message)
    FROM kept k LEFT JOIN before b ON b.detector = k.detector AND b.subject = k.subject
    WHERE k.seen_count = 1 OR (b.status = 'ignored' AND k.status = 'open' AND k.streak = 1)
)
SELECT k.id, k.detector, k.subject, k.status, (k.seen_count = 1)::boolean AS opened FROM kept k;

-- name: CloseFindings :execrows
WITH gone AS (
    UPDATE drift_findings f SET status = 'closed', closed_at = now(), outcome = c.outcome, version = f.version + 1
    FROM jsonb_to_recordset(@closed::jsonb) AS c (detector text, subject text, outcome text)
    WHERE f.site_id = @site_id AND f.detector = c.detector AND f.subject = c.subject AND f.status <> 'closed'
    RETURNING f.id, f.detector, f.subject, f.node_id, f.severity, f.outcome
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'drift', g.id, g.node_id, 'drift.closed', jsonb_build_object('id', g.id, 'detector', g.detector, 'severity', g.severity,
        'subject', g.subject, 'node_id', g.node_id, 'site_id', @site_id::text, 'outcome', g.outcome) FROM gone g
)
SELECT g.id FROM gone g;

-- name: FindingsNotSeen :many
-- Live findings of these detectors that the pass which began then has not seen.
SELECT f.detector, f.subject FROM drift_findings f
WHERE f.site_id = @site_id AND f.status <> 'closed' AND f.detector = ANY (@detectors::text[]) AND f.last_seen_at < @begun::timestamptz
ORDER BY f.detector, f.subject LIMIT @max_rows;

-- name: FindingsOfDeletedNodes :many
SELECT f.detector, f.subject FROM drift_findings f JOIN nodes n ON n.id = f.node_id
WHERE f.site_id = @site_id AND f.status <> 'closed' AND n.status = 'deleted' ORDER BY f.detector, f.subject LIMIT @max_rows;

-- name: PruneFindings :execrows
DELETE FROM drift_findings WHERE id IN (SELECT f.id FROM drift_findings f WHERE f.status = 'closed' AND f.closed_at < @before::timestamptz LIMIT @max_rows);

-- name: FindingByID :one
SELECT sqlc.embed(f), coalesce(n.hostname, '')::text AS hostname, coalesce(n.lifecycle, '')::text AS lifecycle FROM drift_findings f LEFT JOIN nodes n ON n.id = f.node_id WHERE f.id = @id;

-- name: LockFinding :one
SELECT * FROM drift_findings WHERE id = @id FOR NO KEY UPDATE;

-- name: ListFindings :many
-- Newest first.
SELECT sqlc.embed(f), coalesce(n.hostname, '')::text AS hostname, coalesce(n.lifecycle, '')::text AS lifecycle FROM drift_findings f LEFT JOIN nodes n ON n.id = f.node_id
WHERE (@before::text = '' OR f.id < @before::text)
    AND (@status::text = '' OR f.status = @status::text)
    AND (@detector::text = '' OR f.detector = @detector::text)
    AND (@severity::text = '' OR f.severity = @severity::text)
    AND (@site_id::text = '' OR f.site_id = @site_id::text)
    AND (@node_id::text = '' OR f.node_id = @node_id::text)
ORDER BY f.id DESC LIMIT @max_rows;

-- name: ActOnFinding :one
UPDATE drift_findings SET action = @action, acted_at = now(), acted_by = @acted_by, acted_reason = @reason, acted_key = key,
    status = @to_status, closed_at = CASE WHEN @closes::boolean THEN now() END, outcome = @outcome, version = version + 1
WHERE id = @id AND status = @from_status RETURNING *;

-- name: FindingsToQuarantine :many
-- Findings that the reconciler may quarantine a node for: seen by this pass and by the one before, nothing done about them yet, no job at work. What only
-- the agent says of an occupied node is the tenant's word and quarantines nothing.
SELECT f.id, f.node_id::text AS node_id, f.detector, f.key FROM drift_findings f JOIN nodes n ON n.id = f.node_id
WHERE f.site_id = @site_id AND f.status = 'open' AND f.detector = ANY (@detectors::text[]) AND f.streak >= @confirm AND f.last_seen_at >= @begun::timestamptz
    AND f.acted_key <> f.key AND n.lifecycle = 'maas' AND n.status IN ('active', 'offline')
    AND NOT (f.detector = ANY (@by_agent::text[]) AND n.allocation_id IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
ORDER BY f.first_seen_at, f.id LIMIT @max_rows;

-- name: LockPass :one
SELECT pass FROM drift_passes WHERE site_id = @site_id FOR UPDATE;

-- name: CountQuarantines :one
-- How many nodes the reconciler quarantined within the hour, and how many are in service or were until then.
SELECT (SELECT count(DISTINCT f.node_id) FROM drift_findings f
        WHERE f.site_id = @site_id AND f.action = 'quarantine' AND f.acted_by = 'reconciler' AND f.acted_at > now() - interval '1 hour')::bigint AS done,
    (SELECT count(*) FROM nodes n WHERE n.site_id = @site_id AND n.status IN ('active', 'offline'))::bigint AS serving;

-- name: CountFindings :many
SELECT f.detector, f.severity, count(*) AS findings FROM drift_findings f WHERE f.status = 'open' GROUP BY f.detector, f.severity ORDER BY f.detector;

-- name: MarkForgottenTenants :execrows
-- Nodes that MAAS or their agent holds for an allocation, in this pass and in the one before, and nobody in the database: a tenant of whom a restored
-- database does not know is there, or was. Until a certificate proves such a node clean it counts as one that he left.
UPDATE nodes n SET tenant_left_at = now(), updated_at = now(), version = version + 1
WHERE n.site_id = @site_id AND n.tenant_left_at IS NULL AND n.allocation_id IS NULL AND n.lifecycle = 'maas' AND n.state_changed_at < @begun::timestamptz
    AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
    AND EXISTS (SELECT FROM drift_findings f WHERE f.node_id = n.id AND f.status = 'open' AND f.detector = ANY (@detectors::text[])
        AND f.streak >= @confirm AND f.last_seen_at >= @begun::timestamptz AND coalesce(f.evidence ->> 'held_for', '') <> '');
