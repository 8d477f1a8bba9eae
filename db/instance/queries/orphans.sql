-- name: PutOrphan :exec
INSERT INTO instance_orphans (provider, zone, kind, resource_id, name, instance_id, hourly_micro, currency)
VALUES (@provider, @zone, @kind, @resource_id, @name, @instance_id, @hourly_micro, @currency)
ON CONFLICT (provider, zone, kind, resource_id) DO UPDATE SET seen_at = now(), name = excluded.name, hourly_micro = excluded.hourly_micro,
    currency = excluded.currency;

-- name: DropOrphans :execrows
-- Those that the last look at the zone has not found.
DELETE FROM instance_orphans WHERE provider = @provider AND zone = @zone AND NOT ((kind || ':' || resource_id) = ANY (@kept::text[]));

-- name: ListOrphans :many
SELECT * FROM instance_orphans ORDER BY provider, zone, kind, resource_id LIMIT @max_rows;

-- name: PutLook :exec
INSERT INTO instance_looks (provider, zone, problem, problem_since) VALUES (@provider, @zone, @problem::text, CASE WHEN @problem::text <> '' THEN now() END)
ON CONFLICT (provider, zone) DO UPDATE SET problem = excluded.problem, looked_at = now(),
    problem_since = CASE WHEN excluded.problem = '' THEN NULL ELSE coalesce(instance_looks.problem_since, now()) END;

-- name: DropLooks :execrows
-- Those of places that are looked at no more. kept are the others, as provider:zone.
DELETE FROM instance_looks WHERE NOT ((provider || ':' || zone) = ANY (@kept::text[]));
