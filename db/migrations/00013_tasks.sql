-- Node tasks: what the control plane asks of a node's agent, handed out under a lease and fenced by attempt and lease (seed 001 section 8).

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('node_task', '', 'create', '', 'queued'),
    ('node_task', '', 'dispatch', 'queued', 'dispatched'),
    ('node_task', '', 'requeue', 'dispatched', 'queued'),
    ('node_task', '', 'requeue', 'uncertain', 'queued'),
    ('node_task', '', 'succeed', 'queued', 'succeeded'),
    ('node_task', '', 'succeed', 'dispatched', 'succeeded'),
    ('node_task', '', 'succeed', 'uncertain', 'succeeded'),
    ('node_task', '', 'fail', 'queued', 'failed'),
    ('node_task', '', 'fail', 'dispatched', 'failed'),
    ('node_task', '', 'fail', 'uncertain', 'failed'),
    ('node_task', '', 'doubt', 'dispatched', 'uncertain'),
    ('node_task', '', 'expire', 'queued', 'expired'),
    ('node_task', '', 'expire', 'dispatched', 'expired'),
    ('node_task', '', 'expire', 'uncertain', 'expired');

CREATE TABLE node_tasks (
    id                 text PRIMARY KEY CHECK (id LIKE 'task\_%'),
    node_id            text NOT NULL REFERENCES nodes (id),
    job_id             text REFERENCES jobs (id),
    kind               text NOT NULL CHECK (kind <> ''),
    schema_version     integer NOT NULL CHECK (schema_version > 0),
    args               jsonb NOT NULL,
    idempotency_key    text NOT NULL CHECK (idempotency_key <> ''),
    status             text NOT NULL,
    -- The last delivery. It stays when the task is queued again, so that a result that the agent's journal kept is still known.
    attempt            integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    lease_id           text NOT NULL DEFAULT '',
    lease_until        timestamptz, -- set while dispatched only
    claim_id           text NOT NULL DEFAULT '', -- the agent's own name for the claim, so that a lost answer is given again
    boot_id            text NOT NULL DEFAULT '',
    generation         bigint NOT NULL DEFAULT 0,
    dispatched_at      timestamptz,
    progress           text NOT NULL DEFAULT '',
    result             jsonb,
    message            text NOT NULL DEFAULT '', -- why it stands where it does
    deadline_at        timestamptz NOT NULL,
    -- The activity that waits for the end; told_at is when it was told.
    waiter_workflow_id text NOT NULL DEFAULT '',
    waiter_run_id      text NOT NULL DEFAULT '',
    waiter_activity_id text NOT NULL DEFAULT '',
    tell_at            timestamptz NOT NULL DEFAULT now(), -- not to be told before
    told_at            timestamptz,
    doubts             integer NOT NULL DEFAULT 0, -- how often the job that waits was told that the outcome is unknown, and was sent on
    created_by         text NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL DEFAULT now(),
    status_at          timestamptz NOT NULL DEFAULT now(),
    finished_at        timestamptz,
    updated_at         timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1,
    CONSTRAINT node_tasks_key_unique UNIQUE (node_id, idempotency_key),
    CONSTRAINT node_tasks_lease CHECK ((status = 'dispatched') = (lease_until IS NOT NULL)),
    CONSTRAINT node_tasks_delivery CHECK (status <> 'dispatched' OR (attempt > 0 AND lease_id <> '' AND boot_id <> '' AND generation > 0)),
    CONSTRAINT node_tasks_result CHECK (status NOT IN ('succeeded', 'failed') OR result IS NOT NULL)
);
-- A node works on one task at a time.
CREATE UNIQUE INDEX node_tasks_one_dispatched ON node_tasks (node_id) WHERE status = 'dispatched';
CREATE INDEX node_tasks_by_node ON node_tasks (node_id, id);
CREATE INDEX node_tasks_by_job ON node_tasks (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX node_tasks_open ON node_tasks (node_id, id) WHERE status IN ('queued', 'dispatched');
CREATE INDEX node_tasks_uncertain ON node_tasks (node_id) WHERE status = 'uncertain';
CREATE INDEX node_tasks_to_tell ON node_tasks (tell_at)
    WHERE told_at IS NULL AND waiter_activity_id <> '' AND status NOT IN ('queued', 'dispatched');

-- +goose StatementBegin
CREATE FUNCTION guard_task_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('node_task', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of task % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('node_task', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER node_tasks_edge_insert BEFORE INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_task_status();
CREATE TRIGGER node_tasks_edge_update BEFORE UPDATE ON node_tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_task_status();
CREATE CONSTRAINT TRIGGER node_tasks_audited_insert AFTER INSERT ON node_tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('node_task');
CREATE CONSTRAINT TRIGGER node_tasks_audited_update AFTER UPDATE ON node_tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('node_task');
CREATE TRIGGER node_tasks_no_delete BEFORE DELETE ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- A task that can be taken wakes the agent API that the node's agent waits at; one that has ended, the relays.
-- +goose StatementBegin
CREATE FUNCTION node_tasks_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'queued' THEN
        PERFORM pg_notify('slipway_tasks', NEW.node_id);
    ELSIF NEW.status <> 'dispatched' THEN
        NOTIFY slipway_task_ends;
        -- The node's next task may be taken now.
        PERFORM pg_notify('slipway_tasks', NEW.node_id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER node_tasks_wake_insert AFTER INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION node_tasks_wake();
CREATE TRIGGER node_tasks_wake_update AFTER UPDATE ON node_tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION node_tasks_wake();

-- The same as before, and tasks of unknown outcome.
DROP VIEW attention;
CREATE VIEW attention AS
-- Jobs that failed and wait for an action.
SELECT 'parked_job'::text AS kind, ('parked_job:' || j.id)::text AS id,
    coalesce((SELECT a.at FROM audit_log a WHERE a.resource_kind = 'job' AND a.resource_id = j.id AND a.kind = 'transition'
        ORDER BY a.seq DESC LIMIT 1), j.updated_at)::timestamptz AS since,
    coalesce(j.site_id, '')::text AS site_id, coalesce(j.node_id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname,
    ''::text AS bmc_id, j.id::text AS job_id, j.kind::text AS job_kind, j.workflow_id::text AS workflow_id, j.status::text AS status,
    coalesce(nullif(j.failed_stage, ''), j.stage)::text AS stage, j.failure_class::text AS failure_class, j.message::text AS message,
    j.next_step::text AS next_step, j.recommended_action::text AS recommended_action, j.waiting_outside::boolean AS waiting_outside,
    (f.id IS NOT NULL)::boolean AS workflow_gone
FROM jobs j
LEFT JOIN nodes n ON n.id = j.node_id
LEFT JOIN sweep_findings f ON f.kind = 'workflow_gone' AND f.subject = j.id AND f.closed_at IS NULL
WHERE j.status IN ('failed_retryable', 'failed_manual_intervention')
UNION ALL
-- Jobs at work that do not move: past their stage's deadline, or with a workflow that cannot go on.
SELECT 'job_stuck', 'job_stuck:' || j.id, coalesce(least(f.opened_at, j.stage_deadline_at), j.updated_at),
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', j.id, j.kind, j.workflow_id, j.status, j.stage, '',
    coalesce(f.message, 'the stage is past its deadline and nothing is known of its workflow yet'), '', '', j.waiting_outside, false
FROM jobs j
LEFT JOIN nodes n ON n.id = j.node_id
LEFT JOIN sweep_findings f ON f.kind = 'workflow_silent' AND f.subject = j.id AND f.closed_at IS NULL
WHERE j.status IN ('pending', 'running', 'compensating')
  AND (f.id IS NOT NULL OR j.stage_deadline_at < now() - interval '60 seconds')
UNION ALL
-- Jobs whose workflow was not started for a minute; those that wait for room in their batch are in order.
SELECT 'start_not_sent', 'start_not_sent:' || j.id, o.created_at,
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', j.id, j.kind, j.workflow_id, j.status, j.stage, '',
    o.last_error, '', '', j.waiting_outside, false
FROM outbox o
JOIN jobs j ON j.id = o.job_id
LEFT JOIN nodes n ON n.id = j.node_id
WHERE o.kind = 'start_workflow' AND o.done_at IS NULL AND o.created_at < now() - interval '60 seconds'
  AND (o.batch_id IS NULL OR o.last_error <> '' OR o.batch_id IN ( -- depends on no row of o, so that a batch is counted once and not for each of its jobs
      SELECT b.id FROM batches b
      WHERE b.id IN (SELECT w.batch_id FROM outbox w WHERE w.kind = 'start_workflow' AND w.done_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM jobs k WHERE k.batch_id = b.id AND k.updated_at > now() - interval '60 seconds')
        AND b.max_parallel > (
            SELECT count(*) FROM jobs k WHERE k.batch_id = b.id AND (k.status IN ('running', 'compensating') OR (k.status = 'pending' AND coalesce((
                SELECT true FROM outbox s WHERE s.kind = 'start_workflow' AND s.job_id = k.id AND (s.done_at IS NOT NULL OR s.claimed_until >= now())
                LIMIT 1), false))))))
UNION ALL
-- Workflows that run for nobody.
SELECT 'orphan_workflow', 'orphan_workflow:' || f.subject, f.opened_at,
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', coalesce(j.id, ''), coalesce(j.kind, ''), f.subject,
    coalesce(j.status, ''), coalesce(j.stage, ''), '', f.message, '', '', false, false
FROM sweep_findings f
LEFT JOIN jobs j ON j.id = f.job_id
LEFT JOIN nodes n ON n.id = j.node_id
WHERE f.kind = 'workflow_orphan' AND f.closed_at IS NULL
UNION ALL
-- Nodes between two states that no job moves.
SELECT 'node_stuck', 'node_stuck:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '', '', '', '', false, false
FROM nodes n
WHERE n.status IN ('enrolling', 'draining', 'removing') AND n.state_changed_at < now() - interval '10 minutes'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- Nodes that are kept from scheduling; one that a job works on waits for that job.
SELECT 'node_quarantined', 'node_quarantined:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    coalesce((SELECT a.comment FROM audit_log a WHERE a.resource_kind = 'node' AND a.resource_id = n.id AND a.kind = 'transition'
        ORDER BY a.seq DESC LIMIT 1), ''), '', '', false, false
FROM nodes n
WHERE n.status = 'quarantined'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- BMCs to which nobody may log in until a person has looked.
SELECT 'bmc_login_blocked', 'bmc_login_blocked:' || b.id, b.auth_blocked_at, coalesce(n.site_id, ''), coalesce(b.node_id, ''),
    coalesce(n.hostname, ''), b.id, '', '', '', '', '', '', b.auth_blocked_reason, '', '', false, false
FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id
WHERE b.auth_blocked_at IS NOT NULL
UNION ALL
SELECT 'bmc_pin_pending', 'bmc_pin_pending:' || b.id, b.updated_at, coalesce(n.site_id, ''), coalesce(b.node_id, ''),
    coalesce(n.hostname, ''), b.id, '', '', '', '', '', '', b.pin_pending, '', '', false, false
FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id
WHERE b.pin_pending <> ''
UNION ALL
-- Agents that showed a certificate of the past.
SELECT 'agent_locked', 'agent_locked:' || n.id, i.locked_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '', i.locked_reason,
    '', '', false, false
FROM agent_identities i JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NOT NULL AND n.status NOT IN ('retired', 'removing', 'deleted')
UNION ALL
-- The sweeper itself.
SELECT 'sweeper', 'sweeper:', p.finished_at, '', '', '', '', '', '', '', '', '', '', p.problem, '', '', false, false
FROM sweep_passes p
WHERE p.finished_at < now() - interval '60 seconds'
UNION ALL
-- Tasks that a node began and of which nobody knows whether they were finished.
SELECT 'task_uncertain', 'task_uncertain:' || t.id, t.status_at, n.site_id, n.id, n.hostname, '', coalesce(t.job_id, ''), coalesce(j.kind, ''),
    coalesce(j.workflow_id, ''), t.status, t.kind, 'node_task_uncertain', t.message, '', '', false, false
FROM node_tasks t JOIN nodes n ON n.id = t.node_id LEFT JOIN jobs j ON j.id = t.job_id
WHERE t.status = 'uncertain' AND n.status <> 'deleted';

-- +goose Down
DROP VIEW attention;
CREATE VIEW attention AS
-- Jobs that failed and wait for an action.
SELECT 'parked_job'::text AS kind, ('parked_job:' || j.id)::text AS id,
    coalesce((SELECT a.at FROM audit_log a WHERE a.resource_kind = 'job' AND a.resource_id = j.id AND a.kind = 'transition'
        ORDER BY a.seq DESC LIMIT 1), j.updated_at)::timestamptz AS since,
    coalesce(j.site_id, '')::text AS site_id, coalesce(j.node_id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname,
    ''::text AS bmc_id, j.id::text AS job_id, j.kind::text AS job_kind, j.workflow_id::text AS workflow_id, j.status::text AS status,
    coalesce(nullif(j.failed_stage, ''), j.stage)::text AS stage, j.failure_class::text AS failure_class, j.message::text AS message,
    j.next_step::text AS next_step, j.recommended_action::text AS recommended_action, j.waiting_outside::boolean AS waiting_outside,
    (f.id IS NOT NULL)::boolean AS workflow_gone
FROM jobs j
LEFT JOIN nodes n ON n.id = j.node_id
LEFT JOIN sweep_findings f ON f.kind = 'workflow_gone' AND f.subject = j.id AND f.closed_at IS NULL
WHERE j.status IN ('failed_retryable', 'failed_manual_intervention')
UNION ALL
-- Jobs at work that do not move: past their stage's deadline, or with a workflow that cannot go on.
SELECT 'job_stuck', 'job_stuck:' || j.id, coalesce(least(f.opened_at, j.stage_deadline_at), j.updated_at),
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', j.id, j.kind, j.workflow_id, j.status, j.stage, '',
    coalesce(f.message, 'the stage is past its deadline and nothing is known of its workflow yet'), '', '', j.waiting_outside, false
FROM jobs j
LEFT JOIN nodes n ON n.id = j.node_id
LEFT JOIN sweep_findings f ON f.kind = 'workflow_silent' AND f.subject = j.id AND f.closed_at IS NULL
WHERE j.status IN ('pending', 'running', 'compensating')
  AND (f.id IS NOT NULL OR j.stage_deadline_at < now() - interval '60 seconds')
UNION ALL
-- Jobs whose workflow was not started for a minute; those that wait for room in their batch are in order.
SELECT 'start_not_sent', 'start_not_sent:' || j.id, o.created_at,
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', j.id, j.kind, j.workflow_id, j.status, j.stage, '',
    o.last_error, '', '', j.waiting_outside, false
FROM outbox o
JOIN jobs j ON j.id = o.job_id
LEFT JOIN nodes n ON n.id = j.node_id
WHERE o.kind = 'start_workflow' AND o.done_at IS NULL AND o.created_at < now() - interval '60 seconds'
  AND (o.batch_id IS NULL OR o.last_error <> '' OR o.batch_id IN ( -- depends on no row of o, so that a batch is counted once and not for each of its jobs
      SELECT b.id FROM batches b
      WHERE b.id IN (SELECT w.batch_id FROM outbox w WHERE w.kind = 'start_workflow' AND w.done_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM jobs k WHERE k.batch_id = b.id AND k.updated_at > now() - interval '60 seconds')
        AND b.max_parallel > (
            SELECT count(*) FROM jobs k WHERE k.batch_id = b.id AND (k.status IN ('running', 'compensating') OR (k.status = 'pending' AND coalesce((
                SELECT true FROM outbox s WHERE s.kind = 'start_workflow' AND s.job_id = k.id AND (s.done_at IS NOT NULL OR s.claimed_until >= now())
                LIMIT 1), false))))))
UNION ALL
-- Workflows that run for nobody.
SELECT 'orphan_workflow', 'orphan_workflow:' || f.subject, f.opened_at,
    coalesce(j.site_id, ''), coalesce(j.node_id, ''), coalesce(n.hostname, ''), '', coalesce(j.id, ''), coalesce(j.kind, ''), f.subject,
    coalesce(j.status, ''), coalesce(j.stage, ''), '', f.message, '', '', false, false
FROM sweep_findings f
LEFT JOIN jobs j ON j.id = f.job_id
LEFT JOIN nodes n ON n.id = j.node_id
WHERE f.kind = 'workflow_orphan' AND f.closed_at IS NULL
UNION ALL
-- Nodes between two states that no job moves.
SELECT 'node_stuck', 'node_stuck:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '', '', '', '', false, false
FROM nodes n
WHERE n.status IN ('enrolling', 'draining', 'removing') AND n.state_changed_at < now() - interval '10 minutes'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- Nodes that are kept from scheduling; one that a job works on waits for that job.
SELECT 'node_quarantined', 'node_quarantined:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    coalesce((SELECT a.comment FROM audit_log a WHERE a.resource_kind = 'node' AND a.resource_id = n.id AND a.kind = 'transition'
        ORDER BY a.seq DESC LIMIT 1), ''), '', '', false, false
FROM nodes n
WHERE n.status = 'quarantined'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- BMCs to which nobody may log in until a person has looked.
SELECT 'bmc_login_blocked', 'bmc_login_blocked:' || b.id, b.auth_blocked_at, coalesce(n.site_id, ''), coalesce(b.node_id, ''),
    coalesce(n.hostname, ''), b.id, '', '', '', '', '', '', b.auth_blocked_reason, '', '', false, false
FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id
WHERE b.auth_blocked_at IS NOT NULL
UNION ALL
SELECT 'bmc_pin_pending', 'bmc_pin_pending:' || b.id, b.updated_at, coalesce(n.site_id, ''), coalesce(b.node_id, ''),
    coalesce(n.hostname, ''), b.id, '', '', '', '', '', '', b.pin_pending, '', '', false, false
FROM bmcs b LEFT JOIN nodes n ON n.id = b.node_id
WHERE b.pin_pending <> ''
UNION ALL
-- Agents that showed a certificate of the past.
SELECT 'agent_locked', 'agent_locked:' || n.id, i.locked_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '', i.locked_reason,
    '', '', false, false
FROM agent_identities i JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NOT NULL AND n.status NOT IN ('retired', 'removing', 'deleted')
UNION ALL
-- The sweeper itself.
SELECT 'sweeper', 'sweeper:', p.finished_at, '', '', '', '', '', '', '', '', '', '', p.problem, '', '', false, false
FROM sweep_passes p
WHERE p.finished_at < now() - interval '60 seconds';
DROP TABLE node_tasks;
DROP FUNCTION node_tasks_wake, guard_task_status;
DELETE FROM lifecycle_edges WHERE resource = 'node_task';
