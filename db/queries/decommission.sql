-- name: ClearTenantLeft :execrows
-- Nothing of a tenant that left before a moment is on the node any more.
UPDATE nodes SET tenant_left_at = NULL, left_by_machine = false, updated_at = now() WHERE id = @id AND tenant_left_at < @before::timestamptz;

-- name: HoldsRootTenant :one
-- Whether the tenant who is on a node, or who left it, was root there. The SKU of the last allocation with access says so; where none is known, he was.
-- A mark of another moment than the end of that allocation is that of a tenant of whom the database does not know, as after a restore. Pods of a cluster that the
-- machine of the node joined may have been root, and so may what a run did for a project.
SELECT ((n.allocation_id IS NOT NULL OR n.tenant_left_at IS NOT NULL OR EXISTS (SELECT FROM allocations o WHERE o.node_id = n.id AND o.node_released_at IS NULL))
    AND coalesce((SELECT s.tenant_root OR n.tenant_left_at IS DISTINCT FROM a.node_released_at FROM allocations a JOIN skus s ON s.id = a.sku_id
        WHERE a.node_id = n.id AND (a.access_given_at IS NOT NULL OR a.node_released_at IS NULL)
        ORDER BY a.node_released_at DESC NULLS FIRST LIMIT 1), true)
    OR EXISTS (SELECT FROM machines m WHERE m.node_id = n.id AND holds_traces(m.id, n.id)))::boolean AS root
FROM nodes n WHERE n.id = @id;

-- name: RootByMachine :one
-- Whether all that may have been root on a node came through the machine of a project, and no allocation gave anybody access to it since it was clean.
SELECT (n.allocation_id IS NULL AND (n.left_by_machine OR n.tenant_left_at IS NULL)
    AND NOT EXISTS (SELECT FROM allocations o WHERE o.node_id = n.id AND o.node_released_at IS NULL))::boolean AS by_machine
FROM nodes n WHERE n.id = @id;

-- name: LastTenancy :one
-- The allocation of the tenant who is on a node, or who left it, as HoldsRootTenant finds it; empty where none is known.
SELECT coalesce((SELECT a.id FROM allocations a WHERE a.node_id = @node_id AND (a.access_given_at IS NOT NULL OR a.node_released_at IS NULL)
    ORDER BY a.node_released_at DESC NULLS FIRST LIMIT 1), '')::text AS id;

-- name: FormerTenancy :one
-- Of some records of the same hardware the one that a tenant who was root left last, where nothing has proven it clean since, with his allocation: as
-- LastTenancy finds it, where a snapshot is kept of the node's BMC. Only a record that was deleted, or is about to be, is that of a machine that came back.
SELECT d.id AS node_id, t.id AS allocation_id
FROM nodes d CROSS JOIN LATERAL (SELECT a.id, s.tenant_root FROM allocations a JOIN skus s ON s.id = a.sku_id
    WHERE a.node_id = d.id AND a.access_given_at IS NOT NULL ORDER BY a.node_released_at DESC NULLS FIRST LIMIT 1) t
WHERE d.id = ANY (@records::text[]) AND (d.status = 'deleted' OR d.status IN ('draining', 'removing', 'retired') AND d.maas_system_id IS NULL) AND d.tenant_left_at IS NOT NULL AND t.tenant_root
  AND EXISTS (SELECT FROM node_occupancies o WHERE o.allocation_id = t.id AND o.firmware_snapshot IS NOT NULL)
ORDER BY d.tenant_left_at DESC, d.id LIMIT 1;

-- name: SecretUses :many
-- Who else refers to a secret, by its name without a version.
SELECT ('BMC ' || b.id)::text AS who FROM bmcs b
WHERE b.id <> @but_bmc::text AND @name::text IN (split_part(b.credential_ref, '@', 1), split_part(b.candidate_ref, '@', 1))
UNION ALL
SELECT ('site ' || s.id)::text FROM sites s
WHERE @name::text IN (split_part(s.spec ->> 'maas_api_key_ref', '@', 1), split_part(s.spec ->> 'ssh_key_ref', '@', 1))
UNION ALL
SELECT ('profile ' || p.id)::text FROM profiles p WHERE @name::text = split_part(p.spec ->> 'site_bootstrap_bundle_ref', '@', 1)
UNION ALL
SELECT ('signing key ' || k.id)::text FROM signing_keys k WHERE @name::text = split_part(k.secret_ref, '@', 1)
ORDER BY 1;

-- name: DropBMCOfNode :execrows
-- Only a record that nothing else remembers goes.
DELETE FROM bmcs WHERE bmcs.id = @id AND bmcs.node_id = @node_id::text
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.bmc_id = bmcs.id)
    AND NOT EXISTS (SELECT 1 FROM bmc_rotations r WHERE r.bmc_id = bmcs.id);

-- name: DetachBMC :execrows
UPDATE bmcs SET node_id = NULL, updated_at = now(), version = version + 1 WHERE id = @id AND node_id = @node_id::text;

-- name: DeleteNodeAccess :execrows
-- What only a node that is there needs.
UPDATE nodes SET ssh_host_key = '', ssh_address = '', ip_addresses = '{}', ip_addresses_source = '', ip_addresses_at = NULL, updated_at = now() WHERE id = @id;

-- name: LooksFreeAfterRestore :one
-- Whether the database says that nobody is on the node and nobody has left it, and was restored since the node was last seen to agree with that. listed says
-- that the machines of its site were read since the restore.
SELECT (n.allocation_id IS NULL AND n.tenant_left_at IS NULL AND NOT EXISTS (SELECT FROM allocations o WHERE o.node_id = n.id AND o.node_released_at IS NULL)
    AND n.maas_system_id IS NOT NULL
    AND coalesce((SELECT max(r.id) FROM restores r), 0) > coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0))::boolean AS unknown,
    EXISTS (SELECT FROM drift_passes p WHERE p.site_id = n.site_id AND p.finished_at > (SELECT max(r.began_at) FROM restores r))::boolean AS listed
FROM nodes n WHERE n.id = @id;

-- name: InheritTenantLeft :exec
-- A node whose machine was another node, which a tenant left and nothing proved clean before it was deleted: what he left is on the machine's disks.
UPDATE nodes SET tenant_left_at = @left_at::timestamptz, left_by_machine = @left_by_machine::boolean, updated_at = now(), version = version + 1
WHERE id = @id AND tenant_left_at IS NULL AND allocation_id IS NULL AND lifecycle = 'maas';

-- name: MarkClusterNode :exec
-- A node whose machine a run had join a cluster, or changed for a project, and that nothing has proven clean since, is as dirty as one that a tenant left.
UPDATE nodes SET tenant_left_at = now(), left_by_machine = true WHERE nodes.id = @id AND nodes.tenant_left_at IS NULL AND nodes.lifecycle = 'maas'
  AND EXISTS (SELECT FROM machines m WHERE m.node_id = nodes.id AND holds_traces(m.id, nodes.id));

-- name: KindredNodes :many
-- Other records that have a serial number, a UUID in either byte order, or a MAC address in common with a machine: those that a tenant left, whether they are
-- deleted or still being removed, and those that are tied to their machine. The caller compares them key by key. A discovered node is what any machine of the
-- boot network says.
SELECT n.id FROM nodes n
WHERE n.id <> @node_id AND n.status <> 'discovered'
  AND (n.tenant_left_at IS NOT NULL OR n.status <> 'deleted' AND (n.maas_system_id IS NOT NULL OR n.lifecycle = 'pxe' AND n.status <> 'retired'))
  AND (upper(n.serial) = nullif(upper(@serial::text), '') OR lower(n.hardware_uuid) = ANY (@uuids::text[]) OR n.macs && @macs::text[])
ORDER BY (n.tenant_left_at IS NOT NULL) DESC, n.tenant_left_at DESC NULLS LAST, n.id LIMIT @max_rows;

-- name: CleanProofs :many
-- Nodes with a certificate of a later scrub that says clean: those named, and those that have a key in common with a machine. A scrub that began before proves
-- nothing, whenever its certificate was issued.
SELECT DISTINCT x.id FROM certificates e JOIN nodes x ON x.id = e.node_id
WHERE e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > @since::timestamptz
  AND (x.id = ANY (@ids::text[]) OR upper(x.serial) = nullif(upper(@serial::text), '') OR lower(x.hardware_uuid) = ANY (@uuids::text[]) OR x.macs && @macs::text[])
ORDER BY x.id LIMIT @max_rows;

-- name: ErasureProofs :many
-- As CleanProofs, of certificates that name disks and say of each that it was erased, whatever they say of the rest.
SELECT DISTINCT x.id FROM certificates e JOIN nodes x ON x.id = e.node_id
CROSS JOIN LATERAL (SELECT convert_from(nullif(e.payload, ''::bytea), 'UTF8')::jsonb AS said) c
WHERE coalesce(e.sanitized_since, e.issued_at) > @since::timestamptz AND jsonb_path_exists(c.said, '$.devices[*] ? (@.kind == "disk")')
  AND NOT jsonb_path_exists(c.said, '$.devices[*] ? (@.kind == "disk" && @.verified == false)')
  AND (x.id = ANY (@ids::text[]) OR upper(x.serial) = nullif(upper(@serial::text), '') OR lower(x.hardware_uuid) = ANY (@uuids::text[]) OR x.macs && @macs::text[])
ORDER BY x.id LIMIT @max_rows;
