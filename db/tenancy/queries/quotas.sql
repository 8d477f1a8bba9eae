-- name: ListQuotas :many
SELECT q.sku_id, coalesce(s.name, '')::text AS sku_name, q.max_nodes, q.updated_at FROM project_quotas q LEFT JOIN skus s ON s.id = q.sku_id
WHERE q.project_id = @project_id ORDER BY q.sku_id NULLS FIRST;

-- name: ListLimits :many
SELECT sku_id, max_nodes FROM project_quotas WHERE project_id = @project_id;

-- name: PutQuota :exec
INSERT INTO project_quotas (project_id, sku_id, max_nodes) VALUES (@project_id, @sku_id, @max_nodes)
ON CONFLICT (project_id, sku_id) DO UPDATE SET max_nodes = excluded.max_nodes, updated_at = now();

-- name: DeleteQuota :execrows
DELETE FROM project_quotas WHERE project_id = @project_id AND sku_id IS NOT DISTINCT FROM @sku_id;

-- name: PutCatalogueItem :one
INSERT INTO catalogue_items (sku_id, profile_id, title, description, isolation) VALUES (@sku_id, @profile_id, @title, @description, @isolation)
ON CONFLICT (sku_id) DO UPDATE SET profile_id = excluded.profile_id, title = excluded.title, description = excluded.description,
    isolation = excluded.isolation, version = catalogue_items.version + 1, updated_at = now()
RETURNING *;

-- name: DeleteCatalogueItem :execrows
DELETE FROM catalogue_items WHERE sku_id = @sku_id;

-- name: CatalogueItem :one
SELECT * FROM catalogue_items WHERE sku_id = @sku_id;

-- name: ListCatalogue :many
-- Availability counts nodes that a claim could take, those that are kept back too.
SELECT sqlc.embed(c), s.name AS sku_name, s.spec AS sku_spec, p.spec AS profile_spec,
    (SELECT count(*) FROM claimable_nodes n WHERE n.sku_id = c.sku_id) AS free_nodes
FROM catalogue_items c JOIN skus s ON s.id = c.sku_id JOIN profiles p ON p.id = c.profile_id
WHERE c.sku_id > @after::text ORDER BY c.sku_id LIMIT @max_rows;
