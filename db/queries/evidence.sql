-- name: InsertSigningKey :one
INSERT INTO signing_keys (id, purpose, public, secret_ref) VALUES (@id, @purpose, @public, @secret_ref)
ON CONFLICT (purpose) WHERE retired_at IS NULL DO NOTHING
RETURNING *;

-- name: SigningKeyInUse :one
SELECT * FROM signing_keys WHERE purpose = @purpose AND retired_at IS NULL;

-- name: SigningKeys :many
SELECT * FROM signing_keys WHERE purpose = @purpose ORDER BY created_at, id;

-- name: RetireSigningKey :execrows
UPDATE signing_keys SET retired_at = now() WHERE id = @id AND retired_at IS NULL;

-- name: InsertCertificate :exec
INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at)
VALUES (@id, @node_id, @run_id, @sequence, @verdict, @simulated, @payload, @hash, @previous_hash, @key_id, @signature, @issued_at);

-- name: CertificatesOfNode :many
SELECT * FROM certificates WHERE node_id = @node_id ORDER BY sequence;

-- name: LastCertificate :one
SELECT * FROM certificates WHERE node_id = @node_id ORDER BY sequence DESC LIMIT 1;
