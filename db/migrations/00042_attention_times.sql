-- Times and indexes for the list of what needs an operator, which is read with 20,000 entries; docs/performance.md has the figures.

-- +goose Up
-- Since when a job is in its state, which the audit log told until now.
ALTER TABLE jobs ADD COLUMN state_changed_at timestamptz NOT NULL DEFAULT now();
-- Only parked jobs are asked for it: the others, all that ever were, keep the time of this migration.
UPDATE jobs j SET state_changed_at = coalesce((SELECT a.at FROM audit_log a WHERE a.resource_kind = 'job' AND a.resource_id = j.id
    AND a.kind = 'transition' ORDER BY a.seq DESC LIMIT 1), j.updated_at)
WHERE j.status IN ('failed_retryable', 'failed_manual_intervention');
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_job_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('job', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of job % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('job', '', OLD.status, NEW.status);
    NEW.state_changed_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- When the agent of a node should have renewed its certificate: of its life less than a fifth is left.
ALTER TABLE agent_identities ADD COLUMN renew_at timestamptz;
-- +goose StatementBegin
CREATE FUNCTION set_agent_renewal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NEW.renew_at := (SELECT c.not_after - (c.not_after - c.not_before) / 5 FROM agent_certificates c
        WHERE c.node_id = NEW.node_id AND c.generation = NEW.generation);
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER agent_identities_renewal BEFORE INSERT OR UPDATE OF generation ON agent_identities FOR EACH ROW EXECUTE FUNCTION set_agent_renewal();
-- +goose StatementBegin
CREATE FUNCTION move_agent_renewal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE agent_identities i SET generation = i.generation WHERE i.node_id = NEW.node_id AND i.generation = NEW.generation;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER agent_certificates_renewal AFTER UPDATE OF not_before, not_after ON agent_certificates FOR EACH ROW EXECUTE FUNCTION move_agent_renewal();
UPDATE agent_identities SET generation = generation;
CREATE INDEX agent_identities_renewal ON agent_identities (renew_at) WHERE locked_at IS NULL;
CREATE INDEX agent_identities_locked ON agent_identities (node_id) WHERE locked_at IS NOT NULL;
CREATE INDEX agent_identities_adopted ON agent_identities (node_id) WHERE adopted_at IS NOT NULL;

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
CREATE OR REPLACE VIEW attention_raised AS SELECT * FROM attention;

CREATE OR REPLACE VIEW pxe_attention AS
SELECT 'install_failed'::text AS kind, ('install_failed:' || n.id)::text AS id, n.state_changed_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, n.last_install_error::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n WHERE n.status = 'install_failed'
UNION ALL
-- The list of discovered nodes is nearly at its end (db.MaxDiscovered): soon no new machine is registered.
SELECT 'discovery_full', 'discovery_full:', d.since, '', '', '', '', '', '', '', '', '', '', d.nodes || ' nodes await approval', '', '', false, false
FROM (SELECT count(*) AS nodes, max(created_at) AS since FROM nodes WHERE status = 'discovered') d WHERE d.nodes >= 900
UNION ALL
-- Nodes whose erasure or migration nobody works on: the job was cancelled, and no state leads back.
SELECT 'node_stuck', 'node_stuck:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    CASE n.status WHEN 'deprovisioning' THEN 'no job erases the node' ELSE 'no job replaces the hardware of the node' END,
    CASE n.status WHEN 'deprovisioning' THEN 'begin again with "slipway node deprovision ' || n.hostname || '"; if it is erased already, set it retired'
        ELSE 'begin again with "slipway node migrate ' || n.hostname || '"; if its hardware is in place already, set it active' END,
    '', false, false
FROM nodes n
WHERE n.status IN ('deprovisioning', 'migrating') AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
    AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- What a job boots has failed and was not begun again: the job waits for it until its deadline.
SELECT 'install_failed', 'install_failed:' || n.id, p.seen_at, n.site_id, n.id, n.hostname, '', p.netboot_job_id, '', '', n.status, '', '',
    n.last_install_error, '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id
WHERE n.status IN ('deprovisioning', 'migrating') AND p.netboot_purpose <> '' AND n.last_install_error <> '' AND p.started_at IS NULL
UNION ALL
-- A migration that waits for somebody to name the new hardware.
SELECT 'hardware_wanted', 'hardware_wanted:' || n.id, j.updated_at, n.site_id, n.id, n.hostname, '', j.id, j.kind, '', n.status, j.stage, '',
    'the migration waits for the new hardware to be named', '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id JOIN jobs j ON j.node_id = n.id AND j.status = 'running' AND j.stage = 'replace_hardware'
WHERE n.status = 'migrating' AND p.planned_hardware IS NULL
UNION ALL
-- No state of a PXE node says that its agent went silent, as offline does for one of MAAS.
SELECT 'agent_silent', 'agent_silent:' || n.id, h.received_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is in service and its agent was last heard ' || to_char(h.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    '', '', false, false
FROM pxe_nodes p JOIN nodes n ON n.id = p.node_id JOIN heartbeats h ON h.node_id = p.node_id
    JOIN agent_identities i ON i.node_id = p.node_id AND i.locked_at IS NULL
WHERE n.status = 'active' AND h.received_at < now() - interval '10 minutes';

CREATE OR REPLACE VIEW agent_attention AS
-- The agent should have renewed: of its certificate's life less than a fifth is left, or nothing.
SELECT 'agent_certificate_ends'::text AS kind, ('agent_certificate_ends:' || n.id)::text AS id,
    i.renew_at::timestamptz AS since, n.site_id::text AS site_id, n.id::text AS node_id, n.hostname::text AS hostname,
    ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, n.status::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    ('the agent''s certificate ' || CASE WHEN c.not_after > now() THEN 'ends at ' ELSE 'ended at ' END
        || to_char(c.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' and was not renewed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM agent_identities i JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NULL AND n.status IN ('active', 'offline', 'quarantined', 'draining', 'installed')
    AND i.renew_at < now()
UNION ALL
-- One line for all of them: it is one restore or failover that they are the sign of. Each is gone when the agent renews as usual.
SELECT 'agent_certificate_adopted', 'agent_certificate_adopted:', a.since, '', '', '', '', '', '', '', '', '', '',
    a.agents || CASE a.agents WHEN 1 THEN ' agent has a certificate' ELSE ' agents have certificates' END || ' that the database did not know: ' || a.names
        || CASE WHEN a.agents > 5 THEN ', ...' ELSE '' END, '', '', false, false
FROM (SELECT count(*) AS agents, min(i.adopted_at) AS since, array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') AS names
    FROM agent_identities i JOIN nodes n ON n.id = i.node_id WHERE i.adopted_at IS NOT NULL AND n.status <> 'deleted') a
WHERE a.agents > 0
UNION ALL
-- Somebody shows a certificate that is refused. It is gone a day after the last time, or when the node enrols.
SELECT 'agent_certificate_refused', 'agent_certificate_refused:' || r.node_id || ':' || r.kind, r.first_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    r.detail || '; refused ' || r.refused || CASE r.refused WHEN 1 THEN ' time' ELSE ' times' END || ', the last time from '
        || CASE r.address WHEN '' THEN 'an unknown address' ELSE r.address END, '', '', false, false
FROM agent_refusals r JOIN nodes n ON n.id = r.node_id
WHERE r.last_at > now() - interval '1 day' AND n.status <> 'deleted';

-- +goose Down
CREATE OR REPLACE VIEW agent_attention AS
-- The agent should have renewed: of its certificate's life less than a fifth is left, or nothing.
SELECT 'agent_certificate_ends'::text AS kind, ('agent_certificate_ends:' || n.id)::text AS id,
    (c.not_after - (c.not_after - c.not_before) / 5)::timestamptz AS since, n.site_id::text AS site_id, n.id::text AS node_id, n.hostname::text AS hostname,
    ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, n.status::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    ('the agent''s certificate ' || CASE WHEN c.not_after > now() THEN 'ends at ' ELSE 'ended at ' END
        || to_char(c.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' and was not renewed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM agent_identities i JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NULL AND n.status IN ('active', 'offline', 'quarantined', 'draining', 'installed')
    AND now() > c.not_after - (c.not_after - c.not_before) / 5
UNION ALL
-- One line for all of them: it is one restore or failover that they are the sign of. Each is gone when the agent renews as usual.
SELECT 'agent_certificate_adopted', 'agent_certificate_adopted:', a.since, '', '', '', '', '', '', '', '', '', '',
    a.agents || CASE a.agents WHEN 1 THEN ' agent has a certificate' ELSE ' agents have certificates' END || ' that the database did not know: ' || a.names
        || CASE WHEN a.agents > 5 THEN ', ...' ELSE '' END, '', '', false, false
FROM (SELECT count(*) AS agents, min(i.adopted_at) AS since, array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') AS names
    FROM agent_identities i JOIN nodes n ON n.id = i.node_id WHERE i.adopted_at IS NOT NULL AND n.status <> 'deleted') a
WHERE a.agents > 0
UNION ALL
-- Somebody shows a certificate that is refused. It is gone a day after the last time, or when the node enrols.
SELECT 'agent_certificate_refused', 'agent_certificate_refused:' || r.node_id || ':' || r.kind, r.first_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    r.detail || '; refused ' || r.refused || CASE r.refused WHEN 1 THEN ' time' ELSE ' times' END || ', the last time from '
        || CASE r.address WHEN '' THEN 'an unknown address' ELSE r.address END, '', '', false, false
FROM agent_refusals r JOIN nodes n ON n.id = r.node_id
WHERE r.last_at > now() - interval '1 day' AND n.status <> 'deleted';
DROP INDEX agent_identities_adopted, agent_identities_locked, agent_identities_renewal;
DROP TRIGGER agent_certificates_renewal ON agent_certificates;
DROP TRIGGER agent_identities_renewal ON agent_identities;
DROP FUNCTION move_agent_renewal, set_agent_renewal;
ALTER TABLE agent_identities DROP COLUMN renew_at;

CREATE OR REPLACE VIEW pxe_attention AS
SELECT 'install_failed'::text AS kind, ('install_failed:' || n.id)::text AS id, n.state_changed_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, n.last_install_error::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n WHERE n.status = 'install_failed'
UNION ALL
-- The list of discovered nodes is nearly at its end (db.MaxDiscovered): soon no new machine is registered.
SELECT 'discovery_full', 'discovery_full:', d.since, '', '', '', '', '', '', '', '', '', '', d.nodes || ' nodes await approval', '', '', false, false
FROM (SELECT count(*) AS nodes, max(created_at) AS since FROM nodes WHERE status = 'discovered') d WHERE d.nodes >= 900
UNION ALL
-- Nodes whose erasure or migration nobody works on: the job was cancelled, and no state leads back.
SELECT 'node_stuck', 'node_stuck:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    CASE n.status WHEN 'deprovisioning' THEN 'no job erases the node' ELSE 'no job replaces the hardware of the node' END,
    CASE n.status WHEN 'deprovisioning' THEN 'begin again with "slipway node deprovision ' || n.hostname || '"; if it is erased already, set it retired'
        ELSE 'begin again with "slipway node migrate ' || n.hostname || '"; if its hardware is in place already, set it active' END,
    '', false, false
FROM nodes n
WHERE n.status IN ('deprovisioning', 'migrating') AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
    AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- What a job boots has failed and was not begun again: the job waits for it until its deadline.
SELECT 'install_failed', 'install_failed:' || n.id, p.seen_at, n.site_id, n.id, n.hostname, '', p.netboot_job_id, '', '', n.status, '', '',
    n.last_install_error, '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id
WHERE n.status IN ('deprovisioning', 'migrating') AND p.netboot_purpose <> '' AND n.last_install_error <> '' AND p.started_at IS NULL
UNION ALL
-- A migration that waits for somebody to name the new hardware.
SELECT 'hardware_wanted', 'hardware_wanted:' || n.id, j.updated_at, n.site_id, n.id, n.hostname, '', j.id, j.kind, '', n.status, j.stage, '',
    'the migration waits for the new hardware to be named', '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id JOIN jobs j ON j.node_id = n.id AND j.status = 'running' AND j.stage = 'replace_hardware'
WHERE n.status = 'migrating' AND p.planned_hardware IS NULL
UNION ALL
-- No state of a PXE node says that its agent went silent, as offline does for one of MAAS.
SELECT 'agent_silent', 'agent_silent:' || n.id, h.received_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is in service and its agent was last heard ' || to_char(h.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    '', '', false, false
FROM nodes n JOIN heartbeats h ON h.node_id = n.id JOIN agent_identities i ON i.node_id = n.id AND i.locked_at IS NULL
WHERE n.lifecycle = 'pxe' AND n.status = 'active' AND h.received_at < now() - interval '10 minutes';

CREATE OR REPLACE VIEW attention_raised AS
SELECT t.* FROM attention t
WHERE t.kind <> 'agent_locked' OR NOT EXISTS (SELECT 1 FROM agent_identities i WHERE i.node_id = t.node_id AND i.replaced);
CREATE OR REPLACE VIEW attention AS
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
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_job_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('job', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of job % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('job', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER TABLE jobs DROP COLUMN state_changed_at;
