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
DELETE FROM idempotency_records WHERE ctid IN (SELECT r.ctid FROM idempotency_records r WHERE r.expires_at <= now() LIMIT @max_rows FOR UPDATE SKIP LOCKED);
