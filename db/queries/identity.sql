-- name: InsertAPIToken :one
INSERT INTO api_tokens (id, name, hash, roles, expires_at) VALUES (@id, @name, @hash, @roles, @expires_at) RETURNING *;

-- name: APITokensByHash :many
SELECT * FROM api_tokens WHERE hash = ANY (@hashes::bytea[]);

-- name: ListAPITokens :many
SELECT * FROM api_tokens WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: RevokeAPIToken :execrows
UPDATE api_tokens SET revoked_at = coalesce(revoked_at, now()) WHERE id = @id;

-- name: NoteTokenUses :exec
-- The last use of API tokens and of tokens of projects, where the one that is stored is old.
WITH api AS (
    UPDATE api_tokens a SET last_used_at = now()
    WHERE a.hash = ANY (@hashes::bytea[]) AND (a.last_used_at IS NULL OR a.last_used_at < now() - make_interval(secs => @every_seconds::float8) OR a.last_used_at > now())
)
UPDATE project_tokens p SET last_used_at = now()
WHERE p.hash = ANY (@hashes::bytea[]) AND (p.last_used_at IS NULL OR p.last_used_at < now() - make_interval(secs => @every_seconds::float8) OR p.last_used_at > now());

-- name: RevokeEnrollmentTokens :execrows
UPDATE enrollment_tokens SET revoked_at = now() WHERE node_id = @node_id AND revoked_at IS NULL AND token_hash <> @but_not::bytea;

-- name: RevokeUnusedEnrollmentTokens :exec
UPDATE enrollment_tokens SET revoked_at = now() WHERE node_id = @node_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: TrimEnrollmentTokens :exec
-- A node that asks for a token over and over does not fill the table: of those that nobody used and nobody may use, the newest stay.
DELETE FROM enrollment_tokens WHERE id IN (
    SELECT t.id FROM enrollment_tokens t WHERE t.node_id = @node_id AND t.used_at IS NULL AND t.revoked_at IS NOT NULL
    ORDER BY t.created_at DESC, t.id DESC OFFSET 15);

-- name: EnrolledSince :one
SELECT EXISTS (SELECT 1 FROM enrollment_tokens t WHERE t.node_id = @node_id AND t.used_at >= @since::timestamptz);

-- name: EnrolledGeneration :one
-- The generation that an agent has got by a token which is good; 0 for none. Issuing a token revokes those before it.
SELECT coalesce(max(t.used_generation), 0)::bigint AS generation FROM enrollment_tokens t
WHERE t.node_id = @node_id AND t.used_at IS NOT NULL AND t.revoked_at IS NULL;

-- name: OpenEnrollmentTokens :one
SELECT count(*) FROM enrollment_tokens WHERE node_id = @node_id AND revoked_at IS NULL;

-- name: InsertEnrollmentToken :execrows
INSERT INTO enrollment_tokens (id, node_id, job_id, token_hash, expires_at)
VALUES (@id, @node_id, @job_id, @token_hash, @expires_at) ON CONFLICT (token_hash) DO NOTHING;

-- name: ExtendEnrollmentToken :execrows
UPDATE enrollment_tokens SET expires_at = greatest(expires_at, @expires_at)
WHERE token_hash = @token_hash AND node_id = @node_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: EnrollmentToken :one
SELECT * FROM enrollment_tokens WHERE token_hash = @token_hash;

-- name: LockEnrollmentToken :one
SELECT sqlc.embed(t), (t.expires_at <= now())::boolean AS expired FROM enrollment_tokens t WHERE t.token_hash = @token_hash FOR NO KEY UPDATE OF t;

-- name: UseEnrollmentToken :exec
UPDATE enrollment_tokens SET used_at = now(), used_key_hash = @used_key_hash, used_generation = @used_generation WHERE id = @id;

-- name: InsertAgentCertificate :execrows
INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after, enrolment)
VALUES (@node_id, @generation, @serial, @key_hash, @cert_pem, @not_before, @not_after, @enrolment) ON CONFLICT (node_id, generation) DO NOTHING;

-- name: AgentCertificate :one
SELECT * FROM agent_certificates WHERE node_id = @node_id AND generation = @generation;

-- name: EnrolIdentity :execrows
-- The first generation, or the next one after a new token; unlocks.
INSERT INTO agent_identities (node_id, generation, enrolled_from) VALUES (@node_id, @generation, @enrolled_from)
ON CONFLICT (node_id) DO UPDATE SET generation = excluded.generation, enrolled_from = excluded.enrolled_from, locked_at = NULL, locked_reason = '',
    replaced = false, adopted_at = NULL, updated_at = now()
WHERE agent_identities.generation = @from_generation;

-- name: AdvanceGeneration :execrows
UPDATE agent_identities SET generation = @to_generation, adopted_at = NULL, updated_at = now()
WHERE node_id = @node_id AND generation = @from_generation AND locked_at IS NULL;

-- name: AgentIdentity :one
SELECT sqlc.embed(c), i.locked_at, i.locked_reason, i.enrolled_from FROM agent_identities i
JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation WHERE i.node_id = @node_id;

-- name: AgentStandings :many
-- What each request of an agent is checked by, for many nodes at once.
SELECT n.id AS node_id, n.lifecycle, n.status, coalesce(n.sku_id, '')::text AS sku_id, coalesce(i.generation, 0)::bigint AS generation,
    i.locked_at, coalesce(h.report_boot_id, '')::text AS reported_boot, coalesce(c.enrolment, 0)::bigint AS enrolment,
    coalesce(i.enrolled_from, 'epoch')::timestamptz AS enrolled_from, coalesce(c.key_hash, '')::bytea AS key_hash,
    coalesce(i.ended_enrolment, 0)::bigint AS ended_enrolment, coalesce(i.ended_generation, 0)::bigint AS ended_generation
FROM nodes n LEFT JOIN agent_identities i ON i.node_id = n.id LEFT JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation
LEFT JOIN heartbeats h ON h.node_id = n.id
WHERE n.id = ANY (@node_ids::text[]);

-- name: LockAgentIdentity :execrows
UPDATE agent_identities SET locked_at = coalesce(locked_at, now()), locked_reason = CASE WHEN locked_at IS NULL THEN @reason ELSE locked_reason END,
    updated_at = now()
WHERE node_id = @node_id;

-- name: RecordHeartbeats :execrows
-- One statement for a whole batch; a node stands in it once. Of two heartbeats of one node the newer wins; a heartbeat without a report ('') keeps the last one.
-- The allocation of an agent that does not say one is '?'. Rows are taken in the order of their ids, so that two batches never wait on each other in a circle.
INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, address, clock_skew_ms, uptime_s, received_at, report, report_boot_id,
    reported_at, unhealthy, allocation)
SELECT b.node_id, b.boot_id, b.agent_version, b.generation, b.address, b.clock_skew_ms, b.uptime_s, b.received_at, nullif(b.report, '')::jsonb,
    CASE WHEN b.report = '' THEN '' ELSE b.boot_id END, CASE WHEN b.report <> '' THEN b.received_at END,
    CASE WHEN b.unhealthy = '' THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(b.unhealthy::jsonb)) END,
    nullif(b.allocation, '?')
FROM (SELECT unnest(@node_ids::text[]) AS node_id, unnest(@boot_ids::text[]) AS boot_id, unnest(@agent_versions::text[]) AS agent_version,
    unnest(@generations::bigint[]) AS generation, unnest(@addresses::text[]) AS address, unnest(@clock_skews_ms::bigint[]) AS clock_skew_ms,
    unnest(@uptimes::double precision[]) AS uptime_s, unnest(@received_at::timestamptz[]) AS received_at, unnest(@reports::text[]) AS report,
    unnest(@unhealthy::text[]) AS unhealthy, unnest(@allocations::text[]) AS allocation) AS b
JOIN nodes n ON n.id = b.node_id AND n.status <> 'deleted'
ORDER BY b.node_id
ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, agent_version = excluded.agent_version, generation = excluded.generation,
    address = excluded.address, clock_skew_ms = excluded.clock_skew_ms, uptime_s = excluded.uptime_s, received_at = excluded.received_at,
    allocation = excluded.allocation, report = coalesce(excluded.report, heartbeats.report),
    report_boot_id = CASE WHEN excluded.report IS NULL THEN heartbeats.report_boot_id ELSE excluded.report_boot_id END,
    reported_at = CASE WHEN excluded.report IS NULL THEN heartbeats.reported_at ELSE excluded.reported_at END,
    unhealthy = CASE WHEN excluded.report IS NULL THEN heartbeats.unhealthy ELSE excluded.unhealthy END
WHERE excluded.received_at >= heartbeats.received_at;

-- name: LatestHeartbeat :one
SELECT * FROM heartbeats WHERE node_id = @node_id;

-- name: NewestSecret :one
SELECT * FROM secret_versions WHERE name = @name ORDER BY version DESC LIMIT 1;

-- name: ListSecrets :many
-- What may be known of secrets. Names that begin with _ are the store's own.
SELECT v.name, max(v.version)::integer AS version, count(*)::integer AS versions, min(v.created_at)::timestamptz AS first_stored_at,
    max(v.created_at)::timestamptz AS stored_at, coalesce((SELECT u.use FROM secret_uses u WHERE u.name = v.name), '{}')::jsonb AS use
FROM secret_versions v WHERE v.name > @after::text AND starts_with(v.name, @prefix::text) AND NOT starts_with(v.name, '_')
GROUP BY v.name ORDER BY v.name LIMIT @max_rows;

-- name: SecretVersion :one
SELECT * FROM secret_versions WHERE name = @name AND version = @version;

-- name: InsertSecretVersion :exec
INSERT INTO secret_versions (name, version, keeper_url, ciphertext, fingerprint) VALUES (@name, @version, @keeper_url, @ciphertext, @fingerprint);

-- name: DeleteSecret :execrows
DELETE FROM secret_versions WHERE name = @name;

-- name: SecretUse :one
SELECT use FROM secret_uses WHERE name = @name;

-- name: SetSecretUse :execrows
-- Reports 0 rows when the use is the stored one already.
INSERT INTO secret_uses (name, use) VALUES (@name, @use)
ON CONFLICT (name) DO UPDATE SET use = excluded.use, updated_at = now() WHERE secret_uses.use <> excluded.use;

-- name: DeleteSecretUse :exec
DELETE FROM secret_uses WHERE name = @name;
