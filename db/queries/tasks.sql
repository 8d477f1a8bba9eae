-- name: UndeliveredTasks :many
-- Tasks that a job at work waits for and that lie with an agent that was not heard since; of one job, or of all ('').
SELECT t.id, t.job_id::text AS job_id, t.kind, t.deadline_at, coalesce(h.received_at, t.created_at)::timestamptz AS heard_at,
    (h.received_at IS NOT NULL)::boolean AS heard
FROM node_tasks t JOIN jobs j ON j.id = t.job_id LEFT JOIN heartbeats h ON h.node_id = t.node_id
WHERE t.status IN ('queued', 'dispatched') AND (t.lease_until IS NULL OR t.lease_until < @since::timestamptz) AND j.status IN ('running', 'compensating')
    AND (@of_job::text = '' OR t.job_id = @of_job::text) AND (h.received_at IS NULL OR h.received_at < @since::timestamptz)
ORDER BY t.job_id, t.id LIMIT @max_rows;

-- name: InsertTask :one
-- The task, its creation audit row and its event in one statement; no row when the node has a task of that key.
WITH made AS (
    INSERT INTO node_tasks (id, node_id, job_id, kind, schema_version, args, idempotency_key, status, deadline_at, waiter_workflow_id, waiter_run_id,
        waiter_activity_id, doubts, created_by)
    VALUES (@id, @node_id, @job_id, @kind, @schema_version, @args, @idempotency_key, @status,
        coalesce(sqlc.narg('deadline_at')::timestamptz, now() + make_interval(secs => @deadline_seconds::double precision)),
        @waiter_workflow_id, @waiter_run_id, @waiter_activity_id, @uncertain_count, @created_by)
    ON CONFLICT (node_id, idempotency_key) DO NOTHING RETURNING id, node_id, status, version
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'node_task', id, node_id, 'transition', 'create', '', status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, version
    FROM made
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'node_task', id, node_id, 'node_task.' || status, @payload FROM made
)
SELECT version FROM made;

-- name: Task :one
SELECT * FROM node_tasks WHERE id = @id;

-- name: TaskByKey :one
SELECT * FROM node_tasks WHERE node_id = @node_id AND idempotency_key = @idempotency_key;

-- name: LockTask :one
-- With what the database's clock says of it.
SELECT sqlc.embed(t), coalesce(t.lease_until <= now(), false)::boolean AS lease_over, (t.deadline_at <= now())::boolean AS overdue,
    coalesce((SELECT h.boot_id FROM heartbeats h WHERE h.node_id = t.node_id AND h.boot_id <> t.boot_id AND h.generation = t.generation
        AND h.received_at > t.dispatched_at + interval '5 seconds'), '')::text AS other_boot
FROM node_tasks t WHERE t.id = @id FOR NO KEY UPDATE OF t;

-- name: LockTaskByKey :one
SELECT sqlc.embed(t), (t.args = @args::jsonb)::boolean AS same_args FROM node_tasks t
WHERE t.node_id = @node_id AND t.idempotency_key = @idempotency_key FOR NO KEY UPDATE OF t;

-- name: LockOpenTasks :many
-- The tasks that a node may take or works on, oldest first, and no other claim of the node beside this one.
SELECT sqlc.embed(t), coalesce(t.lease_until <= now(), false)::boolean AS lease_over, (t.deadline_at <= now())::boolean AS overdue
FROM node_tasks t WHERE t.node_id = @node_id AND t.status IN ('queued', 'dispatched') ORDER BY t.id FOR NO KEY UPDATE OF t;

-- name: LastTaskOfKind :one
SELECT * FROM node_tasks WHERE node_id = @node_id AND kind = @kind ORDER BY id DESC LIMIT 1;

-- name: HasOpenTasks :one
SELECT EXISTS (SELECT 1 FROM node_tasks WHERE node_id = @node_id AND status IN ('queued', 'dispatched'));

-- name: NodesWithQueuedTasks :many
SELECT DISTINCT node_id FROM node_tasks WHERE status = 'queued' AND node_id = ANY (@node_ids::text[]);

-- name: HoldIdentity :one
-- The identity that a claim is made with, kept from being locked or renewed until the claim is written.
SELECT generation FROM agent_identities WHERE node_id = @node_id AND generation = @generation AND locked_at IS NULL FOR SHARE;

-- name: MoveTask :one
-- The commit point of a task, as MoveNode is of a node. A lease is counted by the database's clock.
WITH moved AS (
    UPDATE node_tasks SET status = @to_state, status_at = now(), updated_at = now(), version = version + 1,
        attempt = @attempt, lease_id = @lease_id, claim_id = @claim_id, boot_id = @boot_id, generation = @generation, progress = @progress,
        lease_until = CASE WHEN @to_state::text = 'dispatched' THEN now() + make_interval(secs => @lease_seconds::double precision) END,
        dispatched_at = CASE WHEN @to_state::text = 'dispatched' THEN now() ELSE dispatched_at END,
        finished_at = CASE WHEN @terminal::boolean THEN now() END,
        result = coalesce(sqlc.narg('result')::jsonb, result), message = @message,
        deadline_at = CASE WHEN @deadline_seconds::double precision > 0
            THEN greatest(deadline_at, now() + make_interval(secs => @deadline_seconds::double precision)) ELSE deadline_at END,
        tell_at = now()
    WHERE node_tasks.id = @id AND node_tasks.status = @from_state::text AND node_tasks.version = @version
    RETURNING node_tasks.*
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'node_task', id, node_id, 'transition', @name, @from_state::text, status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, version
    FROM moved
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'node_task', id, node_id, 'node_task.' || status, @payload FROM moved
)
SELECT version, status_at, updated_at, lease_until, dispatched_at, finished_at, deadline_at FROM moved;

-- name: RenewTask :execrows
UPDATE node_tasks SET lease_until = now() + make_interval(secs => @lease_seconds::double precision),
    progress = CASE WHEN @progress::text = '' THEN progress ELSE @progress::text END, updated_at = now()
WHERE id = @id AND node_id = @node_id AND status = 'dispatched' AND lease_id = @lease_id AND attempt = @attempt AND deadline_at > now();

-- name: SetTaskWaiter :exec
UPDATE node_tasks SET waiter_workflow_id = @waiter_workflow_id, waiter_run_id = @waiter_run_id, waiter_activity_id = @waiter_activity_id,
    told_at = CASE WHEN @told::boolean THEN now() END, tell_at = now()
WHERE id = @id;

-- name: SetTaskUncertainCount :exec
UPDATE node_tasks SET doubts = @uncertain_count WHERE id = @id;

-- name: TasksToSettle :many
-- Tasks whose lease, boot or deadline is over.
SELECT t.id FROM node_tasks t
WHERE t.status IN ('queued', 'dispatched') AND (t.lease_until <= now() OR t.deadline_at <= now() OR (t.status = 'dispatched' AND EXISTS (
    SELECT 1 FROM heartbeats h WHERE h.node_id = t.node_id AND h.boot_id <> t.boot_id AND h.generation = t.generation AND h.received_at > t.dispatched_at + interval '5 seconds')))
ORDER BY t.id LIMIT @max_rows;

-- name: ClaimTaskEnds :many
-- Ends that a waiter is still to be told of; another relay leaves them alone for a while.
UPDATE node_tasks SET tell_at = now() + make_interval(secs => @lease_seconds::double precision)
WHERE id = ANY (ARRAY(
    SELECT t.id FROM node_tasks t
    WHERE t.told_at IS NULL AND t.waiter_activity_id <> '' AND t.status NOT IN ('queued', 'dispatched') AND t.tell_at <= now()
    ORDER BY t.tell_at LIMIT @max_rows FOR UPDATE SKIP LOCKED))
RETURNING *;

-- name: MarkTaskTold :execrows
UPDATE node_tasks SET told_at = now() WHERE id = @id AND version = @version AND waiter_workflow_id = @waiter_workflow_id
    AND waiter_run_id = @waiter_run_id AND waiter_activity_id = @waiter_activity_id;

-- name: DeleteTaskWaiter :execrows
UPDATE node_tasks SET waiter_workflow_id = '', waiter_run_id = '', waiter_activity_id = '' WHERE id = @id AND version = @version
    AND waiter_workflow_id = @waiter_workflow_id AND waiter_run_id = @waiter_run_id AND waiter_activity_id = @waiter_activity_id;

-- name: ListTasks :many
SELECT * FROM node_tasks
WHERE (@after::text = '' OR id < @after::text)
  AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (@job_id::text = '' OR job_id = @job_id::text)
  AND (@kind::text = '' OR kind = @kind::text)
  AND (@status::text = '' OR status = @status::text)
ORDER BY id DESC LIMIT @max_rows;

-- name: ListTaskLines :many
-- As ListTasks, without what a list does not show: the arguments, and of a result all but its code and whether it is a simulation's.
SELECT id, node_id, job_id, kind, schema_version, idempotency_key, status, attempt, lease_id, lease_until, claim_id, boot_id, generation, dispatched_at,
    progress, message, deadline_at, waiter_workflow_id, waiter_run_id, waiter_activity_id, tell_at, told_at, doubts, created_by, created_at, status_at,
    finished_at, updated_at, version, (result IS NOT NULL)::boolean AS ended, coalesce(result ->> 'code', '')::text AS code,
    coalesce((result ->> 'simulated')::boolean, false)::boolean AS simulated
FROM node_tasks
WHERE (@after::text = '' OR id < @after::text)
  AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (@job_id::text = '' OR job_id = @job_id::text)
  AND (@kind::text = '' OR kind = @kind::text)
  AND (@status::text = '' OR status = @status::text)
ORDER BY id DESC LIMIT @max_rows;

-- name: PruneTasks :execrows
-- Tasks that ended long ago. Each node keeps the last one of each kind, which says what was done to it last.
DELETE FROM node_tasks WHERE id = ANY (ARRAY(
    SELECT t.id FROM node_tasks t
    WHERE t.status IN ('succeeded', 'failed', 'expired') AND t.finished_at < @before::timestamptz
      AND (t.waiter_activity_id = '' OR t.told_at IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.job_id
          AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
      AND EXISTS (SELECT 1 FROM node_tasks l WHERE l.node_id = t.node_id AND l.kind = t.kind AND l.id > t.id)
    ORDER BY t.finished_at LIMIT @max_rows));
