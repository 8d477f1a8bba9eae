-- name: InsertNode :one
-- The node, its creation audit row and its event in one statement; no row when a live node has the hostname.
WITH made AS (
    INSERT INTO nodes (id, lifecycle, status, hostname, site_id, sku_id, profile_id, serial, simulated, labels)
    VALUES (@id, @lifecycle, @status, @hostname, @site_id, @sku_id, @profile_id, @serial, @simulated, @labels)
    ON CONFLICT DO NOTHING RETURNING id, status, version
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'node', id, id, 'transition', 'create', '', status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, version
    FROM made
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'node', id, id, 'node.' || status, @payload FROM made
)
SELECT version FROM made;

-- name: Node :one
SELECT * FROM nodes WHERE id = @id;

-- name: LockNode :one
SELECT * FROM nodes WHERE id = @id FOR NO KEY UPDATE;

-- name: LiveNodeOfHost :one
SELECT * FROM nodes WHERE site_id = @site_id AND hostname = @hostname AND status <> 'deleted';

-- name: LiveNodeOfMachine :one
SELECT * FROM nodes WHERE site_id = @site_id AND maas_system_id = @maas_system_id::text AND status <> 'deleted';

-- name: ListNodes :many
SELECT * FROM nodes
WHERE id > @after::text
  AND (@except_status::text = '' OR status <> @except_status::text)
  AND (cardinality(@statuses::text[]) = 0 OR status = ANY (@statuses::text[])) AND (cardinality(@ids::text[]) = 0 OR id = ANY (@ids::text[]))
  AND (@sku_id::text = '' OR sku_id = @sku_id::text)
  AND (@lifecycle::text = '' OR lifecycle = @lifecycle::text)
  AND (@site_id::text = '' OR site_id = @site_id::text)
ORDER BY id LIMIT @max_rows;

-- name: SearchNodes :many
-- ListNodes of the nodes whose hostname or serial contains the text, or whose id, MAAS system id or MAC it is. Planned with the text in it: for one
-- that most nodes contain the way is along the ids, for any other the index.
SELECT n.* FROM node_search s JOIN nodes n ON n.id = s.node_id
WHERE s.node_id > @after::text
  AND (s.terms @> search_needles(lower(@q::text)) AND (strpos(s.hostname, lower(@q::text)) > 0 OR strpos(s.serial, lower(@q::text)) > 0)
       OR s.terms && ARRAY[':' || @q::text, ':' || lower(@q::text)])
  AND (@except_status::text = '' OR n.status <> @except_status::text)
  AND (cardinality(@statuses::text[]) = 0 OR n.status = ANY (@statuses::text[])) AND (cardinality(@ids::text[]) = 0 OR n.id = ANY (@ids::text[]))
  AND (@sku_id::text = '' OR n.sku_id = @sku_id::text)
  AND (@lifecycle::text = '' OR n.lifecycle = @lifecycle::text)
  AND (@site_id::text = '' OR n.site_id = @site_id::text)
  AND (@hostname::text = '' OR n.hostname = @hostname::text)
ORDER BY s.node_id LIMIT @max_rows;

-- name: MoveNode :one
-- The commit point of a node: guarded update, audit row and event in one statement.
WITH moved AS (
    UPDATE nodes SET status = @to_state, state_changed_at = now(), updated_at = now(), version = version + 1
    WHERE nodes.id = @id AND nodes.status = @from_state::text AND nodes.version = @version
    RETURNING nodes.id, nodes.status, nodes.version, nodes.state_changed_at
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'node', id, id, 'transition', @name, @from_state::text, status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, version
    FROM moved
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'node', id, id, 'node.' || status, @payload FROM moved
)
SELECT version, state_changed_at FROM moved;

-- name: UpdateNode :one
UPDATE nodes SET hostname = @hostname, sku_id = @sku_id, profile_id = @profile_id, labels = @labels, version = version + 1, updated_at = now()
WHERE id = @id AND version = @version RETURNING *;

-- name: SetNodeMachine :execrows
UPDATE nodes SET maas_system_id = @maas_system_id, serial = coalesce(nullif(@serial::text, ''), serial),
    hardware_uuid = coalesce(nullif(@hardware_uuid::text, ''), hardware_uuid),
    macs = CASE WHEN cardinality(@macs::text[]) = 0 THEN macs ELSE @macs::text[] END, version = version + 1, updated_at = now()
WHERE id = @id;

-- name: SetMAASCreateIntent :execrows
UPDATE nodes SET maas_create_intent = @maas_create_intent, updated_at = now() WHERE id = @id;

-- name: SetNodeAddresses :execrows
-- MAAS and the installer know the addresses of a node better than its agent does: the agent only names those of a node that has none of theirs. It names none
-- while what a tenant left may run there.
UPDATE nodes SET ip_addresses = @ip_addresses, ip_addresses_source = @source, ip_addresses_at = CASE WHEN @source::text <> '' THEN now() END,
    ssh_address = coalesce(nullif(@ssh_address::text, ''), ssh_address), version = version + 1, updated_at = now()
WHERE id = @id AND status <> 'deleted' AND (@source::text <> 'agent' OR ip_addresses_source IN ('', 'agent') AND tenant_left_at IS NULL)
    AND (ip_addresses <> @ip_addresses OR ip_addresses_source <> @source OR @ssh_address::text NOT IN ('', ssh_address));

-- name: SetNodeHostKey :execrows
UPDATE nodes SET ssh_host_key = @ssh_host_key, version = version + 1, updated_at = now() WHERE id = @id AND ssh_host_key <> @ssh_host_key;

-- name: NodesOverdue :many
-- Active nodes whose last heartbeat is older than the cutoff, or that never sent one and became active before it. Only lifecycle maas has an agent
-- that must speak.
SELECT n.id FROM nodes n LEFT JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND coalesce(h.received_at, n.state_changed_at) < @cutoff::timestamptz
ORDER BY n.id LIMIT @max_rows;

-- name: NodesBack :many
-- Offline nodes that sent a heartbeat since the cutoff and whose report of this very boot has nothing unhealthy; not those that a tenant left and nothing proves clean.
SELECT n.id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.status = 'offline' AND h.received_at >= @cutoff::timestamptz AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id
    AND cardinality(h.unhealthy) = 0 AND (n.tenant_left_at IS NULL OR n.allocation_id IS NOT NULL)
ORDER BY n.id LIMIT @max_rows;
