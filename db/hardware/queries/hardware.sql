-- name: Survey :one
SELECT * FROM bmc_surveys WHERE bmc_id = @bmc_id;

-- name: LockSurvey :one
SELECT inventory FROM bmc_surveys WHERE bmc_id = @bmc_id FOR UPDATE;

-- name: PutSurvey :exec
-- A reading that is older than the one that is kept changes nothing.
INSERT INTO bmc_surveys (bmc_id, read_at, health, probes, left_out, inventory, digest, modes, partial)
VALUES (@bmc_id, @read_at, @health, @probes, @left_out, @inventory, @digest, @modes::text[], @partial::text[])
ON CONFLICT (bmc_id) DO UPDATE SET read_at = excluded.read_at, health = excluded.health, probes = excluded.probes, left_out = excluded.left_out,
    inventory = excluded.inventory, digest = excluded.digest, modes = excluded.modes, partial = excluded.partial
WHERE bmc_surveys.read_at <= excluded.read_at;

-- name: AgentInventory :one
SELECT * FROM agent_inventories WHERE node_id = @node_id;

-- name: AgentInventoriesDue :many
-- Nodes whose agents' parts were copied longest ago, of those that were heard since the last copy.
SELECT n.id, h.report, h.received_at, coalesce(i.inventory, '{}')::jsonb AS inventory
FROM nodes n JOIN heartbeats h ON h.node_id = n.id LEFT JOIN agent_inventories i ON i.node_id = n.id
WHERE n.site_id = @site_id AND n.status IN ('active', 'offline', 'quarantined') AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id
    AND (i.node_id IS NULL OR i.read_at <= @before::timestamptz AND h.received_at > i.read_at)
ORDER BY i.read_at NULLS FIRST, n.id LIMIT @max_rows;

-- name: PutAgentInventories :exec
INSERT INTO agent_inventories (node_id, read_at, inventory, digest)
SELECT e.node_id, e.read_at, e.inventory, e.digest FROM jsonb_to_recordset(@rows::jsonb) AS e (node_id text, read_at timestamptz, inventory jsonb, digest text)
ORDER BY e.node_id
ON CONFLICT (node_id) DO UPDATE SET read_at = excluded.read_at, inventory = excluded.inventory, digest = excluded.digest
WHERE agent_inventories.read_at <= excluded.read_at;

-- name: KnownLogEntries :many
SELECT service, entry_id, digest FROM bmc_log_entries WHERE bmc_id = @bmc_id;

-- name: LogRead :one
SELECT * FROM bmc_log_reads WHERE bmc_id = @bmc_id;

-- name: AddLogEntries :execrows
INSERT INTO bmc_log_entries (bmc_id, service, entry_id, digest, severity, message_id, message, at)
SELECT @bmc_id, e.service, e.id, e.digest, e.severity, e.message_id, e.message, e.at
FROM jsonb_to_recordset(@entries::jsonb) AS e (service text, id text, digest text, severity text, message_id text, message text, at timestamptz)
ON CONFLICT ON CONSTRAINT bmc_log_entries_once DO NOTHING;

-- name: DropLogEntries :many
-- Deletes those of a severity that were copied longest ago, beyond so many, and returns their digests.
DELETE FROM bmc_log_entries d WHERE d.id IN (
    SELECT x.id FROM bmc_log_entries x WHERE x.bmc_id = @bmc_id AND x.severity = @severity ORDER BY x.id DESC OFFSET @keep::integer)
RETURNING d.digest;

-- name: LockLogRead :one
SELECT gone FROM bmc_log_reads WHERE bmc_id = @bmc_id FOR UPDATE;

-- name: PutLogRead :exec
INSERT INTO bmc_log_reads (bmc_id, read_at, partial, dropped, gone, cursors) VALUES (@bmc_id, @read_at, @partial::text[], @dropped, @gone, @cursors)
ON CONFLICT (bmc_id) DO UPDATE SET read_at = excluded.read_at, partial = excluded.partial, dropped = bmc_log_reads.dropped + excluded.dropped,
    gone = excluded.gone, cursors = bmc_log_reads.cursors || excluded.cursors;

-- name: ListLogEntries :many
SELECT * FROM bmc_log_entries
WHERE bmc_id = @bmc_id AND id > @after::bigint AND (sqlc.narg(since)::timestamptz IS NULL OR at >= sqlc.narg(since)::timestamptz)
    AND (sqlc.narg(until)::timestamptz IS NULL OR at < sqlc.narg(until)::timestamptz) AND (@severity::text = '' OR severity = @severity::text)
ORDER BY id LIMIT @max_rows;

-- name: PruneLogEntries :execrows
DELETE FROM bmc_log_entries WHERE id IN (SELECT x.id FROM bmc_log_entries x WHERE x.recorded_at < @before::timestamptz ORDER BY x.recorded_at LIMIT @max_rows);

-- name: NodeState :one
-- All that the health of a node is made of.
SELECT n.id, n.hostname, n.sku_id, coalesce(b.id, '')::text AS bmc_id, h.report, h.received_at, h.reported_at, coalesce(h.report_boot_id = h.boot_id, false)::boolean AS of_this_boot,
    coalesce(CASE WHEN o.address = b.address THEN o.failures END, 0)::integer AS bmc_failures, coalesce(k.spec, 'null')::jsonb AS sku
FROM nodes n LEFT JOIN bmcs b ON b.node_id = n.id LEFT JOIN heartbeats h ON h.node_id = n.id LEFT JOIN drift_bmcs o ON o.bmc_id = b.id LEFT JOIN skus k ON k.id = n.sku_id
WHERE n.id = @node_id;

-- name: NodeFindings :many
SELECT f.id, f.detector, f.severity, f.status, f.message, f.last_seen_at FROM drift_findings f
WHERE f.node_id = @node_id AND f.status <> 'closed' ORDER BY f.id DESC LIMIT @max_rows;

-- name: PutSerialSource :exec
INSERT INTO node_serial_sources (node_id, serial, source) VALUES (@node_id, @serial, @source)
ON CONFLICT (node_id) DO UPDATE SET serial = excluded.serial, source = excluded.source;

-- name: SerialSource :one
SELECT s.source FROM node_serial_sources s JOIN nodes n ON n.id = s.node_id WHERE n.id = @node_id AND n.serial = s.serial;

-- name: InsertRackDevice :one
INSERT INTO rack_devices (id, site_id, kind, name, rack, bmc_id) VALUES (@id, @site_id, @kind, @name, @rack, @bmc_id) RETURNING *;

-- name: RackDevice :one
SELECT * FROM rack_devices WHERE id = @id;

-- name: RackDeviceOfBMC :one
SELECT * FROM rack_devices WHERE bmc_id = @bmc_id;

-- name: ListRackDevices :many
SELECT sqlc.embed(d), coalesce(v.health, '')::text AS health, v.read_at FROM rack_devices d LEFT JOIN bmc_surveys v ON v.bmc_id = d.bmc_id
WHERE d.id > @after::text AND (@site_id::text = '' OR d.site_id = @site_id::text) ORDER BY d.id LIMIT @max_rows;

-- name: RackDeviceHealths :many
-- How the rack devices of a site were when their BMCs were last read.
SELECT d.bmc_id, d.name, d.kind, o.health, o.health_problems, o.health_at FROM rack_devices d JOIN drift_bmcs o ON o.bmc_id = d.bmc_id
WHERE d.site_id = @site_id AND o.health_at IS NOT NULL AND d.bmc_id > @after::text ORDER BY d.bmc_id LIMIT @max_rows;
