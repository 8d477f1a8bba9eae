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
    AND metadata @> @metadata AND at > now() - interval '1 day'
)::boolean;

-- name: ActionNonceUsed :one
SELECT EXISTS (
    SELECT FROM audit_log WHERE resource_kind = 'job' AND resource_id = @job_id AND kind = 'action' AND metadata ->> 'nonce' = @nonce::text
)::boolean;

-- name: AppendEvent :exec
INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, node_id, type, payload)
VALUES ('event', @project_id, @event_id, @resource_kind, @resource_id, @node_id, @type, @payload);

-- name: NodeHistory :many
-- Seed 000's node history, newest first.
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
SELECT coalesce(audit_verify(@resource_kind::text, @resource_id::text), 0)::bigint;

-- name: AuditChains :many
SELECT resource_kind, resource_id FROM audit_chains
WHERE (resource_kind, resource_id) > (@after_kind::text, @after_id::text) ORDER BY resource_kind, resource_id LIMIT @max_rows;

-- name: EnsureAuditPartitions :one
SELECT audit_ensure_partitions(@months::integer)::integer;

-- name: LifecycleEdges :many
SELECT resource, lifecycle, name, from_state, to_state FROM lifecycle_edges ORDER BY resource, lifecycle, from_state, to_state;
