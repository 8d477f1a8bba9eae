-- What must hold in the database whatever has happened. Each query returns the rows that are wrong: a job id or a node id (or NULL) and a sentence.

-- name: one_live_job_a_node
SELECT node_id, 'the node has ' || count(*) || ' live jobs' FROM jobs
WHERE status NOT IN ('completed', 'reconciled', 'cancelled') AND node_id IS NOT NULL GROUP BY node_id HAVING count(*) > 1;

-- name: node_follows_its_job
SELECT n.id, 'the node is ' || n.status || ' and its job ' || j.status FROM nodes n
JOIN LATERAL (SELECT * FROM jobs WHERE node_id = n.id ORDER BY id DESC LIMIT 1) j ON j.kind = 'onboarding'
WHERE (j.status IN ('completed', 'reconciled')) <> (n.status IN ('active', 'offline')) OR (j.status = 'cancelled' AND n.status = 'enrolling');

-- name: decommissioned_nodes_follow_their_job
SELECT n.id, 'the node is ' || n.status || ' after ' || (j.input ->> 'mode') || ', which is ' || j.status FROM nodes n
JOIN LATERAL (SELECT * FROM jobs WHERE node_id = n.id ORDER BY id DESC LIMIT 1) j ON j.kind IN ('decommission', 'node_operation')
WHERE j.status = 'completed' AND n.status <> ALL (CASE j.input ->> 'mode'
    WHEN 'full_decommission' THEN ARRAY['deleted'] WHEN 'remove' THEN ARRAY['deleted'] WHEN 'drain' THEN ARRAY['retired'] WHEN 'retire' THEN ARRAY['retired']
    WHEN 'deprovision' THEN ARRAY['retired'] WHEN 'migrate' THEN ARRAY['active']
    ELSE ARRAY['offline', 'active'] END);

-- name: no_node_is_left_between
SELECT n.id, 'the node is ' || n.status || ' and no live job owns it' FROM nodes n
WHERE n.status IN ('draining', 'removing') AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.kind IN ('decommission', 'node_operation')
    AND j.status NOT IN ('completed', 'reconciled', 'cancelled'));

-- name: only_live_jobs_boot_nodes
SELECT p.node_id, 'a netboot is armed by job ' || p.netboot_job_id || ', which is ' || coalesce(j.status, 'gone') FROM pxe_nodes p
LEFT JOIN jobs j ON j.id = p.netboot_job_id
WHERE p.netboot_workflow_id IS NOT NULL AND (j.id IS NULL OR j.status IN ('completed', 'reconciled', 'cancelled'));

-- name: retired_pxe_nodes_are_shut_out
SELECT n.id, 'the node is retired and its agent may still speak, or enrol' FROM nodes n
WHERE n.lifecycle = 'pxe' AND n.status = 'retired' AND (EXISTS (SELECT FROM agent_identities a WHERE a.node_id = n.id AND a.locked_at IS NULL)
    OR EXISTS (SELECT FROM enrollment_tokens e WHERE e.node_id = n.id AND e.used_at IS NULL AND e.revoked_at IS NULL));

-- name: deleted_nodes_cannot_come_back
SELECT n.id, 'the node is deleted and its agent may still speak, or enrol' FROM nodes n
WHERE n.status = 'deleted' AND (EXISTS (SELECT FROM agent_identities a WHERE a.node_id = n.id AND a.locked_at IS NULL)
    OR EXISTS (SELECT FROM enrollment_tokens e WHERE e.node_id = n.id AND e.used_at IS NULL AND e.revoked_at IS NULL));

-- name: deleted_nodes_have_no_credential
SELECT n.id, 'the node is deleted and has ' || concat_ws(', ', (SELECT 'BMC ' || b.id FROM bmcs b WHERE b.node_id = n.id),
    nullif('a host key', CASE WHEN n.ssh_host_key = '' THEN 'a host key' END), s.names) FROM nodes n
JOIN LATERAL (SELECT string_agg(v.name, ', ') AS names FROM secret_versions v WHERE v.name LIKE 'nodes/' || n.id || '/%'
    OR v.name LIKE 'userdata/%' AND split_part(v.name, '/', 2) IN (SELECT j.id FROM jobs j WHERE j.node_id = n.id)) s ON true
WHERE n.status = 'deleted' AND (n.ssh_host_key <> '' OR s.names IS NOT NULL OR EXISTS (SELECT FROM bmcs b WHERE b.node_id = n.id));

-- name: no_tenant_outlives_the_node_s_service
SELECT id, 'the node is ' || status || ' with allocation ' || allocation_id FROM nodes WHERE status IN ('retired', 'removing', 'deleted') AND allocation_id IS NOT NULL;

-- name: no_node_goes_back_dirty
SELECT id, 'the node became active at ' || state_changed_at || ', and its tenant had left at ' || tenant_left_at FROM nodes
WHERE lifecycle = 'maas' AND status = 'active' AND allocation_id IS NULL AND state_changed_at > tenant_left_at;

-- name: ended_jobs_have_no_open_task
SELECT j.id, 'the job is ' || j.status || ' and task ' || t.id || ' (' || t.kind || ') is ' || t.status FROM node_tasks t JOIN jobs j ON j.id = t.job_id
WHERE j.status IN ('completed', 'reconciled', 'cancelled') AND t.status IN ('queued', 'dispatched');

-- name: no_task_is_uncertain
SELECT coalesce(t.job_id, t.node_id), 'task ' || t.id || ' (' || t.kind || ') is ' || t.status || ': ' || t.message FROM node_tasks t LEFT JOIN jobs j ON j.id = t.job_id
WHERE (t.status = 'uncertain' OR t.status = 'expired' AND j.status IS DISTINCT FROM 'cancelled') -- a job that is cancelled withdraws what nobody has taken
    AND NOT (j.kind = 'allocation_release' AND t.kind = 'allocation.revoke_user') -- the power proves what the agent does not
    AND NOT (j.kind = 'allocation_provision' AND j.status = 'cancelled'); -- the node is cleaned, or quarantined

-- name: a_job_asks_once
SELECT job_id, count(*) || ' tasks of kind ' || kind || ' in ' || split_part(idempotency_key, '/', 2) || ': '
    || string_agg(concat_ws(' ', status, message, result ->> 'message'), '; ' ORDER BY id) FROM node_tasks
WHERE job_id IS NOT NULL AND split_part(idempotency_key, '/', 2) <> 'prove_login' -- which puts a one-time key in, and takes it out
GROUP BY job_id, kind, split_part(idempotency_key, '/', 2), idempotency_key LIKE '%/undo' -- to undo it is to ask for something else
HAVING count(*) FILTER (WHERE NOT (kind = 'allocation.revoke_user' AND status = 'failed')) > 1; -- one more attempt of a release asks again what failed

-- name: ends_of_tasks_were_told
SELECT t.job_id, 'nobody told the workflow that task ' || t.id || ' (' || t.kind || ') is ' || t.status FROM node_tasks t
WHERE t.told_at IS NULL AND t.waiter_activity_id <> '' AND t.status NOT IN ('queued', 'dispatched');

-- name: one_certificate_a_run
SELECT run_id, 'the run has ' || count(*) || ' certificates' FROM certificates GROUP BY run_id HAVING count(*) > 1;

-- name: certificates_are_chained
SELECT c.node_id, 'certificate ' || c.id || ' does not follow on its predecessor' FROM certificates c
LEFT JOIN certificates p ON p.node_id = c.node_id AND p.sequence = c.sequence - 1
WHERE c.sequence > 1 AND (p.hash IS NULL OR p.hash <> c.previous_hash);

-- name: completed_decommissions_are_certified
SELECT j.id, (j.input ->> 'mode') || ' is completed without a certificate' FROM jobs j
WHERE j.kind = 'decommission' AND j.status = 'completed' AND NOT EXISTS (SELECT FROM certificates c WHERE c.run_id = j.id);

-- name: stage_ordinals_are_complete
SELECT job_id, 'stages ' || min(ordinal) || ' to ' || max(ordinal) || ' in ' || count(*) || ' rows' FROM job_stages
GROUP BY job_id HAVING min(ordinal) <> 1 OR max(ordinal) <> count(*);

-- name: started_jobs_have_stages
SELECT id, 'the job is ' || status || ' without stages' FROM jobs j
WHERE seq > 0 AND NOT EXISTS (SELECT FROM job_stages s WHERE s.job_id = j.id);

-- name: stages_of_completed_jobs_are_done
SELECT j.id, 'the job is ' || j.status || ' and stage ' || s.name || ' is ' || s.state FROM jobs j JOIN job_stages s ON s.job_id = j.id
WHERE j.status IN ('completed', 'reconciled') AND s.state NOT IN ('succeeded', 'skipped', 'adopted');

-- name: no_stage_of_an_ended_job_runs
SELECT j.id, 'the job is ' || j.status || ' and stage ' || s.name || ' runs' FROM jobs j JOIN job_stages s ON s.job_id = j.id
WHERE j.status IN ('completed', 'reconciled', 'cancelled', 'failed_retryable', 'failed_manual_intervention') AND s.state = 'running';

-- name: at_most_one_stage_runs
SELECT job_id, count(*) || ' stages run at a time' FROM job_stages WHERE state = 'running' GROUP BY job_id HAVING count(*) > 1;

-- name: every_try_is_logged
SELECT job_id, 'stage ' || name || ' was tried and the action log does not say so' FROM job_stages s
WHERE attempts > 0 AND NOT EXISTS (SELECT FROM action_logs a WHERE a.job_id = s.job_id AND a.stage = s.name);

-- name: no_try_of_a_resting_job_is_open
SELECT j.id, 'the job is ' || j.status || ' and a try of ' || a.stage || ' is in progress' FROM jobs j JOIN action_logs a ON a.job_id = j.id
WHERE j.status IN ('completed', 'reconciled', 'cancelled', 'failed_retryable', 'failed_manual_intervention') AND a.status = 'in_progress';

-- name: every_action_is_accounted_for
SELECT a.job_id, 'action ' || a.action_type || ' is ' || a.status || ', of run "' || coalesce(a.metadata ->> 'correlation_id', '') || '" and class "' || a.failure_class || '"'
FROM action_logs a
WHERE coalesce(a.metadata ->> 'correlation_id', '') = ''
    OR a.status = 'failed' AND a.failure_class = '' AND a.error_message = '';

-- name: actions_say_what_they_did
SELECT a.job_id, 'action ' || a.action_type || ' succeeded and says only ' || a.metadata FROM action_logs a
WHERE a.status = 'success' AND NOT a.metadata ?& CASE a.action_type
    WHEN 'PROVIDER_CREATE' THEN '{server_id,zone}' WHEN 'PROVIDER_GET_IP' THEN '{server_id,ip_address}'
    WHEN 'WORKER_SSH_INSTALL' THEN '{server_id,ip_address,phases,last_phase,ssh_exit_status,agent_info}'
    WHEN 'create_or_find_in_maas' THEN '{server_id}' WHEN 'wait_for_agent_enrollment' THEN '{agent_info}' ELSE '{}' END::text[]
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = a.job_id AND j.adopted);

-- name: deployed_nodes_have_their_address
SELECT n.id, 'the node is active and MAAS deployed it, and it has no address of MAAS' FROM nodes n
WHERE n.status = 'active' AND n.maas_system_id IS NOT NULL AND (n.ip_addresses = '{}' OR n.ip_addresses_source <> 'maas' OR n.ip_addresses_at IS NULL)
    AND EXISTS (SELECT FROM job_stages s JOIN jobs j ON j.id = s.job_id WHERE j.node_id = n.id AND s.name = 'wait_for_deployed' AND s.state = 'succeeded');

-- name: finished_stages_have_times
SELECT job_id, 'stage ' || name || ' is ' || state || ' without its times' FROM job_stages
WHERE state IN ('succeeded', 'failed') AND (started_at IS NULL OR finished_at IS NULL OR finished_at < started_at);

-- name: ended_jobs_have_an_end
SELECT id, 'the job is ' || status || ' and finished_at is ' || coalesce(finished_at::text, 'empty') FROM jobs
WHERE (status IN ('completed', 'reconciled', 'cancelled')) <> (finished_at IS NOT NULL);

-- name: completed_jobs_are_at_the_full
SELECT id, 'completed at ' || progress_percent || ' %' FROM jobs WHERE status IN ('completed', 'reconciled') AND progress_percent <> 100;

-- name: completed_jobs_have_no_failure
SELECT id, 'the job is ' || status || ' with failure ' || failure_class FROM jobs WHERE status = 'completed' AND failure_class <> '';

-- name: parked_jobs_say_why
SELECT id, 'the job is ' || status || ' without a class or a next action' FROM jobs
WHERE status IN ('failed_retryable', 'failed_manual_intervention') AND (failure_class = '' OR recommended_action = '');

-- name: the_outbox_is_empty
SELECT job_id, 'outbox row ' || id || ' (' || kind || ') is not done: ' || last_error FROM outbox WHERE done_at IS NULL;

-- name: events_have_their_order
SELECT NULL::text, 'the last of ' || count(*) || ' events has cursor ' || coalesce(max(cursor), 0) || ', the counter stands at ' || (SELECT last FROM event_cursor)
FROM events HAVING coalesce(max(cursor), 0) <> (SELECT last FROM event_cursor) OR count(*) <> coalesce(max(cursor), 0);

-- name: one_good_token_a_node
SELECT node_id, count(*) || ' enrolment tokens are good at a time' FROM enrollment_tokens
WHERE used_at IS NULL AND revoked_at IS NULL GROUP BY node_id HAVING count(*) > 1;

-- name: active_nodes_have_an_identity
SELECT n.id, 'the node is active without an agent that may speak' FROM nodes n
WHERE n.status = 'active' AND NOT EXISTS (SELECT FROM agent_identities a WHERE a.node_id = n.id AND a.locked_at IS NULL);

-- name: the_identity_is_the_newest_certificate
SELECT a.node_id, 'the identity counts generation ' || a.generation || ' of ' || max(c.generation) FROM agent_identities a
JOIN agent_certificates c USING (node_id) GROUP BY a.node_id, a.generation HAVING a.generation <> max(c.generation);

-- name: no_sealed_user_data_outlives_its_job
SELECT j.id, 'sealed user-data ' || s.name || ' is still there' FROM secret_versions s JOIN jobs j ON split_part(s.name, '/', 2) = j.id
WHERE s.name LIKE 'userdata/%' AND j.status IN ('completed', 'reconciled', 'cancelled');

-- name: one_node_a_machine
SELECT NULL::text, 'machine ' || maas_system_id || ' belongs to ' || count(*) || ' nodes' FROM nodes
WHERE maas_system_id IS NOT NULL AND status <> 'deleted' GROUP BY maas_system_id HAVING count(*) > 1;

-- name: no_bmc_login_was_stopped
SELECT node_id, 'logins to BMC ' || id || ' are stopped: ' || auth_blocked_reason FROM bmcs WHERE auth_blocked_at IS NOT NULL;

-- name: jobs_and_their_audit_agree
SELECT j.id, 'the job is ' || j.status || ', its last audited state ' || a.to_state FROM jobs j
JOIN LATERAL (SELECT to_state FROM audit_log WHERE resource_kind = 'job' AND resource_id = j.id AND kind = 'transition' ORDER BY seq DESC LIMIT 1) a ON true
WHERE a.to_state <> j.status;

-- name: nodes_and_their_audit_agree
SELECT n.id, 'the node is ' || n.status || ', its last audited state ' || a.to_state FROM nodes n
JOIN LATERAL (SELECT to_state FROM audit_log WHERE resource_kind = 'node' AND resource_id = n.id AND kind = 'transition' ORDER BY seq DESC LIMIT 1) a ON true
WHERE a.to_state <> n.status;

-- name: audited_transitions_join
SELECT resource_id, 'a transition from ' || from_state || ' follows one to ' || before FROM (
    SELECT resource_id, from_state, lag(to_state) OVER (PARTITION BY resource_kind, resource_id ORDER BY seq) AS before
    FROM audit_log WHERE kind = 'transition') t
WHERE before IS NOT NULL AND before <> from_state;

-- name: audit_sequence_has_no_gap
SELECT resource_id, 'the chain holds ' || count(*) || ' rows and ends at ' || max(seq) FROM audit_log
GROUP BY resource_kind, resource_id HAVING count(*) <> max(seq);

-- name: one_live_job_a_resource
SELECT min(id), resource_kind || ' ' || resource_id || ' has ' || count(*) || ' live jobs' FROM jobs
WHERE status NOT IN ('completed', 'reconciled', 'cancelled') AND resource_kind <> '' GROUP BY resource_kind, resource_id HAVING count(*) > 1;

-- name: one_occupant_a_node
SELECT node_id, 'the node has ' || count(*) || ' occupants' FROM allocations
WHERE node_id IS NOT NULL AND node_released_at IS NULL GROUP BY node_id HAVING count(*) > 1;

-- name: pointer_names_the_occupant
SELECT n.id, 'the node points to ' || coalesce(n.allocation_id, 'nobody') || ', its occupant is ' || coalesce(a.id, 'nobody') FROM nodes n
LEFT JOIN allocations a ON a.node_id = n.id AND a.node_released_at IS NULL
WHERE n.allocation_id IS DISTINCT FROM a.id;

-- name: no_claimable_node_is_dirty
SELECT n.id, 'the node can be claimed, and the last certificate is of ' || coalesce(c.at::text, 'never') || ', its tenant lost it at ' || a.at FROM claimable_nodes n
JOIN LATERAL (SELECT max(o.access_ended_at) AS at FROM allocations o WHERE o.node_id = n.id AND o.access_given_at IS NOT NULL) a ON true
LEFT JOIN LATERAL (SELECT max(issued_at) AS at FROM certificates c WHERE c.node_id = n.id) c ON true
WHERE a.at IS NOT NULL AND (c.at IS NULL OR c.at < a.at);

-- name: no_time_is_charged_without_access
SELECT a.node_id, 'allocation ' || a.id || ' is charged from ' || a.start_time || ' and its tenant had access from ' || coalesce(a.access_given_at::text, 'never') FROM allocations a
WHERE a.start_time IS NOT NULL AND (a.access_given_at IS NULL OR a.start_time < a.access_given_at
    OR a.access_ended_at IS NULL AND a.status = 'released' OR a.access_ended_at < a.start_time);

-- name: access_is_stored_before_keys_are_sent
SELECT a.node_id, 'a key of allocation ' || a.id || ' was accepted at ' || k.accepted_at || ', and its tenant had access from ' || coalesce(a.access_given_at::text, 'never')
FROM allocations a JOIN allocation_keys k ON k.project_id = a.project_id AND k.allocation_id = a.id
WHERE k.accepted_at IS NOT NULL AND (a.access_given_at IS NULL OR k.accepted_at < a.access_given_at);

-- name: no_record_charges_time_without_access
SELECT a.node_id, 'allocation ' || a.id || ' is ' || a.status || ', its tenant had access from ' || coalesce(a.access_given_at::text, 'never') || ' to '
    || coalesce(a.access_ended_at::text, 'now') || ', and its record charges from ' || coalesce(u.start_time::text, 'never') || ' to ' || coalesce(u.end_time::text, 'now')
FROM allocations a LEFT JOIN usage_records u ON u.project_id = a.project_id AND u.allocation_id = a.id
WHERE u.id IS NULL OR u.start_time IS DISTINCT FROM a.start_time
    OR u.start_time IS NOT NULL AND u.end_time IS NULL AND a.status IN ('released', 'failed', 'release_failed')
    -- A minute may be charged before the end is known, and each tenancy costs ten at least.
    OR u.end_time > greatest(a.access_ended_at + interval '1 minute', u.start_time + interval '10 minutes');

-- name: no_hold_outlives_its_charge
SELECT a.node_id, 'allocation ' || a.id || ' is ' || a.status || ' and holds ' || h.amount_minor || ' back' FROM allocations a
JOIN balance_holds h ON h.project_id = a.project_id AND h.allocation_id = a.id
WHERE h.freed_at IS NULL AND a.status IN ('released', 'failed', 'release_failed');

-- name: moving_allocations_have_a_job
SELECT a.node_id, 'allocation ' || a.id || ' is ' || a.status || ' and no live job moves it' FROM allocations a
WHERE a.status IN ('requested', 'provisioning', 'releasing', 'release_failed') AND NOT EXISTS (SELECT FROM jobs j
    WHERE j.resource_id = a.id AND j.status NOT IN ('completed', 'reconciled', 'cancelled'));

-- name: failed_releases_are_parked
SELECT j.id, 'allocation ' || a.id || ' is ' || a.status || ' and its job ' || j.status FROM allocations a
JOIN jobs j ON j.resource_id = a.id AND j.kind = 'allocation_release' AND j.status NOT IN ('completed', 'reconciled', 'cancelled')
WHERE (a.status = 'release_failed') <> (j.status IN ('failed_retryable', 'failed_manual_intervention'));

-- name: released_access_is_proven
SELECT a.node_id, 'allocation ' || a.id || ' is released as ' || a.outcome || ' with access ' || a.access FROM allocations a
WHERE a.outcome = 'released' AND a.access_given_at IS NOT NULL AND a.access <> 'revoked' OR a.status = 'failed' AND a.access_given_at IS NOT NULL;

-- name: allocations_and_their_audit_agree
SELECT a.node_id, 'allocation ' || a.id || ' is ' || a.status || ', its last audited state ' || l.to_state FROM allocations a
JOIN LATERAL (SELECT to_state FROM audit_log WHERE resource_kind = 'allocation' AND resource_id = a.id AND kind = 'transition' ORDER BY seq DESC LIMIT 1) l ON true
WHERE l.to_state <> a.status;

-- name: one_live_run_a_machine
SELECT min(job_id), 'machine ' || machine_id || ' has ' || count(*) || ' live runs' FROM runs WHERE finished_at IS NULL GROUP BY machine_id HAVING count(*) > 1;

-- name: machine_points_to_its_run
SELECT coalesce(r.job_id, m.node_id), 'machine ' || m.id || ' is ' || m.status || ' with run ' || coalesce(m.active_run_id, 'none') || ', its live run is ' || coalesce(r.id, 'none')
FROM machines m LEFT JOIN runs r ON r.machine_id = m.id AND r.finished_at IS NULL
WHERE m.active_run_id IS DISTINCT FROM r.id OR (m.status = 'PROVISIONING') <> (r.id IS NOT NULL);

-- name: machine_follows_its_last_run
SELECT r.job_id, 'machine ' || m.id || ' is ' || m.status || ' after run ' || r.id || ', which is ' || r.status FROM machines m
JOIN LATERAL (SELECT * FROM runs WHERE machine_id = m.id ORDER BY created_at DESC, id DESC LIMIT 1) r ON r.finished_at IS NOT NULL
WHERE (r.status IN ('FAILED', 'CANCELED') AND m.status <> 'MAINTENANCE' OR r.status = 'SUCCEEDED' AND m.status = 'MAINTENANCE')
    -- A machine has followed its node since, where a later case had the node.
    AND coalesce((SELECT a.name FROM audit_log a WHERE a.resource_kind = 'machine' AND a.resource_id = m.id AND a.kind = 'transition' ORDER BY a.seq DESC LIMIT 1), '')
        NOT IN ('set_factory_ready', 'set_ready', 'set_in_service', 'set_maintenance', 'retire');

-- name: run_follows_its_job
SELECT j.id, 'run ' || r.id || ' is ' || r.status || ' and its job ' || j.status FROM runs r JOIN jobs j ON j.id = r.job_id
WHERE r.status <> ALL (CASE j.status WHEN 'pending' THEN ARRAY['PENDING'] WHEN 'completed' THEN ARRAY['SUCCEEDED'] WHEN 'reconciled' THEN ARRAY['SUCCEEDED']
    WHEN 'cancelled' THEN ARRAY['FAILED', 'CANCELED'] ELSE ARRAY['RUNNING'] END);

-- name: steps_run_in_order
SELECT r.job_id, 'run ' || r.id || ' is ' || r.status || ' with steps ' || s.states FROM runs r
JOIN LATERAL (SELECT string_agg(e.row ->> 'state', ',' ORDER BY e.n) AS states FROM jsonb_array_elements(r.stages) WITH ORDINALITY AS e (row, n)) s ON true
WHERE r.finished_at IS NOT NULL AND s.states !~ '^((succeeded|skipped|adopted|compensated|undone),?)*(failed,?)?(pending,?)*$'
    OR r.status = 'SUCCEEDED' AND s.states ~ '(failed|pending|running|compensated)';

-- name: runs_and_their_audit_agree
SELECT r.job_id, 'run ' || r.id || ' is ' || r.status || ', its last audited state ' || a.to_state FROM runs r
JOIN LATERAL (SELECT to_state FROM audit_log WHERE resource_kind = 'run' AND resource_id = r.id AND kind = 'transition' ORDER BY seq DESC LIMIT 1) a ON true
WHERE a.to_state <> r.status;

-- name: output_is_stored_once
SELECT r.job_id, 'run ' || l.run_id || ' has ' || count(*) || ' chunks of ' || l.stream || ' of step ' || l.step || ' at ' || l.next FROM run_logs l JOIN runs r ON r.id = l.run_id
GROUP BY r.job_id, l.run_id, l.step, l.attempt, l.stream, l.next HAVING count(*) > 1;
