-- name: LiveJobs :many
-- What the sweeper compares with Temporal's workflows: every job that has not ended, in a few columns.
SELECT j.id, j.kind, j.node_id, j.workflow_id, j.status, j.stage, j.seq, j.run_id, j.updated_at, j.stage_deadline_at,
    EXISTS (SELECT 1 FROM outbox o WHERE o.kind = 'start_workflow' AND o.job_id = j.id AND o.done_at IS NULL)::boolean AS start_open,
    coalesce((SELECT max(o.done_at) FROM outbox o WHERE o.kind = 'start_workflow' AND o.job_id = j.id), j.created_at)::timestamptz AS started_or_created,
    coalesce((SELECT f.kind FROM sweep_findings f WHERE f.subject = j.id AND f.closed_at IS NULL AND f.kind IN ('workflow_silent', 'workflow_gone')
        LIMIT 1), '')::text AS finding
FROM jobs j
WHERE j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating') AND j.id > @after::text
ORDER BY j.id LIMIT @max_rows;

-- name: StatusOfJobs :many
SELECT j.id, j.workflow_id, j.status, j.node_id, j.updated_at FROM jobs j WHERE j.workflow_id = ANY(@workflow_ids::text[]);

-- name: HasOpenStart :one
SELECT EXISTS (SELECT 1 FROM outbox o WHERE o.kind = 'start_workflow' AND o.job_id = @job_id::text AND o.done_at IS NULL);

-- name: LoseJob :exec
-- A step of the sweeper's own: the number is one higher, so that what the lost run may still write comes too late.
UPDATE jobs SET seq = seq + 1, failure_class = @failure_class, failed_stage = stage, message = @message, recommended_action = @recommended_action,
    next_step = @next_step, waiting_outside = false, progress_percent = @progress_percent, eta = NULL, stage_deadline_at = NULL,
    version = version + 1, updated_at = now()
WHERE id = @id;

-- name: LoseStage :exec
-- The stage that runs fails, and so does its try in the action log.
WITH ended AS (
    UPDATE action_logs a SET status = 'failed', finished_at = greatest(now(), a.started_at), failure_class = @failure_class,
        error_message = @message, duration_ms = extract(epoch FROM greatest(now(), a.started_at) - a.started_at)::numeric * 1000
    WHERE a.job_id = @job_id AND a.status = 'in_progress'
    RETURNING a.stage, a.duration_ms
)
UPDATE job_stages s SET state = 'failed', finished_at = now(), message = @message, failure_class = @failure_class,
    worked_ms = s.worked_ms + coalesce((SELECT e.duration_ms FROM ended e WHERE e.stage = s.name), 0)
WHERE s.job_id = @job_id AND s.state = 'running';

-- name: ReleaseClaims :execrows
-- Claims that end later than any relay may claim for: whoever holds them is no relay that lives.
UPDATE outbox SET claimed_until = NULL, next_at = least(next_at, now())
WHERE kind = 'start_workflow' AND done_at IS NULL AND claimed_until > now() + make_interval(secs => @lease_seconds::double precision);

-- name: EnqueueMissingStarts :many
-- Jobs that wait for a start that nobody was asked for. The batch goes with it, so that its gate holds.
INSERT INTO outbox (kind, job_id, batch_id, resource_kind, resource_id)
SELECT 'start_workflow', j.id, j.batch_id, 'job', j.id FROM jobs j
WHERE j.status = 'pending' AND j.seq = 0 AND j.updated_at < now() - make_interval(secs => @age_seconds::double precision)
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.kind = 'start_workflow' AND o.job_id = j.id)
ORDER BY j.id LIMIT @max_rows
ON CONFLICT DO NOTHING RETURNING job_id::text AS job_id;

-- name: OverdueStarts :one
-- Starts that have been due for a while and that nobody has claimed; those of batches may wait for room.
SELECT count(*) FROM outbox o
WHERE o.kind = 'start_workflow' AND o.done_at IS NULL AND o.batch_id IS NULL
  AND greatest(o.next_at, o.claimed_until) < now() - make_interval(secs => @age_seconds::double precision);

-- name: WakeRelays :exec
SELECT pg_notify('slipway_outbox', '');

-- name: SeeFinding :one
-- Opens a finding or keeps the open one up to date; opened tells which.
INSERT INTO sweep_findings (id, kind, subject, job_id, run_id, message) VALUES (@id, @kind, @subject, @job_id, @run_id, @message)
ON CONFLICT (kind, subject) WHERE closed_at IS NULL
DO UPDATE SET message = excluded.message, run_id = excluded.run_id, job_id = excluded.job_id, seen_at = now()
RETURNING *, (xmax = 0)::boolean AS opened;

-- name: ActOnFinding :exec
UPDATE sweep_findings SET acted_at = now(), message = @message WHERE id = @id AND closed_at IS NULL;

-- name: CloseFinding :execrows
UPDATE sweep_findings SET closed_at = now(), outcome = @outcome WHERE kind = @kind AND subject = @subject AND closed_at IS NULL;

-- name: CloseFindingsOfMovedJobs :execrows
-- A finding about a job that is no longer in the kind of state it was found in tells nothing any more.
UPDATE sweep_findings f SET closed_at = now(), outcome = 'the job is ' || j.status
FROM jobs j
WHERE f.closed_at IS NULL AND j.id = f.subject
  AND ((f.kind = 'workflow_silent' AND j.status NOT IN ('pending', 'running', 'compensating'))
    OR (f.kind = 'workflow_gone' AND j.status NOT IN ('failed_retryable', 'failed_manual_intervention')));

-- name: OpenFindings :many
SELECT * FROM sweep_findings WHERE kind = @kind AND closed_at IS NULL ORDER BY opened_at, id LIMIT @max_rows;

-- name: PruneFindings :execrows
DELETE FROM sweep_findings WHERE id = ANY (ARRAY(SELECT f.id FROM sweep_findings f WHERE f.closed_at < @before::timestamptz LIMIT @max_rows));

-- name: FinishSweep :exec
UPDATE sweep_passes SET tried_at = now(), passes = passes + 1, problem = @problem,
    finished_at = CASE WHEN @problem::text = '' THEN now() ELSE finished_at END;

-- name: PlaceSweep :exec
UPDATE sweep_passes SET place = @place;

-- name: SweepPass :one
SELECT finished_at, tried_at, passes, place, problem FROM sweep_passes;

-- name: PruneJobs :one
SELECT prune_jobs(@before::timestamptz, @max_rows::integer)::bigint;
