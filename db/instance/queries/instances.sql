-- name: InsertInstance :one
-- The instance, its creation audit row and its event in one statement.
WITH made AS (
    INSERT INTO instances (id, project_id, name, provider, account, zone, type, image, model, status, job_id, drain_seconds, created_by)
    VALUES (@id, @project_id, @name, @provider, @account, @zone, @type, @image, @model, @status, @job_id, @drain_seconds, @created_by)
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'instance', m.id, 'transition', 'create', '', m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, m.version
    FROM made m
)
SELECT version FROM made;

-- name: MoveInstance :one
-- The commit point of an instance: guarded update and audit row in one statement. The code of a failure, and that of a ready instance whose checks fail, stays
-- until the instance works again: it says after the end why it ended.
WITH moved AS (
    UPDATE instances SET status = @to_state::text, version = version + 1, updated_at = now(),
        error_code = CASE WHEN @error_code::text <> '' OR @to_state::text IN ('booting', 'ready') OR error_code = 'WAITING_FOR_WORKER_HEARTBEAT' THEN @error_code::text
            ELSE error_code END,
        error_message = CASE WHEN @error_code::text <> '' OR @to_state::text IN ('booting', 'ready') OR error_code = 'WAITING_FOR_WORKER_HEARTBEAT' THEN @error_message::text
            ELSE error_message END,
        failed_stage = CASE WHEN @error_code::text <> '' THEN @failed_stage::text WHEN @to_state::text IN ('booting', 'ready') THEN '' ELSE failed_stage END,
        progress_percent = @progress_percent,
        ready_at = CASE WHEN @to_state::text = 'ready' THEN now() ELSE ready_at END,
        last_health_check = CASE WHEN @to_state::text = 'ready' THEN now() ELSE last_health_check END,
        failed_at = CASE WHEN @to_state::text IN ('provisioning_failed', 'startup_failed', 'failed') THEN now() ELSE failed_at END,
        terminated_at = CASE WHEN @to_state::text = 'terminated' THEN now() ELSE terminated_at END,
        archived_at = CASE WHEN @to_state::text = 'archived' THEN now() ELSE archived_at END,
        deleted_by_provider = deleted_by_provider OR @deleted_by_provider::boolean,
        enroll_hash = CASE WHEN @to_state::text IN ('terminating', 'terminated') THEN NULL ELSE enroll_hash END,
        worker_hash = CASE WHEN @to_state::text IN ('terminating', 'terminated') THEN NULL ELSE worker_hash END
    WHERE instances.id = @id AND instances.status = @from_state::text AND instances.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'instance', m.id, 'transition', @name, @from_state::text, m.status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, m.version
    FROM moved m
)
SELECT version FROM moved;

-- name: Instance :one
SELECT * FROM instances WHERE id = @id;

-- name: LockInstance :one
SELECT * FROM instances WHERE id = @id FOR NO KEY UPDATE;

-- name: ListInstances :many
SELECT * FROM instances
WHERE (@after::text = '' OR id < @after::text)
  AND (@project_id::text = '' OR project_id = @project_id::text)
  AND (@status::text = '' OR status = @status::text)
  AND (@archived::boolean OR status <> 'archived')
ORDER BY id DESC LIMIT @max_rows;

-- name: ListInstancesOfCustomer :many
-- Row-level security binds this to the project of the transaction, and its role reads these columns alone.
SELECT id, project_id, name, provider, zone, type, model, status, progress_percent, error_code, version, created_at, ready_at, terminated_at FROM instances
WHERE (@after::text = '' OR id < @after::text) AND status <> 'archived' ORDER BY id DESC LIMIT @max_rows;

-- name: InstanceOfCustomer :one
SELECT id, project_id, name, provider, zone, type, model, status, progress_percent, error_code, version, created_at, ready_at, terminated_at FROM instances WHERE id = @id;

-- name: ListLiveInstancesOfProject :many
SELECT * FROM instances WHERE project_id = @project_id AND status NOT IN ('terminated', 'archived') ORDER BY id LIMIT @max_rows;

-- name: ListLiveInstances :many
-- Those that may have something at a provider, by id.
SELECT * FROM instances WHERE status NOT IN ('terminated', 'archived') AND id > @after ORDER BY id LIMIT @max_rows;

-- name: ListEndedInstances :many
SELECT id FROM instances WHERE status = 'terminated' AND terminated_at < @before::timestamptz ORDER BY terminated_at LIMIT @max_rows;

-- name: SetProgress :execrows
UPDATE instances SET progress_percent = @progress_percent, reached_percent = @reached_percent,
    failed_stage = CASE WHEN @failed_stage::text <> '' THEN @failed_stage::text ELSE failed_stage END, updated_at = now()
WHERE id = @id;

-- name: StoreServerAsk :execrows
-- server_asked_at is when the last order is sent at the latest. Two executions of one activity never store the same number.
UPDATE instances SET server_asks = @server_asks, updated_at = now(),
    server_asked_at = CASE WHEN @server_asks::integer > 0 THEN now() + make_interval(secs => @within_seconds::integer) END
WHERE id = @id AND server_id = '' AND server_asks = @before;

-- name: StoreServer :execrows
UPDATE instances SET server_id = @server_id, server_created_at = @server_created_at, resources = @resources, updated_at = now()
WHERE id = @id AND server_id IN ('', @server_id);

-- name: StoreResources :execrows
UPDATE instances SET resources = @resources, updated_at = now() WHERE id = @id;

-- name: StoreAddress :execrows
UPDATE instances SET ip_address = @ip_address, updated_at = now() WHERE id = @id;

-- name: StoreCredentials :execrows
-- A new set ends the one before it: no worker of an earlier installation is known any more.
UPDATE instances SET host_key = @host_key, enroll_hash = @enroll_hash, worker_hash = NULL, enrolled_at = NULL, heartbeat_seq = 0, heartbeat_at = NULL,
    heartbeat = '{}', agent_verified_at = NULL, updated_at = now()
WHERE id = @id AND status IN ('provisioning', 'booting');

-- name: StoreInstalledAgent :execrows
UPDATE instances SET agent_checksum = @agent_checksum, agent_verified_at = NULL, updated_at = now() WHERE id = @id;

-- name: StoreAgentVerified :execrows
UPDATE instances SET agent_verified_at = now(), updated_at = now() WHERE id = @id AND agent_checksum = @agent_checksum;

-- name: SetError :execrows
-- A code of a state that is no failure.
UPDATE instances SET error_code = @error_code, error_message = @error_message, updated_at = now() WHERE id = @id AND status IN ('provisioning', 'booting', 'ready');

-- name: EnrollWorker :one
-- The token counts for one key: the request whose answer was lost may be repeated, and nobody else can use it.
UPDATE instances SET worker_hash = @worker_hash, enrolled_at = coalesce(enrolled_at, now()), updated_at = now()
WHERE enroll_hash = @enroll_hash AND (worker_hash IS NULL OR worker_hash = @worker_hash) AND status IN ('booting', 'startup_failed') RETURNING id;

-- name: StoreHeartbeat :one
-- The first one ends the token. -- Who is not known, sends an older number or another checksum than what was installed, changes nothing.
UPDATE instances SET heartbeat_at = now(), heartbeat_seq = @heartbeat_seq, heartbeat = @heartbeat, enroll_hash = NULL,
    error_code = CASE WHEN error_code = 'WAITING_FOR_WORKER_HEARTBEAT' THEN '' ELSE error_code END,
    error_message = CASE WHEN error_code = 'WAITING_FOR_WORKER_HEARTBEAT' THEN '' ELSE error_message END
WHERE id = @id AND worker_hash = @worker_hash AND heartbeat_seq < @heartbeat_seq AND agent_checksum = @agent_checksum
    AND status IN ('booting', 'ready', 'draining', 'startup_failed')
RETURNING id, status, error_code, recoveries, job_id;

-- name: CountRecovery :execrows
UPDATE instances SET recoveries = recoveries + 1, updated_at = now() WHERE id = @id AND recoveries = @recoveries AND status = 'startup_failed';

-- name: EndDrain :execrows
UPDATE instances SET drain_seconds = 0 WHERE id = @id AND status = 'draining';

-- name: StoreHealthCheck :execrows
UPDATE instances SET last_health_check = @checked_at,
    health_failed_since = CASE WHEN NOT @health_ok::boolean THEN coalesce(health_failed_since, @checked_at) END,
    health_ok = CASE WHEN @logged::boolean THEN @health_ok::boolean ELSE health_ok END,
    health_logged_at = CASE WHEN @logged::boolean THEN @checked_at ELSE health_logged_at END
WHERE id = @id AND status IN ('booting', 'ready', 'draining');

-- name: StoreAbsence :execrows
UPDATE instances SET absent_looks = absent_looks + 1, absent_since = coalesce(absent_since, @seen_at) WHERE id = @id;

-- name: ClearAbsence :execrows
UPDATE instances SET absent_looks = 0, absent_since = NULL WHERE id = @id AND absent_looks > 0;

-- name: ListHistory :many
SELECT instance_id, from_status, to_status, name, coalesce(reason, '')::text AS reason, created_at FROM instance_state_history
WHERE instance_id = @instance_id::text ORDER BY pos LIMIT @max_rows;

-- name: InsertEvent :execrows
-- A row of the action log that no stage of a job has written. seq is below zero: those of stages are above. The run that the row belongs to is the
-- last one of the job.
INSERT INTO action_logs (id, job_id, seq, stage, attempt, action_type, component, status, started_at, finished_at, duration_ms, failure_class, error_message, metadata)
SELECT @id, j.id, @seq, @stage, 1, @action_type, 'orchestrator', @status, @began, @at, @duration_ms, @failure_class, @error_message,
    @metadata::jsonb || CASE WHEN j.run_id <> '' THEN jsonb_build_object('correlation_id', j.run_id) ELSE '{}'::jsonb END
FROM jobs j WHERE j.id = @job_id::text
ON CONFLICT ON CONSTRAINT action_logs_once DO NOTHING;

-- name: ListActions :many
SELECT a.* FROM action_logs a JOIN jobs j ON j.id = a.job_id
WHERE j.resource_kind = 'instance' AND j.resource_id = @instance_id::text AND (@after::text = '' OR a.id < @after::text)
ORDER BY a.id DESC LIMIT @max_rows;
