-- name: RevokeTokensOfJob :execrows
-- A used token has done its work: the identity that it gave stays.
UPDATE enrollment_tokens SET revoked_at = now() WHERE job_id = @job_id::text AND used_at IS NULL AND revoked_at IS NULL;

-- name: OpenTokensOfJob :one
SELECT count(*) FROM enrollment_tokens WHERE job_id = @job_id::text AND used_at IS NULL AND revoked_at IS NULL;

-- name: AgentsOfSite :many
-- The nodes of a site whose agent enrolled once, those that no job holds first, the oldest certificate
-- before newer ones: when a request was cut by its limit, the next one goes on with the others.
SELECT n.id, n.hostname, (i.locked_at IS NOT NULL)::boolean AS locked, c.not_after,
    coalesce(h.received_at < now() - make_interval(secs => @silent_seconds::float8), true)::boolean AS silent
FROM nodes n JOIN agent_identities i ON i.node_id = n.id
JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation
LEFT JOIN heartbeats h ON h.node_id = n.id
WHERE n.site_id = @site_id AND n.lifecycle = 'maas' AND n.status = ANY (@statuses::text[])
  AND (@everyone::boolean OR i.locked_at IS NOT NULL OR c.not_after < now() OR coalesce(h.received_at < now() - make_interval(secs => @silent_seconds::float8), true))
ORDER BY EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
    AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating')), c.issued_at, n.id
LIMIT @max_rows;

-- name: InsertAgentRelease :execrows
INSERT INTO agent_releases (version, manifest, signature, binary_url, created_by)
VALUES (@version, @manifest, @signature, @binary_url, @created_by) ON CONFLICT (version) DO NOTHING;

-- name: AgentRelease :one
SELECT * FROM agent_releases WHERE version = @version;

-- name: ListAgentReleases :many
SELECT * FROM agent_releases WHERE version > @after::text ORDER BY version LIMIT @max_rows;
