-- name: InsertRun :one
-- The run and its creation audit row in one statement.
WITH made AS (
    INSERT INTO runs (id, machine_id, project_id, request_id, type, plan_id, steps, status, accept_risk, job_id, created_by, retry_of)
    VALUES (@id, @machine_id, sqlc.narg('project_id'), @request_id, @type, @plan_id, @steps, @status, @accept_risk, @job_id, @created_by, sqlc.narg('retry_of'))
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'run', m.id, 'transition', 'create', '', m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, m.version
    FROM made m
)
SELECT version FROM made;

-- name: MoveRun :one
-- The commit point of a run's phase: guarded update and audit row in one statement.
WITH moved AS (
    UPDATE runs SET status = @to_state::text, version = version + 1,
        started_at = CASE WHEN @to_state::text = 'RUNNING' THEN coalesce(started_at, now()) ELSE started_at END,
        finished_at = CASE WHEN @terminal::boolean THEN now() END,
        needs_intervention = @needs_intervention, stages = @stages, current_step = @current_step, failure_class = @failure_class, message = @message
    WHERE runs.id = @id AND runs.status = @from_state::text AND runs.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'run', m.id, 'transition', @name, @from_state::text, m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id,
        m.version
    FROM moved m
)
SELECT version FROM moved;

-- name: ProjectRun :execrows
UPDATE runs SET stages = @stages, current_step = @current_step, needs_intervention = @needs_intervention, version = version + 1
WHERE id = @id AND finished_at IS NULL;

-- name: Run :one
SELECT * FROM runs WHERE id = @id;

-- name: LockRun :one
SELECT * FROM runs WHERE id = @id FOR NO KEY UPDATE;

-- name: RunOfJob :one
SELECT * FROM runs WHERE job_id = @job_id;

-- name: RunOfRequest :one
SELECT * FROM runs WHERE machine_id = @machine_id AND request_id = @request_id;

-- name: LastRun :one
-- The newest run of a machine.
SELECT id FROM runs WHERE machine_id = @machine_id ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: ListRuns :many
-- One page, the newest first: ids sort by the time of their creation. The parameters of the steps may be long, and stay where they are.
SELECT r.id, r.machine_id, r.project_id, r.request_id, r.type, r.plan_id, r.stages, r.current_step, r.status, r.needs_intervention, r.job_id, r.failure_class,
    r.message, r.version, r.created_at, r.started_at, r.finished_at, r.retry_of,
    ARRAY(SELECT s.step ->> 'name' FROM jsonb_array_elements(r.steps) WITH ORDINALITY AS s (step, n) ORDER BY s.n)::text[] AS step_names
FROM runs r
WHERE (@before::text = '' OR r.id < @before::text) AND (@project_id::text = '' OR r.project_id = @project_id::text) AND (NOT @active::boolean OR r.finished_at IS NULL)
  AND NOT EXISTS (SELECT FROM (SELECT unnest(@fields::text[]) AS f, unnest(@negated::boolean[]) AS n, unnest(@wanted::text[]) AS v) t
    WHERE (CASE t.f WHEN 'run_id' THEN r.id WHEN 'machine_id' THEN r.machine_id WHEN 'phase' THEN r.status WHEN 'type' THEN r.type ELSE r.plan_id END = t.v) = t.n)
ORDER BY r.id DESC LIMIT @max_rows;

-- name: PruneRuns :one
SELECT prune_runs(@before::timestamptz, @max_rows::integer)::bigint;
