-- name: OpenBatches :many
-- Batches with a start that is due and room for it, oldest start first. The room is counted again under the batch's lock.
SELECT o.batch_id::text AS batch_id, b.max_parallel
FROM outbox o JOIN batches b ON b.id = o.batch_id
WHERE o.kind = 'start_workflow' AND o.done_at IS NULL AND o.next_at <= now() AND (o.claimed_until IS NULL OR o.claimed_until < now())
GROUP BY o.batch_id, b.id
HAVING b.max_parallel > (
    SELECT count(*) FROM jobs j WHERE j.batch_id = b.id AND (j.status IN ('running', 'compensating') OR (j.status = 'pending' AND EXISTS (
        SELECT 1 FROM outbox s WHERE s.kind = 'start_workflow' AND s.job_id = j.id AND (s.done_at IS NOT NULL OR s.claimed_until >= now())))))
ORDER BY min(o.id) LIMIT @max_rows;

-- name: BatchInFlight :one
-- Jobs of a batch that count against its parallelism: at work, or pending with a start that is claimed or done.
SELECT count(*) FROM jobs j
WHERE j.batch_id = @batch_id::text AND (j.status IN ('running', 'compensating') OR (j.status = 'pending' AND EXISTS (
    SELECT 1 FROM outbox s WHERE s.kind = 'start_workflow' AND s.job_id = j.id AND (s.done_at IS NOT NULL OR s.claimed_until >= now()))));

-- name: ClaimStarts :many
-- Starts of one batch, or with '' those outside any batch.
WITH due AS (
    SELECT o.id FROM outbox o
    WHERE o.kind = 'start_workflow' AND o.done_at IS NULL AND o.next_at <= now() AND (o.claimed_until IS NULL OR o.claimed_until < now())
      AND coalesce(o.batch_id, '') = @batch_id::text
    ORDER BY o.id LIMIT @max_rows FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE outbox c SET claimed_by = @claimed_by::text, claimed_until = now() + make_interval(secs => @lease_seconds::double precision),
        attempts = c.attempts + 1
    FROM due WHERE c.id = due.id
    RETURNING c.id, c.job_id, c.attempts, c.claimed_until
)
SELECT k.id, k.attempts, k.claimed_until::timestamptz AS claimed_until, j.id AS job_id, j.kind, j.workflow_id, j.status, j.node_id, j.site_id, j.batch_id, j.resource_id,
    coalesce((SELECT n.hostname FROM nodes n WHERE n.id = j.node_id), '')::text AS hostname
FROM claimed k JOIN jobs j ON j.id = k.job_id ORDER BY k.id;

-- name: EnqueueStart :execrows
INSERT INTO outbox (kind, job_id, resource_kind, resource_id) SELECT 'start_workflow', j.id, 'job', j.id FROM jobs j WHERE j.id = @job_id
ON CONFLICT DO NOTHING;

-- name: CompleteOutbox :execrows
UPDATE outbox SET done_at = now(), claimed_until = NULL, last_error = '' WHERE id = @id AND done_at IS NULL;

-- name: FailOutbox :execrows
UPDATE outbox SET claimed_until = NULL, next_at = now() + make_interval(secs => @wait_seconds::double precision), last_error = @last_error WHERE id = @id AND done_at IS NULL;

-- name: LockEventCursor :one
-- Taken before any other row by what gives cursors and by what prunes, so that neither waits for the other in a circle.
SELECT last FROM event_cursor FOR UPDATE;

-- name: RelayEvents :one
-- Called under the relay's lock: the next cursors go to the oldest events that are committed. An event of a project gets one of the project too.
WITH due AS (
    SELECT id, event_project, row_number() OVER (ORDER BY id) AS place, row_number() OVER (PARTITION BY event_project ORDER BY id) AS project_place FROM (
        SELECT o.id, o.event_project FROM outbox o WHERE o.kind = 'event' AND o.done_at IS NULL ORDER BY o.id LIMIT @max_rows) AS oldest
), head AS (
    UPDATE event_cursor SET last = last + (SELECT count(*) FROM due) WHERE one RETURNING last - (SELECT count(*) FROM due) AS base
), counted AS (
    SELECT event_project, count(*) AS events FROM due WHERE event_project <> '' GROUP BY event_project
), project_heads AS (
    INSERT INTO project_event_cursors AS c (project_id, last) SELECT event_project, events FROM counted ORDER BY event_project
    ON CONFLICT (project_id) DO UPDATE SET last = c.last + excluded.last RETURNING c.project_id, c.last
), done AS (
    UPDATE outbox d SET done_at = now() FROM due WHERE d.id = due.id
    RETURNING due.place, due.project_place, d.event_project, d.event_id, d.resource_kind, d.resource_id, d.node_id, d.type, d.payload, d.created_at
), relayed AS (
    INSERT INTO events (cursor, resource_kind, resource_id, node_id, type, payload, at, project_id, project_cursor, event_id)
    SELECT head.base + done.place, done.resource_kind, done.resource_id, done.node_id, done.type, done.payload, done.created_at,
        h.project_id, h.last - c.events + done.project_place, CASE WHEN h.project_id IS NOT NULL THEN done.event_id END
    FROM done CROSS JOIN head LEFT JOIN project_heads h ON h.project_id = done.event_project LEFT JOIN counted c ON c.event_project = h.project_id
    RETURNING 1
)
SELECT count(*) FROM relayed;

-- name: ProjectCursorKey :one
-- The stored epoch is secret: customers see a hash of it alone.
SELECT sha256(convert_to('cursors/' || @project_id::text || '/' || epoch, 'UTF8'))::bytea AS key FROM event_cursor;

-- name: HasOpenEvents :one
SELECT EXISTS (SELECT 1 FROM outbox o WHERE o.kind = 'event' AND o.done_at IS NULL);

-- name: EventsAfter :many
-- Events of projects are their members': an operator reads them in the project, with a reason.
SELECT * FROM events
WHERE cursor > @after::bigint AND project_id IS NULL
  AND (@resource_kind::text = '' OR resource_kind = @resource_kind::text)
  AND (@resource_id::text = '' OR resource_id = @resource_id::text)
  AND (@node_id::text = '' OR node_id = @node_id::text)
ORDER BY cursor LIMIT @max_rows;

-- name: EventCursor :one
SELECT last, pruned, event_epoch() AS epoch FROM event_cursor;

-- name: OutboxBacklog :one
SELECT count(*) AS open, coalesce(extract(epoch FROM now() - min(created_at)), 0)::double precision AS oldest_seconds
FROM outbox WHERE done_at IS NULL AND kind = @kind;

-- name: PruneOutbox :execrows
DELETE FROM outbox WHERE id = ANY (ARRAY(
    SELECT o.id FROM outbox o WHERE o.done_at < @before::timestamptz
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = o.job_id AND j.status = 'pending')
    LIMIT @max_rows));

-- name: PruneEvents :one
-- Keeps the greatest cursors that were deleted, so that a reader who has not seen them is told.
WITH gone AS (
    DELETE FROM events WHERE cursor = ANY (ARRAY(SELECT e.cursor FROM events e WHERE e.at < @before::timestamptz ORDER BY e.cursor LIMIT @max_rows))
    RETURNING cursor, project_id, project_cursor
), marked AS (
    UPDATE event_cursor SET pruned = greatest(pruned, (SELECT max(g.cursor) FROM gone g)) WHERE EXISTS (SELECT FROM gone)
), projects_marked AS (
    UPDATE project_event_cursors c SET pruned = greatest(c.pruned, g.last)
    FROM (SELECT project_id, max(project_cursor) AS last FROM gone WHERE project_id IS NOT NULL GROUP BY project_id) g WHERE c.project_id = g.project_id
)
SELECT count(*) FROM gone;
