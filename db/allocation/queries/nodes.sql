-- name: ClaimFreeNode :one
-- Takes a node that no other transaction has locked. Nodes of reserves that are not to be touched are at sites in full_sites.
UPDATE nodes SET allocation_id = @allocation_id::text, updated_at = now(), version = version + 1
WHERE nodes.id = (
    SELECT n.id FROM nodes n
    WHERE n.sku_id = @sku_id::text AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
      AND (@site_id::text = '' OR n.site_id = @site_id::text) AND n.site_id <> ALL (@full_sites::text[])
      AND EXISTS (SELECT FROM claimable_nodes c WHERE c.id = n.id)
    ORDER BY n.id LIMIT 1 FOR NO KEY UPDATE OF n SKIP LOCKED)
RETURNING id, site_id;

-- name: ClaimLockedNode :one
-- ClaimFreeNode that waits for nodes that others have locked: one of them may be given back.
UPDATE nodes SET allocation_id = @allocation_id::text, updated_at = now(), version = version + 1
WHERE nodes.id = (
    SELECT n.id FROM nodes n
    WHERE n.sku_id = @sku_id::text AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
      AND (@site_id::text = '' OR n.site_id = @site_id::text) AND n.site_id <> ALL (@full_sites::text[])
      AND EXISTS (SELECT FROM claimable_nodes c WHERE c.id = n.id)
    ORDER BY n.id LIMIT 1 FOR NO KEY UPDATE OF n)
RETURNING id, site_id;

-- name: LockFreedNodes :many
-- Nodes that became free and of which no request was told yet. Whoever tells requests does so alone, or two would tell the same one.
SELECT w.node_id, n.sku_id::text AS sku_id, n.site_id FROM claim_wakes w JOIN nodes n ON n.id = w.node_id
WHERE w.woken_at IS NULL AND n.sku_id IS NOT NULL ORDER BY w.freed_at LIMIT @max_rows FOR NO KEY UPDATE OF w;

-- name: WaitingRequest :one
-- The request that has waited longest for such a node and that was not told of another one within the last seconds, with its job.
SELECT a.id AS allocation_id, j.id AS job_id FROM allocations a
JOIN jobs j ON j.resource_kind = 'allocation' AND j.resource_id = a.id AND j.status IN ('pending', 'running')
WHERE a.status = 'requested' AND a.sku_id = @sku_id AND (a.site_id IS NULL OR a.site_id = @site_id::text) AND a.queue_deadline_at > now()
  AND NOT EXISTS (SELECT FROM claim_wakes w WHERE w.allocation_id = a.id AND w.woken_at > clock_timestamp() - make_interval(secs => @quiet_seconds::float8))
ORDER BY a.id LIMIT 1;

-- name: EndWake :exec
UPDATE claim_wakes SET woken_at = clock_timestamp(), allocation_id = sqlc.narg('allocation_id') WHERE node_id = @node_id;

-- name: LockReserves :many
-- Claims of a SKU that has reserves are made one after the other.
SELECT site_id, nodes FROM sku_reserves WHERE sku_id = @sku_id ORDER BY site_id FOR NO KEY UPDATE;

-- name: CountClaimable :many
SELECT site_id, count(*)::integer AS nodes FROM claimable_nodes
WHERE sku_id = @sku_id::text AND (@site_id::text = '' OR site_id = @site_id::text) GROUP BY site_id ORDER BY site_id;

-- name: FreeNode :one
-- The occupancy of a node ends. Unless a certificate of after the tenant's access proves the node clean, it is marked as one that a tenant left, and
-- so is a node whose pointer named nobody or another allocation; the pointer to another one stays.
UPDATE nodes SET allocation_id = nullif(allocation_id, @allocation_id::text), updated_at = now(), version = version + 1,
    tenant_left_at = CASE WHEN @dirty::boolean OR allocation_id IS DISTINCT FROM @allocation_id::text THEN coalesce(tenant_left_at, now()) ELSE tenant_left_at END
WHERE id = @id
RETURNING tenant_left_at, status;

-- name: ClearPointer :execrows
-- A pointer to an allocation that does not occupy the node: what it stood for counts as a tenant that left.
UPDATE nodes SET allocation_id = NULL, tenant_left_at = coalesce(tenant_left_at, now()), updated_at = now(), version = version + 1
WHERE nodes.id = @id AND nodes.allocation_id IS NOT NULL AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = @id AND a.node_released_at IS NULL);

-- name: ProvesClean :one
-- Whether a certificate proves a node clean of a tenant whose access ended at a moment: of every disk, or of what he left on a system that stays.
SELECT EXISTS (SELECT FROM certificates WHERE id = @id AND node_id = @node_id
    AND (verdict = 'clean' AND issued_at > @after::timestamptz OR sanitized_since > @after::timestamptz));

-- name: TakeNode :one
-- Gives the job the node as its own, unless another live job has it.
UPDATE jobs SET node_id = @node_id::text, site_id = @site_id::text
WHERE jobs.id = @id AND (jobs.node_id IS NULL OR jobs.node_id = @node_id::text) AND NOT EXISTS (SELECT FROM jobs o WHERE o.node_id = @node_id::text AND o.id <> @id
    AND o.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
RETURNING id;

-- name: EnterOccupancy :exec
WITH ended AS (
    UPDATE node_occupancies o SET until = clock_timestamp()
    WHERE o.node_id = @node_id AND o.until IS NULL
      AND (o.state, o.allocation_id, o.certificate_id) IS DISTINCT FROM (@state::text, sqlc.narg('allocation_id')::text, sqlc.narg('certificate_id')::text)
    RETURNING o.id
)
INSERT INTO node_occupancies (node_id, state, allocation_id, certificate_id)
SELECT @node_id, @state::text, sqlc.narg('allocation_id')::text, sqlc.narg('certificate_id')::text FROM (SELECT count(*) AS n FROM ended) e
WHERE e.n > 0 OR NOT EXISTS (SELECT FROM node_occupancies c WHERE c.node_id = @node_id AND c.until IS NULL);

-- name: Occupancies :many
SELECT * FROM node_occupancies WHERE node_id = @node_id AND (@before::bigint = 0 OR id < @before::bigint) ORDER BY id DESC LIMIT @max_rows;

-- name: SetFirmwareSnapshot :execrows
UPDATE node_occupancies SET firmware_snapshot = @snapshot WHERE allocation_id = @allocation_id::text AND state = 'allocated' AND firmware_snapshot IS NULL;

-- name: FirmwareSnapshot :one
SELECT firmware_snapshot FROM node_occupancies WHERE allocation_id = @allocation_id::text AND state = 'allocated' AND firmware_snapshot IS NOT NULL ORDER BY id LIMIT 1;

-- name: OccupancyMismatches :many
-- Nodes whose pointer and whose occupant are not the same.
SELECT n.id AS node_id, n.site_id, n.hostname, coalesce(n.allocation_id, '')::text AS pointer, coalesce(a.id, '')::text AS occupant
FROM nodes n LEFT JOIN allocations a ON a.node_id = n.id AND a.node_released_at IS NULL
WHERE n.allocation_id IS DISTINCT FROM a.id AND (@site_id::text = '' OR n.site_id = @site_id::text) ORDER BY n.id LIMIT @max_rows;

-- name: PutReserve :exec
INSERT INTO sku_reserves (sku_id, site_id, nodes) VALUES (@sku_id, @site_id, @nodes)
ON CONFLICT (sku_id, site_id) DO UPDATE SET nodes = excluded.nodes, updated_at = now();

-- name: DeleteReserve :execrows
DELETE FROM sku_reserves WHERE sku_id = @sku_id AND site_id = @site_id;

-- name: ListReserves :many
SELECT * FROM sku_reserves WHERE sku_id = ANY (@sku_ids::text[]) ORDER BY sku_id, site_id;

-- name: KeepReserves :exec
DELETE FROM sku_reserves WHERE sku_id = @sku_id AND site_id <> ALL (@site_ids::text[]);

-- name: HeldForAnother :one
-- The allocation for which MAAS has the machine of a node marked, where the last pass of the reconciler found that it is another one; "" where it found none.
-- unread says that the database was restored and the machines of the site were not listed since: such a mark would not be known yet.
SELECT coalesce((SELECT f.evidence ->> 'held_for' FROM drift_findings f WHERE f.node_id = n.id AND f.detector = @detector AND f.status = 'open' LIMIT 1), '')::text AS held_for,
    (n.maas_system_id IS NOT NULL AND EXISTS (SELECT FROM restores r WHERE r.began_at > @since::timestamptz
        AND NOT EXISTS (SELECT FROM drift_passes p WHERE p.site_id = n.site_id AND p.finished_at > r.began_at)))::boolean AS unread
FROM nodes n WHERE n.id = @node_id;

-- name: EndMachineRights :many
-- The machine of a node belongs to no project any more, and no cluster of the project speaks for it. joined_at stays: a certificate ends what it stands for.
WITH ended AS (
    UPDATE machines m SET project_id = NULL, version = m.version + 1, updated_at = now(), conditions = coalesce((SELECT jsonb_agg(x)
        FROM jsonb_array_elements(m.conditions) x WHERE x ->> 'type' NOT IN ('InCustomerCluster', 'Drained')), '[]')
    FROM machines b WHERE b.id = m.id AND m.node_id = @node_id::text AND m.project_id IS NOT NULL
    RETURNING m.id, b.project_id
), left_clusters AS (
    UPDATE machine_clusters c SET cluster_ref = NULL, updated_at = now() FROM ended e WHERE c.machine_id = e.id
)
SELECT id, coalesce(project_id, '')::text AS project_id FROM ended;
