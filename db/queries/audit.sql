-- name: AppendAudit :one
INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
    workflow_id)
VALUES (@id, @resource_kind, @resource_id, @node_id, @kind, @name, @from_state, @to_state, @triggered_by, @owner, @actor_id, @comment, @metadata,
    @workflow_id)
RETURNING pos;

-- name: AuditedWithinDay :one
-- Whether the newest rows of a chain have an equal one. A chain has few rows of a day.
SELECT EXISTS (
    SELECT FROM audit_log WHERE resource_kind = @resource_kind AND resource_id = @resource_id AND kind = @kind AND name = @name AND to_state = @to_state
    AND owner = @owner AND actor_id IS NOT DISTINCT FROM @actor_id AND workflow_id IS NOT DISTINCT FROM @workflow_id
    AND metadata @> @metadata AND at > now() - interval '1 day' AND at < now() + interval '1 day'
)::boolean;

-- name: ActionOfNonce :one
SELECT coalesce(metadata ->> 'run_id', '')::text AS run_id, coalesce(metadata ->> 'effect', '')::text AS effect
FROM audit_log WHERE resource_kind = 'job' AND resource_id = @job_id AND kind = 'action' AND metadata ->> 'nonce' = @nonce::text
ORDER BY seq DESC LIMIT 1;

-- name: AppendEvent :exec
INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, node_id, type, payload)
VALUES ('event', @project_id, @event_id, @resource_kind, @resource_id, @node_id, @type, @payload);

-- name: NodeHistory :many
-- The history of a node, newest first.
SELECT id, from_state, to_state, triggered_by, owner, name, actor_id, comment, metadata, at FROM audit_log
WHERE resource_kind = 'node' AND resource_id = @node_id AND kind = 'transition'
ORDER BY seq DESC LIMIT @max_rows OFFSET @skip_rows;

-- name: CountNodeHistory :one
SELECT count(*) FROM audit_log WHERE resource_kind = 'node' AND resource_id = @node_id AND kind = 'transition';

-- name: NodeTimeline :many
SELECT * FROM audit_log WHERE node_id = @node_id::text AND (@before::bigint = 0 OR pos < @before::bigint) ORDER BY pos DESC LIMIT @max_rows;

-- name: ResourceTimeline :many
SELECT * FROM audit_log
WHERE resource_kind = @resource_kind AND resource_id = @resource_id AND (@before::bigint = 0 OR pos < @before::bigint)
ORDER BY pos DESC LIMIT @max_rows;

-- name: AuditVerify :one
-- The first broken seq of a chain; 0 when it is whole.
SELECT coalesce(chain_verify(@resource_kind::text, @resource_id::text), 0)::bigint;

-- name: AuditChains :many
SELECT resource_kind, resource_id FROM audit_chains
WHERE (resource_kind, resource_id) > (@after_kind::text, @after_id::text) ORDER BY resource_kind, resource_id LIMIT @max_rows;

-- name: EnsureAuditPartitions :one
SELECT audit_ensure_partitions(@months::integer)::integer;

-- name: LifecycleEdges :many
SELECT resource, lifecycle, name, from_state, to_state FROM lifecycle_edges ORDER BY resource, lifecycle, from_state, to_state;

-- name: VerifyAuditChains :many
-- The chains after one, each with its first broken seq; 0 when it is whole.
SELECT c.resource_kind, c.resource_id, coalesce(chain_verify(c.resource_kind, c.resource_id), 0)::bigint AS broken_seq
FROM (SELECT a.resource_kind, a.resource_id FROM audit_chains a WHERE (a.resource_kind, a.resource_id) > (@after_kind::text, @after_id::text)
    ORDER BY a.resource_kind, a.resource_id LIMIT @max_rows) c
ORDER BY c.resource_kind, c.resource_id;

-- name: HasAuditChain :one
SELECT EXISTS (SELECT FROM audit_chains WHERE resource_kind = @resource_kind AND resource_id = @resource_id);

-- name: LockAuditCheck :one
-- No row: another process verifies now, or the last round ended not long ago.
SELECT after_kind, after_id, part_kind, part_id, part_seq, part_hash FROM audit_checks
WHERE after_kind <> '' OR part_kind <> '' OR finished_at IS NULL OR finished_at < now() - make_interval(secs => @every_seconds::double precision)
FOR UPDATE SKIP LOCKED;

-- name: MoveAuditCheck :exec
UPDATE audit_checks SET after_kind = @after_kind, after_id = @after_id, part_kind = @part_kind, part_id = @part_id, part_seq = @part_seq, part_hash = @part_hash, checked = CASE WHEN @begun::boolean THEN 0 ELSE checked END + @checked::bigint,
    finished_at = CASE WHEN @finished::boolean THEN now() ELSE finished_at END;

-- name: NextAuditChains :many
SELECT a.resource_kind, a.resource_id FROM audit_chains a WHERE (a.resource_kind, a.resource_id) > (@after_kind::text, @after_id::text)
ORDER BY a.resource_kind, a.resource_id LIMIT @max_rows;

-- name: VerifyChain :one
-- A part of the ledger.
SELECT coalesce(chain_verify(@resource_kind, @resource_id), 0)::bigint AS broken_seq;

-- name: VerifyAuditPart :one
-- A part of a chain of the audit log, after one of its rows.
SELECT coalesce(p.broken, 0)::bigint AS broken_seq, p.seq::bigint AS seq, p.hash::bytea AS hash, p.ended::boolean AS ended
FROM audit_verify_part(@resource_kind, @resource_id, @after_seq, @previous, @max_rows) p;

-- name: PutAuditBreak :exec
INSERT INTO audit_breaks (resource_kind, resource_id, broken_seq) VALUES (@resource_kind, @resource_id, @broken_seq)
ON CONFLICT (resource_kind, resource_id) DO UPDATE SET broken_seq = excluded.broken_seq, checked_at = now();

-- name: DeleteAuditBreaks :exec
-- Chains that are whole again, after a restore.
DELETE FROM audit_breaks b
WHERE (b.resource_kind, b.resource_id) IN (SELECT unnest(@resource_kinds::text[]), unnest(@resource_ids::text[]));

-- name: AuditCheck :one
SELECT checked, finished_at FROM audit_checks;
