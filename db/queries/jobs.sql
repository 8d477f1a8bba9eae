-- name: InsertJob :one
-- The job, its creation audit row, its event and the start of its workflow in one statement; no row when the node, the BMC or the resource has a live job.
WITH made AS (
    INSERT INTO jobs (id, kind, node_id, site_id, profile_id, batch_id, bmc_id, resource_kind, resource_id, status, input, workflow_id, created_by)
    VALUES (@id, @kind, @node_id, @site_id, @profile_id, @batch_id, @bmc_id, @resource_kind, @resource_id, @status, @input, @workflow_id, @created_by)
    ON CONFLICT DO NOTHING RETURNING id, node_id, batch_id, status, version
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'job', id, node_id, 'transition', 'create', '', status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, version
    FROM made
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'job', id, node_id, 'job.' || status, @payload FROM made
), started AS (
    INSERT INTO outbox (kind, job_id, batch_id, resource_kind, resource_id)
    SELECT 'start_workflow', id, batch_id, 'job', id FROM made
)
SELECT version FROM made;

-- name: Job :one
SELECT * FROM jobs WHERE id = @id;

-- name: LockJob :one
SELECT * FROM jobs WHERE id = @id FOR NO KEY UPDATE;

-- name: HoldJobStatus :one
-- Nobody changes the status until the transaction ends.
SELECT status, compensations FROM jobs WHERE id = @id FOR SHARE;

-- name: TakeJob :one
UPDATE jobs SET seq = seq + 1 WHERE id = @id AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating')
RETURNING *;

-- name: LiveJobOfNode :one
SELECT * FROM jobs
WHERE node_id = @node_id::text AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');

-- name: LiveJobOfBMC :one
SELECT * FROM jobs
WHERE bmc_id = @bmc_id::text AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');

-- name: LiveJobOfResource :one
SELECT * FROM jobs WHERE resource_kind = @resource_kind AND resource_id = @resource_id
    AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');

-- name: LiveJobsOfResources :many
SELECT * FROM jobs WHERE resource_kind = @resource_kind AND resource_id = ANY (@resource_ids::text[])
    AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');

-- name: CountStagesDone :many
-- How many stages each of the jobs has behind it; no row for a job that has none.
SELECT job_id, count(*) AS done FROM job_stages
WHERE job_id = ANY (@job_ids::text[]) AND state IN ('succeeded', 'skipped', 'adopted') GROUP BY job_id;

-- name: ListJobs :many
-- Routine jobs would hide all others: they are in the list while they wait for an operator.
SELECT * FROM jobs
WHERE (@after::text = '' OR id < @after::text)
  AND (cardinality(@ids::text[]) = 0 OR id = ANY (@ids::text[]))
  AND (@kind::text = '' OR kind = @kind::text)
  AND (cardinality(@routine_kinds::text[]) = 0 OR kind <> ALL (@routine_kinds::text[]) OR status IN ('failed_retryable', 'failed_manual_intervention'))
  AND (@status::text = '' OR status = @status::text)
  AND (sqlc.narg('gave_up')::boolean IS NULL OR (failure_class <> '') = sqlc.narg('gave_up')::boolean)
  AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (@site_id::text = '' OR site_id = @site_id::text)
  AND (@batch_id::text = '' OR batch_id = @batch_id::text)
  AND (@bmc_id::text = '' OR bmc_id = @bmc_id::text)
  AND (@resource_kind::text = '' OR resource_kind = @resource_kind::text AND resource_id = @resource_id::text)
  AND (sqlc.narg('needs_human')::boolean IS NULL
       OR (status IN ('failed_retryable', 'failed_manual_intervention')) = sqlc.narg('needs_human')::boolean)
ORDER BY id DESC LIMIT @max_rows;

-- name: JobSubjects :many
-- The allocation or instance of jobs, with what decides which actions their kinds refuse.
SELECT j.id, coalesce(a.status = ANY (@allocation_ends::text[]), i.status = ANY (@instance_ends::text[]), false)::boolean AS ended,
    coalesce(i.server_id <> '', false)::boolean AS has_server
FROM jobs j
LEFT JOIN allocations a ON j.resource_kind = 'allocation' AND a.id = j.resource_id
LEFT JOIN instances i ON j.resource_kind = 'instance' AND i.id = j.resource_id
WHERE j.id = ANY (@ids::text[]) AND j.resource_kind IN ('allocation', 'instance');

-- name: MoveJob :one
-- The commit point of a job, as MoveNode is of a node.
WITH moved AS (
    UPDATE jobs SET status = @to_state, updated_at = now(), version = version + 1,
        started_at = CASE WHEN @to_state::text = 'running' THEN coalesce(started_at, now()) ELSE started_at END,
        finished_at = CASE WHEN @terminal::boolean THEN now() ELSE finished_at END
    WHERE jobs.id = @id AND jobs.status = @from_state::text AND jobs.version = @version
    RETURNING jobs.id, jobs.node_id, jobs.status, jobs.version, jobs.updated_at, jobs.started_at, jobs.finished_at
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'job', id, node_id, 'transition', @name, @from_state::text, status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, version
    FROM moved
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', 'job', id, node_id, 'job.' || status, @payload FROM moved
), never_started AS (
    UPDATE outbox SET done_at = now(), last_error = 'the job ended before its workflow was started'
    WHERE @terminal::boolean AND outbox.kind = 'start_workflow' AND outbox.done_at IS NULL AND outbox.job_id IN (SELECT moved.id FROM moved)
)
SELECT version, updated_at, started_at, finished_at FROM moved;

-- name: ProjectJob :exec
-- A job that is cancelled keeps the stage that failed before.
UPDATE jobs SET seq = @seq, run_id = @run_id, stage = @stage, stage_ordinal = @stage_ordinal, attempt = @attempt, failure_class = @failure_class,
    failed_stage = CASE WHEN @failed_stage::text = '' AND status IN ('compensating', 'cancelled') THEN failed_stage ELSE @failed_stage END,
    message = @message, recommended_action = @recommended_action, next_step = @next_step,
    waiting_outside = @waiting_outside, frozen = @frozen, adopted = @adopted, observed = @observed, progress_percent = @progress_percent,
    reached_percent = @reached_percent, stage_deadline_at = @stage_deadline_at,
    checkpoint = coalesce(sqlc.narg('checkpoint')::jsonb, checkpoint), recent_steps = @recent_steps, version = version + 1, updated_at = now()
WHERE id = @id;

-- name: ProjectStages :exec
-- The stages, and the action log of their tries. A try goes on while its stage runs with the same number, or was interrupted in vain: then it
-- has the same start and no failure. Any other open row ends. Only the stages that differ are written: a conflict that changes nothing would
-- still lock every row each time.
WITH given AS MATERIALIZED (
    SELECT s.*, o.started_at IS NOT DISTINCT FROM s.started_at AS same_start,
        o.job_id IS NULL OR (o.name, o.state, o.attempts, o.started_at, o.finished_at, o.message, o.failure_class)
            IS DISTINCT FROM (s.name, s.state, s.attempts, s.started_at, s.finished_at, s.message, s.failure_class) AS differs
    FROM (SELECT (r ->> 'ordinal')::integer AS ordinal, r ->> 'name' AS name, r ->> 'state' AS state, (r ->> 'attempts')::integer AS attempts,
            (r ->> 'started_at')::timestamptz AS started_at, (r ->> 'finished_at')::timestamptz AS finished_at, r ->> 'message' AS message,
            coalesce(r ->> 'failure_class', '') AS failure_class
        FROM jsonb_array_elements(@stages::jsonb) AS r) s
    LEFT JOIN job_stages o ON o.job_id = @job_id::text AND o.ordinal = s.ordinal
), open AS (
    SELECT a.id, a.attempt, g.*, greatest(a.started_at, coalesce(g.finished_at, @at::timestamptz)) AS ended_at,
        (@running::boolean AND g.same_start AND (g.state = 'running' AND g.attempts = a.attempt
            OR g.state IN ('running', 'pending') AND g.started_at IS NOT NULL AND g.failure_class = '')) IS TRUE AS goes_on
    FROM action_logs a LEFT JOIN given g ON g.name = a.stage
    WHERE a.job_id = @job_id::text AND a.status = 'in_progress'
), ended AS (
    UPDATE action_logs a SET
        attempt = CASE WHEN o.goes_on THEN o.attempts ELSE a.attempt END,
        status = CASE WHEN o.goes_on THEN 'in_progress'
            WHEN o.state IN ('succeeded', 'adopted') OR o.state = 'pending' AND o.started_at IS NULL THEN 'success' ELSE 'failed' END,
        finished_at = CASE WHEN NOT o.goes_on THEN o.ended_at END,
        duration_ms = CASE WHEN NOT o.goes_on THEN extract(epoch FROM o.ended_at - a.started_at)::numeric * 1000 END,
        failure_class = CASE WHEN NOT o.goes_on AND o.state IN ('failed', 'running') THEN o.failure_class ELSE '' END,
        error_message = CASE WHEN o.goes_on OR o.state IN ('succeeded', 'adopted') OR o.state = 'pending' AND o.started_at IS NULL THEN ''
            WHEN o.state = 'pending' THEN 'an operator action interrupted it' ELSE coalesce(nullif(o.message, ''), 'it ended without a result') END,
        metadata = CASE WHEN octet_length((a.metadata || @did::jsonb)::text) <= 16384 THEN a.metadata || @did::jsonb ELSE a.metadata END
    FROM open o
    WHERE a.id = o.id AND (NOT o.goes_on OR o.attempts > o.attempt)
    RETURNING a.stage, a.duration_ms
), begun AS (
    INSERT INTO action_logs (id, job_id, node_id, seq, stage, attempt, action_type, component, started_at, metadata)
    SELECT @action_id, j.id, j.node_id, @seq, g.name, g.attempts, @action_type, @component, @at::timestamptz,
        CASE WHEN octet_length((@metadata::jsonb)::text) <= 16384 THEN @metadata::jsonb ELSE '{"truncated": true}' END
    FROM given g JOIN jobs j ON j.id = @job_id::text
    WHERE g.state = 'running' AND g.ordinal = @stage_ordinal::integer AND NOT EXISTS (SELECT 1 FROM open o WHERE o.name = g.name AND o.goes_on)
        AND g.differs
    ON CONFLICT ON CONSTRAINT action_logs_once DO NOTHING
)
INSERT INTO job_stages (job_id, ordinal, name, state, attempts, started_at, finished_at, message, failure_class, worked_ms)
SELECT @job_id::text, g.ordinal, g.name, g.state, g.attempts, g.started_at, g.finished_at, g.message, g.failure_class, coalesce(e.duration_ms, 0)
FROM given g LEFT JOIN ended e ON e.stage = g.name
WHERE g.differs
ON CONFLICT (job_id, ordinal) DO UPDATE SET name = excluded.name, state = excluded.state, attempts = excluded.attempts,
    started_at = excluded.started_at, finished_at = excluded.finished_at, message = excluded.message, failure_class = excluded.failure_class,
    worked_ms = job_stages.worked_ms + excluded.worked_ms;

-- name: JobStages :many
SELECT ordinal, name, state, attempts, started_at, finished_at, message, failure_class FROM job_stages WHERE job_id = @job_id ORDER BY ordinal;

-- name: JobsPastDeadline :many
-- Live jobs whose stage deadline passed, or that were accepted or moved before the cutoff, for the sweeper to look at.
SELECT * FROM jobs
WHERE status IN ('pending', 'running', 'compensating') AND id > @after::text
  AND (stage_deadline_at < @now::timestamptz OR updated_at < @cutoff::timestamptz)
ORDER BY id LIMIT @max_rows;

-- name: InsertBatch :one
INSERT INTO batches (id, site_id, name, max_parallel, created_by) VALUES (@id, @site_id, @name, @max_parallel, @created_by) RETURNING *;

-- name: Batch :one
SELECT * FROM batches WHERE id = @id;

-- name: ListBatches :many
SELECT * FROM batches
WHERE (@after::text = '' OR id < @after::text) AND (@site_id::text = '' OR site_id = @site_id::text)
ORDER BY id DESC LIMIT @max_rows;

-- name: InsertBatchItem :exec
INSERT INTO batch_items (batch_id, ordinal, hostname, job_id, error) VALUES (@batch_id, @ordinal, @hostname, @job_id, @error);

-- name: BatchItems :many
SELECT i.batch_id, i.ordinal, i.hostname, i.job_id, i.error, coalesce(j.status, '')::text AS job_status, coalesce(j.stage, '')::text AS stage,
    coalesce(j.progress_percent, 0)::integer AS progress_percent, j.node_id
FROM batch_items i LEFT JOIN jobs j ON j.id = i.job_id
WHERE i.batch_id = @batch_id AND i.ordinal > @after::integer
ORDER BY i.ordinal LIMIT @max_rows;

-- name: BatchCounts :many
SELECT (CASE WHEN i.error IS NOT NULL THEN 'rejected' ELSE j.status END)::text AS outcome, count(*) AS items
FROM batch_items i LEFT JOIN jobs j ON j.id = i.job_id
WHERE i.batch_id = @batch_id GROUP BY 1 ORDER BY 1;
