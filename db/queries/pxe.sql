-- name: NodeOfMAC :one
-- The PXE node that has this address and is not retired.
SELECT n.* FROM pxe_macs m JOIN nodes n ON n.id = m.node_id WHERE m.mac = @mac;

-- name: OtherNodeOfMAC :one
-- A node of another lifecycle that has this address.
SELECT id FROM nodes WHERE macs @> ARRAY[@mac::text] AND lifecycle <> 'pxe' AND status <> 'deleted' ORDER BY id LIMIT 1;

-- name: RetiredNodeOfMAC :one
SELECT id FROM nodes WHERE macs @> ARRAY[@mac::text] AND lifecycle = 'pxe' AND status = 'retired' ORDER BY id DESC LIMIT 1;

-- name: CountDiscovered :one
SELECT count(*) FROM nodes WHERE status = 'discovered';

-- name: CrowdedOutDiscovered :one
-- The discovered node that gives way to a new one of a network, where the list is full: one of the network with the most nodes, which keeps more than
-- the other has then, and of it the one that was not seen for the longest. A node that was not seen for long also gives way to one of its own network
-- and of a network that has no more.
WITH waiting AS (
    SELECT n.id, p.seen_at, p.source_network, count(*) OVER (PARTITION BY p.source_network) AS of_network
    FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id WHERE n.status = 'discovered'
)
SELECT n.id FROM waiting w JOIN nodes n ON n.id = w.id
CROSS JOIN (SELECT count(*) AS of_network FROM waiting WHERE source_network = @source_network::text) own
WHERE n.status = 'discovered' AND (w.of_network > own.of_network + 1
   OR w.of_network >= own.of_network AND w.seen_at < now() - make_interval(secs => @unseen_seconds::double precision))
ORDER BY w.of_network DESC, w.seen_at, w.id LIMIT 1 FOR UPDATE OF n SKIP LOCKED;

-- name: InsertPXENode :exec
INSERT INTO pxe_nodes (node_id, facts, seen_from, source_network) VALUES (@node_id, @facts, @seen_from, @source_network);

-- name: InsertPXEMAC :execrows
INSERT INTO pxe_macs (mac, node_id) VALUES (@mac, @node_id) ON CONFLICT DO NOTHING;

-- name: DropPXEMACs :exec
-- With the addresses goes what was handed out under them: the hardware that had them gets nothing more in the node's name.
WITH voided AS (
    DELETE FROM pxe_tokens WHERE pxe_tokens.node_id = @node_id
), unused AS (
    UPDATE enrollment_tokens t SET revoked_at = now() WHERE t.node_id = @node_id AND t.used_at IS NULL AND t.revoked_at IS NULL
)
DELETE FROM pxe_macs WHERE pxe_macs.node_id = @node_id;

-- name: PXENode :one
SELECT * FROM pxe_nodes WHERE node_id = @node_id;

-- name: PXENodes :many
SELECT * FROM pxe_nodes WHERE node_id = ANY(@node_ids::text[]);

-- name: SeePXENode :exec
-- At most one write in ten seconds for a node that says nothing new.
UPDATE pxe_nodes SET seen_at = now(), seen_from = @seen_from, facts = facts || @facts::jsonb
WHERE node_id = @node_id AND (seen_at < now() - interval '10 seconds' OR NOT facts @> @facts::jsonb);

-- name: SeePXEFirmware :exec
-- What firmware says while a node migrates is evidence of which machine stands there; it changes nothing else.
UPDATE pxe_nodes SET seen_at = now(), seen_from = @seen_from, firmware = @firmware::jsonb
WHERE node_id = @node_id AND (seen_at < now() - interval '10 seconds' OR firmware <> @firmware::jsonb);

-- name: IdentifyDiscovered :exec
-- Until it is approved a node is the machine that shows itself now; what it does not say stays.
UPDATE nodes SET serial = coalesce(nullif(@serial::text, ''), serial), hardware_uuid = coalesce(nullif(@hardware_uuid::text, ''), hardware_uuid),
    version = version + 1, updated_at = now()
WHERE id = @id AND status = 'discovered'
  AND (serial <> coalesce(nullif(@serial::text, ''), serial) OR hardware_uuid <> coalesce(nullif(@hardware_uuid::text, ''), hardware_uuid));

-- name: AssignInstallWorkflow :exec
-- A node that waits to install begins a new round: what was handed out for the workflow before counts no more.
UPDATE pxe_nodes SET install_workflow_id = @install_workflow_id, round = round + CASE WHEN @queued::boolean THEN 1 ELSE 0 END WHERE node_id = @node_id;

-- name: AssignEraseWorkflow :exec
UPDATE pxe_nodes SET erase_workflow_id = @erase_workflow_id WHERE node_id = @node_id;

-- name: ArmNetboot :one
-- A new round: what was handed out before counts no more.
WITH voided AS (
    DELETE FROM pxe_tokens WHERE pxe_tokens.node_id = @node_id
)
UPDATE pxe_nodes SET netboot_workflow_id = @workflow_id::text, netboot_purpose = @purpose::text, netboot_job_id = @job_id::text, netboot_done_at = NULL,
    round = round + 1, started_at = NULL, progress = 0, warned = '{}', warned_at = NULL, begun_by = NULL
WHERE pxe_nodes.node_id = @node_id RETURNING *;

-- name: DisarmNetboot :execrows
WITH voided AS (
    DELETE FROM pxe_tokens t USING pxe_nodes p WHERE t.node_id = @node_id AND p.node_id = t.node_id AND p.netboot_job_id = @job_id::text
), unused AS (
    UPDATE enrollment_tokens t SET revoked_at = now() FROM pxe_nodes p
    WHERE t.node_id = @node_id AND t.used_at IS NULL AND t.revoked_at IS NULL AND p.node_id = t.node_id AND p.netboot_job_id = @job_id::text
)
UPDATE pxe_nodes SET netboot_workflow_id = NULL, netboot_purpose = '', netboot_job_id = NULL, netboot_done_at = NULL, started_at = NULL, progress = 0,
    warned = '{}', warned_at = NULL, begun_by = NULL
WHERE pxe_nodes.node_id = @node_id AND pxe_nodes.netboot_job_id = @job_id::text;

-- name: ForgetPXEFacts :exec
-- What the old hardware said of itself.
UPDATE pxe_nodes SET facts = '{}', firmware = '{}' WHERE node_id = @node_id;

-- name: PlanHardware :exec
UPDATE pxe_nodes SET planned_hardware = sqlc.narg('planned_hardware') WHERE node_id = @node_id;

-- name: TouchNode :one
UPDATE nodes SET version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: SetInstallAttempts :one
UPDATE nodes SET install_attempts = @install_attempts, last_install_error = @last_install_error, version = version + 1, updated_at = now()
WHERE id = @id RETURNING *;

-- name: SettlePXENode :exec
-- What a change of state means for the installation: a queued node begins a new round, only an installing one has a deadline, an installed one is
-- at 100 percent, and a retired one gives its addresses back. Tokens of a round that is over are kept until the next, so that a late report is known.
-- A netboot and planned hardware are a job's, which works in deprovisioning and migrating only.
WITH freed AS (
    DELETE FROM pxe_macs WHERE pxe_macs.node_id = @node_id AND @to_state::text = 'retired'
), voided AS (
    DELETE FROM pxe_tokens WHERE pxe_tokens.node_id = @node_id AND @to_state::text IN ('pending', 'retired')
), unused AS (
    UPDATE enrollment_tokens t SET revoked_at = now()
    WHERE t.node_id = @node_id AND t.used_at IS NULL AND t.revoked_at IS NULL AND @to_state::text IN ('pending', 'retired')
)
UPDATE pxe_nodes SET
    round = round + CASE WHEN @to_state::text = 'pending' THEN 1 ELSE 0 END,
    started_at = CASE WHEN @to_state::text = 'installing' THEN now() ELSE NULL END,
    netboot_workflow_id = CASE WHEN @to_state::text IN ('deprovisioning', 'migrating') THEN netboot_workflow_id END,
    netboot_purpose = CASE WHEN @to_state::text IN ('deprovisioning', 'migrating') THEN netboot_purpose ELSE '' END,
    netboot_job_id = CASE WHEN @to_state::text IN ('deprovisioning', 'migrating') THEN netboot_job_id END,
    netboot_done_at = CASE WHEN @to_state::text IN ('deprovisioning', 'migrating') THEN netboot_done_at END,
    planned_hardware = CASE WHEN @to_state::text = 'migrating' THEN planned_hardware END,
    firmware = CASE WHEN @to_state::text = 'migrating' THEN firmware ELSE '{}' END, warned = '{}', warned_at = NULL, begun_by = NULL,
    grown_at = CASE WHEN @to_state::text = 'installing' THEN now() END, stalled = false,
    progress = CASE @to_state::text WHEN 'installed' THEN 100 WHEN 'install_failed' THEN progress WHEN 'active' THEN progress ELSE 0 END,
    deadline_at = CASE WHEN @to_state::text = 'installing' THEN now() + make_interval(secs => @deadline_seconds::double precision) END
WHERE pxe_nodes.node_id = @node_id;

-- name: RunInstallAttempt :exec
-- The next attempt of an installing node: reported as started, or still to come after a failure.
UPDATE pxe_nodes SET started_at = CASE WHEN @started::boolean THEN now() END, progress = 0, grown_at = now(), stalled = false,
    deadline_at = now() + make_interval(secs => @deadline_seconds::double precision)
WHERE node_id = @node_id;

-- name: AdvanceInstall :exec
UPDATE pxe_nodes SET progress = @progress, deadline_at = now() + make_interval(secs => @deadline_seconds::double precision), seen_at = now(),
    grown_at = now(), stalled = false
WHERE node_id = @node_id AND progress < @progress;

-- name: KeepInstall :exec
-- A sign of life that gets no further moves the deadline, but not past a multiple of it since the attempt last got further.
UPDATE pxe_nodes p SET deadline_at = greatest(p.deadline_at, least(d.silent, d.stalled)), stalled = d.stalled <= d.silent
FROM (SELECT node_id, now() + make_interval(secs => @deadline_seconds::double precision) AS silent,
        coalesce(grown_at, deadline_at - make_interval(secs => @deadline_seconds::double precision)) + make_interval(secs => @stalled_seconds::double precision) AS stalled
    FROM pxe_nodes WHERE pxe_nodes.node_id = @node_id) d
WHERE p.node_id = d.node_id AND p.deadline_at IS NOT NULL;

-- name: BeginNetboot :exec
-- What a job boots reports that it started; what boots before this one say is over. The job has a deadline of its own.
UPDATE pxe_nodes SET started_at = now(), progress = 0, seen_at = now(), begun_by = @begun_by::timestamptz WHERE node_id = @node_id;

-- name: WarnNetboot :exec
UPDATE pxe_nodes SET started_at = NULL, progress = 0, seen_at = now(), warned = warned || @warning::text, warned_at = now() WHERE node_id = @node_id;

-- name: AdvanceNetboot :exec
UPDATE pxe_nodes SET progress = @progress, seen_at = now() WHERE node_id = @node_id AND progress < @progress;

-- name: FinishNetboot :exec
UPDATE pxe_nodes SET netboot_done_at = coalesce(netboot_done_at, now()), started_at = NULL, progress = 100, seen_at = now()
WHERE node_id = @node_id AND netboot_purpose = 'install';

-- name: NewestPXEAttempt :one
-- The newest attempt of a round that a token was handed out for; the newest token is never dropped.
SELECT coalesce(max(attempt), 0)::integer FROM pxe_tokens WHERE node_id = @node_id AND round = @round;

-- name: SilentInstalls :many
SELECT node_id FROM pxe_nodes WHERE deadline_at < now() + make_interval(secs => @ahead_seconds::double precision) ORDER BY deadline_at LIMIT @max_rows;

-- name: InsertPXEToken :exec
-- Of each source the newest and those in use stay, sixteen in all. Of a node 128 stay: those of the newest attempt first, in it those of the sources that
-- the node is known from, then the best one of each source, and of these the one that came first. So whoever fetches a script over and over, from however
-- many addresses, does not drop the token of a machine that boots from where it was discovered, or that fetched the script before.
WITH ranked AS (
    SELECT t.token_hash, t.round, t.attempt, t.created_at, t.source = ANY(@known_sources::text[]) AS known,
        row_number() OVER (PARTITION BY t.source, t.round, t.attempt ORDER BY t.used_at IS NULL, t.created_at DESC, t.token_hash) AS of_source
    FROM pxe_tokens t WHERE t.node_id = @node_id
), dropped AS (
    DELETE FROM pxe_tokens WHERE token_hash IN (
        SELECT r.token_hash FROM ranked r WHERE r.of_source > 15
        UNION ALL
        (SELECT r.token_hash FROM ranked r ORDER BY r.round DESC, r.attempt DESC, r.known DESC, r.of_source, r.created_at, r.token_hash OFFSET 127))
)
INSERT INTO pxe_tokens (token_hash, node_id, round, attempt, source, expires_at)
VALUES (@token_hash, @node_id, @round, @attempt, @source, now() + make_interval(secs => @ttl_seconds::double precision));

-- name: PXEToken :one
SELECT * FROM pxe_tokens WHERE token_hash = @token_hash AND expires_at > now();

-- name: UsePXEToken :exec
UPDATE pxe_tokens SET used_at = now() WHERE token_hash = @token_hash AND used_at IS NULL;

-- name: HasPXEMAC :one
SELECT EXISTS (SELECT 1 FROM pxe_macs WHERE mac = @mac AND node_id = @node_id);

-- name: PurgeableNodes :many
SELECT n.id FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id
WHERE n.lifecycle = 'pxe' AND n.status = 'discovered' AND (@seen_from::text = '' OR p.seen_from = @seen_from::text)
  AND p.seen_at <= now() - make_interval(secs => @unseen_seconds::double precision)
ORDER BY n.id LIMIT @max_rows FOR UPDATE OF n SKIP LOCKED;

-- name: DeleteDiscoveredNode :execrows
DELETE FROM nodes WHERE id = @id;

-- name: InsertInstallWorkflow :one
INSERT INTO install_workflows (id, name, spec) VALUES (@id, @name, @spec) ON CONFLICT (name) DO NOTHING RETURNING *;

-- name: InstallWorkflow :one
SELECT * FROM install_workflows WHERE id = @id;

-- name: InstallWorkflowByName :one
SELECT * FROM install_workflows WHERE name = @name;

-- name: ListInstallWorkflows :many
SELECT * FROM install_workflows WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateInstallWorkflow :one
UPDATE install_workflows SET name = @name, spec = @spec, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteInstallWorkflow :execrows
DELETE FROM install_workflows WHERE id = @id AND version = @version;

-- name: DeviceGroup :one
SELECT * FROM device_groups WHERE name = @name;

-- name: ListDeviceGroups :many
SELECT * FROM device_groups WHERE name > @after::text ORDER BY name LIMIT @max_rows;

-- name: PutDeviceGroup :one
INSERT INTO device_groups (name, auto_promote, erase_workflow_id) VALUES (@name, @auto_promote, sqlc.narg('erase_workflow_id'))
ON CONFLICT (name) DO UPDATE SET auto_promote = excluded.auto_promote, erase_workflow_id = excluded.erase_workflow_id, version = device_groups.version + 1, updated_at = now()
RETURNING *;

-- name: DeleteDeviceGroup :execrows
DELETE FROM device_groups WHERE name = @name;

-- name: ReplaceNodeHardware :one
UPDATE nodes SET macs = @macs, serial = @serial, hardware_uuid = @hardware_uuid, version = version + 1, updated_at = now()
WHERE id = @id AND version = @version RETURNING *;

-- name: MarkSimulated :exec
-- A node whose agent is simulated says so, for good: what it proved is about no hardware.
UPDATE nodes SET simulated = true, version = version + 1, updated_at = now() WHERE id = @id AND NOT simulated;
