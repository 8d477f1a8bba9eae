-- name: InsertSigningKey :one
-- A key is never older than the one before it, whatever the clock says: their order is their generation.
INSERT INTO signing_keys (id, purpose, public, secret_ref, created_at)
SELECT @id::text, @purpose::text, @public::bytea, @secret_ref::text, greatest(now(), max(k.created_at) + make_interval(secs => 0.000001)) FROM signing_keys k WHERE k.purpose = @purpose
ON CONFLICT (purpose) WHERE retired_at IS NULL DO NOTHING
RETURNING *;

-- name: SigningKeyInUse :one
SELECT * FROM signing_keys WHERE purpose = @purpose AND retired_at IS NULL;

-- name: SigningKeys :many
SELECT * FROM signing_keys WHERE purpose = @purpose ORDER BY created_at, id;

-- name: RetireSigningKey :execrows
UPDATE signing_keys SET retired_at = now() WHERE id = @id AND retired_at IS NULL;

-- name: SucceedSigningKey :execrows
-- The key in use counts until the overlap is over; what would count longer does not.
UPDATE signing_keys AS old SET retired_at = now() + make_interval(secs => @overlap_seconds::float8)
WHERE old.purpose = @purpose AND (old.id = @id AND old.retired_at IS NULL OR old.retired_at > now() + make_interval(secs => @overlap_seconds::float8))
  AND EXISTS (SELECT FROM signing_keys AS k WHERE k.id = @id AND k.retired_at IS NULL);

-- name: InsertCertificate :exec
INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at,
    sanitized_since)
VALUES (@id, @node_id, @run_id, @sequence, @verdict, @simulated, @payload, @hash, @previous_hash, @key_id, @signature, @issued_at,
    sqlc.narg('sanitized_since'));

-- name: CertificatesOfNode :many
SELECT * FROM certificates WHERE node_id = @node_id ORDER BY sequence;

-- name: LastCertificate :one
SELECT * FROM certificates WHERE node_id = @node_id ORDER BY sequence DESC LIMIT 1;
