-- name: IdempotencyRecord :one
SELECT * FROM idempotency_records WHERE principal = @principal AND route = @route AND key = @key AND expires_at > now();

-- name: InsertIdempotencyRecord :one
-- Takes the key, also over an expired record; no row when a live one is there.
INSERT INTO idempotency_records (principal, route, key, request_hash, state, expires_at)
VALUES (@principal, @route, @key, @request_hash, 'in_flight', now() + make_interval(secs => @ttl_seconds::double precision))
ON CONFLICT (principal, route, key) DO UPDATE SET request_hash = excluded.request_hash, state = 'in_flight', status = 0, headers = '{}', body = NULL,
    created_at = now(), expires_at = excluded.expires_at
WHERE idempotency_records.expires_at <= now()
RETURNING *;

-- name: FinishIdempotencyRecord :execrows
UPDATE idempotency_records SET state = 'done', status = @status, headers = @headers, body = @body
WHERE principal = @principal AND route = @route AND key = @key AND state = 'in_flight';

-- name: AbandonIdempotencyRecord :execrows
DELETE FROM idempotency_records WHERE principal = @principal AND route = @route AND key = @key AND state = 'in_flight';

-- name: PruneIdempotencyRecords :execrows
DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM idempotency_records r WHERE r.expires_at <= now() LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: ProjectIdempotency :one
SELECT principal, route, key, request_hash, state, status, headers, body, created_at, expires_at FROM project_idempotency_records
WHERE project_id = @project_id AND principal = @principal AND route = @route AND key = @key AND expires_at > now();

-- name: InsertProjectIdempotency :one
INSERT INTO project_idempotency_records (project_id, principal, route, key, request_hash, state, expires_at)
VALUES (@project_id, @principal, @route, @key, @request_hash, 'in_flight', now() + make_interval(secs => @ttl_seconds::double precision))
ON CONFLICT (project_id, principal, route, key) DO UPDATE SET request_hash = excluded.request_hash, state = 'in_flight', status = 0, headers = '{}',
    body = NULL, created_at = now(), expires_at = excluded.expires_at
WHERE project_idempotency_records.expires_at <= now()
RETURNING principal, route, key, request_hash, state, status, headers, body, created_at, expires_at;

-- name: FinishProjectIdempotency :execrows
UPDATE project_idempotency_records SET state = 'done', status = @status, headers = @headers, body = @body
WHERE project_id = @project_id AND principal = @principal AND route = @route AND key = @key AND state = 'in_flight';

-- name: PruneProjectIdempotency :execrows
DELETE FROM project_idempotency_records
WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM project_idempotency_records r WHERE r.expires_at <= now() LIMIT @max_rows FOR UPDATE SKIP LOCKED));
