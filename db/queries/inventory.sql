-- name: InsertSite :one
INSERT INTO sites (id, name, spec) VALUES (@id, @name, @spec) ON CONFLICT (name) DO NOTHING RETURNING *;

-- name: Site :one
SELECT * FROM sites WHERE id = @id;

-- name: SiteByName :one
SELECT * FROM sites WHERE name = @name;

-- name: ListSites :many
SELECT * FROM sites WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateSite :one
UPDATE sites SET name = @name, spec = @spec, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteSite :execrows
DELETE FROM sites WHERE id = @id AND version = @version;

-- name: InsertProfile :one
INSERT INTO profiles (id, site_id, name, spec) VALUES (@id, @site_id, @name, @spec) ON CONFLICT (site_id, name) DO NOTHING RETURNING *;

-- name: Profile :one
SELECT * FROM profiles WHERE id = @id;

-- name: ProfileByName :one
SELECT * FROM profiles WHERE site_id = @site_id AND name = @name;

-- name: ListProfiles :many
SELECT * FROM profiles WHERE (@site_id::text = '' OR site_id = @site_id) AND id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateProfile :one
UPDATE profiles SET name = @name, spec = @spec, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteProfile :execrows
DELETE FROM profiles WHERE id = @id AND version = @version;

-- name: InsertSKU :one
INSERT INTO skus (id, name, spec) VALUES (@id, @name, @spec) ON CONFLICT (name) DO NOTHING RETURNING *;

-- name: SKU :one
SELECT * FROM skus WHERE id = @id;

-- name: SKUByName :one
SELECT * FROM skus WHERE name = @name;

-- name: ListSKUs :many
SELECT * FROM skus WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateSKU :one
UPDATE skus SET name = @name, spec = @spec, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: HoldSKU :one
-- No allocation of the SKU is written until the transaction ends.
SELECT tenant_root FROM skus WHERE id = @id FOR UPDATE;

-- name: SKUTenancies :one
-- Allocations of a SKU that have not ended, or that left a node on which nothing proves that they are gone.
SELECT count(*) FROM allocations a LEFT JOIN nodes n ON n.id = a.node_id
WHERE a.sku_id = @sku_id AND (a.status NOT IN ('released', 'failed') OR a.access_given_at IS NOT NULL AND n.tenant_left_at IS NOT NULL);

-- name: SetSKUTenantRoot :exec
UPDATE skus SET tenant_root = @tenant_root, updated_at = now() WHERE id = @id;

-- name: DeleteSKU :execrows
DELETE FROM skus WHERE id = @id AND version = @version;

-- name: InsertRoCEAssignment :one
INSERT INTO roce_assignments (id, site_id, hostname, spec) VALUES (@id, @site_id, @hostname, @spec)
ON CONFLICT (site_id, hostname) DO NOTHING RETURNING *;

-- name: RoCEAssignmentByID :one
SELECT * FROM roce_assignments WHERE id = @id;

-- name: RoCEAssignmentOfHost :one
SELECT * FROM roce_assignments WHERE site_id = @site_id AND hostname = @hostname;

-- name: ListRoCEAssignments :many
SELECT * FROM roce_assignments WHERE site_id = @site_id AND id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateRoCEAssignment :one
UPDATE roce_assignments SET spec = @spec, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteRoCEAssignment :execrows
DELETE FROM roce_assignments WHERE id = @id AND version = @version;

-- name: InsertBMC :one
INSERT INTO bmcs (id, node_id, address, protocol, credential_ref, pin_sha256, vendor, system_id, ipmi_cipher_suite)
VALUES (@id, @node_id, @address, @protocol, @credential_ref, @pin_sha256, @vendor, @system_id, @ipmi_cipher_suite)
ON CONFLICT (node_id) DO NOTHING RETURNING *;

-- name: BMC :one
SELECT * FROM bmcs WHERE id = @id;

-- name: BMCOfNode :one
SELECT * FROM bmcs WHERE node_id = @node_id::text;

-- name: BMCsAt :many
-- Every record of what answers at an address; one to which logins are stopped comes first.
SELECT * FROM bmcs WHERE address = ANY(@addresses::text[]) ORDER BY auth_blocked_at NULLS LAST, id LIMIT 20;

-- name: ListBMCs :many
SELECT * FROM bmcs WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateBMC :one
UPDATE bmcs SET node_id = @node_id, address = @address, protocol = @protocol, credential_ref = @credential_ref, vendor = @vendor,
    system_id = @system_id, ipmi_cipher_suite = @ipmi_cipher_suite, version = version + 1, updated_at = now()
WHERE id = @id AND version = @version RETURNING *;

-- name: RackDeviceOfBMC :one
SELECT id, name, kind FROM rack_devices WHERE bmc_id = @bmc_id;

-- name: MachineOfBMC :one
-- A machine without a node whose BMC it is.
SELECT id FROM machines WHERE bmc_id = @bmc_id::text AND status <> 'RETIRED';

-- name: DropBMCOfNothing :execrows
-- Only a record that nothing else remembers goes.
DELETE FROM bmcs WHERE bmcs.id = @id AND bmcs.node_id IS NULL
    AND NOT EXISTS (SELECT FROM machines m WHERE m.bmc_id = bmcs.id)
    AND NOT EXISTS (SELECT FROM rack_devices d WHERE d.bmc_id = bmcs.id)
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.bmc_id = bmcs.id)
    AND NOT EXISTS (SELECT FROM bmc_rotations r WHERE r.bmc_id = bmcs.id);

-- name: DeleteBMC :execrows
DELETE FROM bmcs WHERE id = @id AND version = @version;

-- name: SetBMCPin :execrows
UPDATE bmcs SET pin_sha256 = @pin_sha256, pin_pending = '', version = version + 1, updated_at = now()
WHERE id = @id AND (pin_sha256 <> @pin_sha256 OR pin_pending <> '');

-- name: SetBMCPinPending :execrows
UPDATE bmcs SET pin_pending = @pin_pending, version = version + 1, updated_at = now() WHERE id = @id AND pin_pending <> @pin_pending;

-- name: SetBMCAddress :execrows
UPDATE bmcs SET address = @address, version = version + 1, updated_at = now() WHERE id = @id AND address <> @address;

-- name: SetBMCFacts :execrows
UPDATE bmcs SET vendor = @vendor, system_id = @system_id, version = version + 1, updated_at = now()
WHERE id = @id AND (vendor <> @vendor OR system_id <> @system_id);

-- name: BlockBMCLogin :execrows
UPDATE bmcs SET auth_blocked_at = now(), auth_blocked_reason = @reason, version = version + 1, updated_at = now()
WHERE id = @id AND auth_blocked_at IS NULL;

-- name: ClearBMCBlock :execrows
-- The operator has looked: the count of tries begins again with it.
UPDATE bmcs SET auth_blocked_at = NULL, auth_blocked_reason = '', wrong_logins = 0, open_logins = 0, version = version + 1, updated_at = now()
WHERE id = @id AND (auth_blocked_at IS NOT NULL OR wrong_logins > 0 OR open_logins > 0);
