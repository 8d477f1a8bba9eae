-- Everything that needs an operator, computed from the rows that are the truth. Of a kind and a
-- subject there is one line; its id stays the same while it lasts. The states are those that
-- lifecycle calls transitional, parked and live; a test compares them.
CREATE OR REPLACE VIEW attention AS
-- Jobs that failed and wait for an action.
SELECT 'parked_job'::text AS kind, ('parked_job:' || j.id)::text AS id,
    j.state_changed_at::timestamptz AS since,
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
-- Nodes that are kept from scheduling; one that a job works on waits for that job. Why stands in the comment of the transition, which the query of
-- the list reads for one page.
SELECT 'node_quarantined', 'node_quarantined:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '', '', '', '', false, false
FROM nodes n
WHERE n.status = 'quarantined'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- BMCs to which nobody may log in until an operator has looked.
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
WHERE i.locked_at IS NOT NULL AND NOT i.replaced AND n.status NOT IN ('retired', 'removing', 'deleted')
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
