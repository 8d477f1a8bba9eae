-- name: InsertAllocation :one
-- The allocation, its creation audit row and its event in one statement.
WITH made AS (
    INSERT INTO allocations (id, project_id, sku_id, site_id, name, tags, status, requested_by, network, queue_deadline_at, expires_at)
    VALUES (@id, @project_id, @sku_id, @site_id, @name, @tags, @status, @requested_by, @network, @queue_deadline_at, @expires_at)
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'allocation', a.id, 'transition', 'create', '', a.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, a.version
    FROM made a
), told AS (
    INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
    SELECT 'event', a.project_id, @event_id::text, 'allocation', a.id, @event_type::text, @payload FROM made a
)
SELECT version FROM made;

-- name: InsertKeys :exec
INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key)
SELECT @project_id, @allocation_id, unnest(@fingerprints::text[]), unnest(@public_keys::text[]);

-- name: Allocation :one
SELECT * FROM allocations WHERE id = @id;

-- name: LockAllocation :one
SELECT * FROM allocations WHERE id = @id FOR NO KEY UPDATE;

-- name: AllocationOfNode :one
SELECT * FROM allocations WHERE node_id = @node_id::text AND node_released_at IS NULL;

-- name: OccupantsOf :many
-- Who occupies each of some nodes.
SELECT node_id::text AS node_id, id AS allocation_id, status FROM allocations
WHERE node_id = ANY (@node_ids::text[]) AND node_released_at IS NULL;

-- name: ListAllocations :many
SELECT * FROM allocations
WHERE (@after::text = '' OR id < @after::text)
  AND (@project_id::text = '' OR project_id = @project_id::text)
  AND (@sku_id::text = '' OR sku_id = @sku_id::text)
  AND (@site_id::text = '' OR site_id = @site_id::text)
  AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (cardinality(@statuses::text[]) = 0 OR status = ANY (@statuses::text[]))
  AND (cardinality(@conditions::text[]) = 0 OR condition = ANY (@conditions::text[]))
  AND (@tags::jsonb = '{}' OR tags @> @tags::jsonb)
  AND (released_at IS NULL OR @released_after::timestamptz IS NULL OR released_at > @released_after::timestamptz)
ORDER BY id DESC LIMIT @max_rows;

-- name: Keys :many
SELECT * FROM allocation_keys WHERE allocation_id = @allocation_id ORDER BY fingerprint;

-- name: RecordKey :execrows
UPDATE allocation_keys SET accepted_at = CASE WHEN @accepted::boolean THEN coalesce(accepted_at, now()) ELSE accepted_at END,
    refused_at = CASE WHEN @accepted::boolean THEN NULL ELSE coalesce(refused_at, now()) END
WHERE allocation_id = @allocation_id AND fingerprint = @fingerprint;

-- name: KeysDue :one
-- Whether an active allocation has keys that a job has to take off its node, or put onto it, and prove: those that no job was created for yet, and after a
-- while those that no job could prove.
SELECT EXISTS (SELECT FROM allocation_keys k JOIN allocations a ON a.project_id = k.project_id AND a.id = k.allocation_id
    WHERE a.id = @id AND a.status = 'active'
      AND (k.withdrawn_at IS NOT NULL AND k.refused_at IS NULL OR k.withdrawn_at IS NULL AND k.added_at IS NOT NULL AND k.accepted_at IS NULL)
      AND (k.tried_at IS NULL OR k.tried_at < now() - make_interval(secs => @again_seconds::float8)));

-- name: CountKeyJobs :one
-- How many jobs for the keys of an allocation were created within a time, and for how long the first of them still counts.
SELECT count(*)::bigint AS jobs, coalesce(extract(epoch FROM min(j.created_at) + make_interval(secs => @within_seconds::float8) - now()), 0)::float8 AS wait_seconds
FROM jobs j WHERE j.resource_kind = 'allocation' AND j.resource_id = @id AND j.kind = 'allocation_keys'
  AND j.created_at > now() - make_interval(secs => @within_seconds::float8);

-- name: AllocationsWithKeysDue :many
-- Allocations of a project, or of all (''), with keys due, that have no live job, and whose node has none. An agent that is silent could do nothing.
SELECT a.id FROM allocations a
WHERE a.status = 'active' AND (@project_id::text = '' OR a.project_id = @project_id::text)
  AND (a.project_id, a.id) IN (SELECT k.project_id, k.allocation_id FROM allocation_keys k
    WHERE (k.withdrawn_at IS NOT NULL AND k.refused_at IS NULL OR k.withdrawn_at IS NULL AND k.added_at IS NOT NULL AND k.accepted_at IS NULL)
      AND (k.tried_at IS NULL OR k.tried_at < now() - make_interval(secs => @again_seconds::float8)))
  AND NOT EXISTS (SELECT FROM jobs j WHERE (j.node_id = a.node_id OR j.resource_kind = 'allocation' AND j.resource_id = a.id)
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND EXISTS (SELECT FROM heartbeats h WHERE h.node_id = a.node_id AND h.received_at > now() - interval '2 minutes')
ORDER BY a.id LIMIT @max_rows;

-- name: MarkKeysTried :exec
UPDATE allocation_keys SET tried_at = clock_timestamp()
WHERE allocation_id = @allocation_id
  AND (withdrawn_at IS NOT NULL AND refused_at IS NULL OR withdrawn_at IS NULL AND added_at IS NOT NULL AND accepted_at IS NULL);

-- name: WithdrawEndedKeys :execrows
-- Keys in force that the project does not have any more: one ended while the allocation that names it was being written.
UPDATE allocation_keys SET withdrawn_at = clock_timestamp(), withdrawn_member = '', refused_at = NULL, tried_at = NULL
WHERE (project_id, allocation_id, fingerprint) IN (
    SELECT k.project_id, k.allocation_id, k.fingerprint FROM allocations a JOIN allocation_keys k ON k.project_id = a.project_id AND k.allocation_id = a.id
    WHERE a.status NOT IN ('released', 'failed') AND k.withdrawn_at IS NULL
      AND NOT EXISTS (SELECT FROM project_ssh_keys p WHERE p.project_id = k.project_id AND p.fingerprint = k.fingerprint)
    ORDER BY k.allocation_id, k.fingerprint LIMIT @max_rows);

-- name: WithdrawOtherKeys :execrows
-- Withdraws the keys in force that are not among those given.
UPDATE allocation_keys k SET withdrawn_at = clock_timestamp(), refused_at = NULL, tried_at = NULL,
    withdrawn_member = coalesce((SELECT p.member_id FROM project_ssh_keys p WHERE p.project_id = k.project_id AND p.fingerprint = k.fingerprint), '')
WHERE k.project_id = @project_id AND k.allocation_id = @allocation_id AND k.withdrawn_at IS NULL AND k.fingerprint <> ALL (@fingerprints::text[]);

-- name: PutKeys :execrows
-- Puts keys in force that are not: a key that was withdrawn begins again.
INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key, added_at)
SELECT @project_id, @allocation_id, unnest(@fingerprints::text[]), unnest(@public_keys::text[]), clock_timestamp()
ON CONFLICT (project_id, allocation_id, fingerprint) DO UPDATE SET added_at = clock_timestamp(), withdrawn_at = NULL, withdrawn_member = '', accepted_at = NULL,
    refused_at = NULL, tried_at = NULL
WHERE allocation_keys.withdrawn_at IS NOT NULL;

-- name: DeleteFormerKeys :execrows
-- Forgets the oldest former keys of an allocation that its node was seen to refuse, but for the newest of them.
DELETE FROM allocation_keys WHERE (project_id, allocation_id, fingerprint) IN (
    SELECT k.project_id, k.allocation_id, k.fingerprint FROM allocation_keys k
    WHERE k.project_id = @project_id AND k.allocation_id = @allocation_id AND k.withdrawn_at IS NOT NULL AND k.refused_at IS NOT NULL
    ORDER BY k.withdrawn_at DESC, k.fingerprint OFFSET @kept::integer);

-- name: MoveAllocation :one
-- The commit point of an allocation: guarded update, audit row and event in one statement. A move that does not set a column keeps it.
WITH moved AS (
    UPDATE allocations SET status = @to_state, updated_at = now(), version = version + 1,
        node_id = coalesce(sqlc.narg('node_id'), node_id), site_id = coalesce(sqlc.narg('site_id'), site_id),
        provisioning_at = CASE WHEN @to_state::text = 'provisioning' THEN now() ELSE provisioning_at END,
        access_given_at = CASE WHEN @to_state::text = 'active' THEN coalesce(access_given_at, now()) ELSE access_given_at END,
        -- What is charged begins when the keys went in, however long the proof of them took.
        -- Who asks for the release between the keys and their proof has used the node too.
        start_time = CASE WHEN @to_state::text = 'active' THEN coalesce(access_given_at, now())
            WHEN @to_state::text = 'releasing' AND release_requested_at IS NOT NULL THEN coalesce(start_time, access_given_at) ELSE start_time END,
        releasing_at = CASE WHEN @to_state::text = 'releasing' THEN coalesce(releasing_at, now()) ELSE releasing_at END,
        release_reason = CASE WHEN @release_reason::text <> '' THEN @release_reason::text ELSE release_reason END,
        charge_capped_at = CASE WHEN @to_state::text IN ('releasing', 'release_failed') THEN coalesce(charge_capped_at, now()) ELSE charge_capped_at END,
        connection = CASE WHEN @to_state::text = 'active' THEN sqlc.narg('connection')::jsonb END,
        image = coalesce(sqlc.narg('image')::jsonb, image),
        outcome = @outcome, failure_code = CASE WHEN @failure_code::text <> '' THEN @failure_code::text ELSE failure_code END,
        failure_message = CASE WHEN @failure_code::text <> '' THEN @failure_message::text ELSE failure_message END,
        certificate_id = coalesce(sqlc.narg('certificate_id'), certificate_id),
        access_ended_at = CASE WHEN @to_state::text = 'released' AND access_given_at IS NOT NULL THEN coalesce(access_ended_at, now()) ELSE access_ended_at END,
        node_released_at = CASE WHEN @to_state::text IN ('released', 'failed') AND node_id IS NOT NULL THEN now() END,
        released_at = CASE WHEN @to_state::text IN ('released', 'failed') THEN now() END
    WHERE allocations.id = @id AND allocations.status = @from_state::text AND allocations.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, node_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'allocation', a.id, a.node_id, 'transition', @name, @from_state::text, a.status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, a.version
    FROM moved a
), told AS (
    INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, node_id, type, payload)
    SELECT 'event', a.project_id, @event_id::text, 'allocation', a.id, a.node_id, @event_type::text, @payload FROM moved a
)
SELECT version FROM moved;

-- name: SetCondition :execrows
UPDATE allocations SET condition = @condition, condition_reason = @reason, condition_since = now(), version = version + 1, updated_at = now()
WHERE id = @id AND status NOT IN ('released', 'failed') AND (condition, condition_reason) IS DISTINCT FROM (@condition, @reason);

-- name: ConditionByFindings :execrows
-- Allocations of a site whose nodes have open findings that only the agent makes: they require maintenance, and those that had such findings do well again.
WITH seen AS (
    SELECT a.id, (SELECT min(f.message) FROM drift_findings f WHERE f.node_id = a.node_id AND f.status = 'open' AND f.detector = ANY (@detectors::text[])
        AND f.streak >= @confirm::integer) AS message
    FROM allocations a WHERE a.site_id = @site_id::text AND a.status = 'active'
)
UPDATE allocations a SET condition = CASE WHEN s.message IS NULL THEN 'ok' ELSE 'maintenance_required' END,
    condition_reason = CASE WHEN s.message IS NULL THEN '' ELSE left('the node reports: ' || s.message, 500) END,
    condition_since = CASE WHEN (a.condition = 'ok') = (s.message IS NULL) THEN a.condition_since ELSE now() END, version = a.version + 1, updated_at = now()
FROM seen s WHERE s.id = a.id AND (s.message IS NOT NULL AND a.condition = 'ok'
    OR s.message IS NULL AND a.condition = 'maintenance_required' AND a.condition_reason LIKE 'the node reports: %');

-- name: ChargesToCap :many
-- Active allocations of before the last restore whose machine MAAS has marked for nobody or for another allocation. The key of the finding names the
-- allocation that was found.
SELECT a.id, a.node_id, (r.began_at - interval '300 seconds')::timestamptz AS capped_at, f.message
FROM (SELECT max(s.began_at) AS began_at FROM restores s) r, allocations a, drift_findings f
WHERE a.site_id = @site_id::text AND a.status = 'active' AND a.charge_capped_at IS NULL AND a.requested_at < r.began_at
  AND f.node_id = a.node_id AND f.status = 'open' AND f.detector = @detector AND f.streak >= @confirm::integer AND f.key LIKE '%/' || a.id
  AND f.last_seen_at > r.began_at
ORDER BY a.requested_at, a.id;

-- name: CountCaps :one
-- Of a site's allocations: how many were capped by a finding within the hour, and how many are charged or were until then.
SELECT count(*) FILTER (WHERE a.charge_capped_at IS NOT NULL)::bigint AS done, count(*)::bigint AS charged
FROM allocations a WHERE a.site_id = @site_id::text
  AND (a.status = 'active' AND a.charge_capped_at IS NULL
    OR a.charge_capped_at IS NOT NULL AND a.updated_at > now() - interval '1 hour' AND EXISTS (SELECT FROM audit_log l
        WHERE l.resource_kind = 'allocation' AND l.resource_id = a.id AND l.kind = 'action' AND l.name = 'cap_charge' AND l.at > now() - interval '1 hour'));

-- name: CapCharge :execrows
-- Their charge ends with what was charged.
UPDATE allocations SET charge_capped_at = @capped_at::timestamptz, version = version + 1, updated_at = now()
WHERE id = @id AND status = 'active' AND charge_capped_at IS NULL;

-- name: SetTags :one
UPDATE allocations SET tags = @tags, name = @name, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: SetConnection :one
UPDATE allocations SET connection = @connection, image = coalesce(sqlc.narg('image')::jsonb, image), version = version + 1, updated_at = now()
WHERE id = @id AND status = 'active' AND connection IS DISTINCT FROM @connection RETURNING *;

-- name: SetNetwork :execrows
UPDATE allocations SET network = @network, version = version + 1, updated_at = now()
WHERE id = @id AND status NOT IN ('released', 'failed') AND network IS DISTINCT FROM @network;

-- name: GiveAccess :execrows
-- Written before the tenant's keys are sent: from then on the node counts as used.
UPDATE allocations SET access_given_at = coalesce(access_given_at, now()), updated_at = now() WHERE id = @id AND status = 'provisioning';

-- name: EndAccess :execrows
-- An access that was proven revoked stays so, and the time of the first proof stays.
UPDATE allocations SET access = CASE WHEN access = 'revoked' THEN access ELSE @access::text END,
    access_ended_at = CASE WHEN @access::text = 'revoked' THEN coalesce(access_ended_at, now()) ELSE access_ended_at END, updated_at = now()
WHERE id = @id AND status IN ('releasing', 'release_failed');

-- name: SetReleaseAttempts :execrows
UPDATE allocations SET release_attempts = greatest(release_attempts, @attempts), updated_at = now() WHERE id = @id AND status IN ('releasing', 'release_failed');

-- name: RequestRelease :execrows
-- The provision job looks at it at every safe point. The first request stays.
UPDATE allocations SET release_requested_at = now(), release_reason = @reason::text, charge_capped_at = coalesce(charge_capped_at, now()),
    version = version + 1, updated_at = now()
WHERE id = @id AND status = 'provisioning' AND release_requested_at IS NULL;

-- name: AllocationsWithoutJob :many
-- Allocations that a job must move on and that have none. A request that is a moment old may be about to get its job.
SELECT a.id FROM allocations a WHERE a.status IN ('requested', 'provisioning', 'releasing') AND a.updated_at < now() - make_interval(secs => @quiet_seconds::float8)
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.resource_kind = 'allocation' AND j.resource_id = a.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
ORDER BY a.id LIMIT @max_rows;

-- name: LiveCounts :many
-- How many allocations of a project count against its quota, by SKU.
SELECT sku_id, count(*)::integer AS nodes FROM allocations
WHERE project_id = @project_id AND status NOT IN ('released', 'failed') GROUP BY sku_id;

-- name: AccountChurn :one
-- What a billing account has in releasing, what it has started since a moment, and the nodes that it had for nothing: given back before they were active,
-- or failed between their keys and the proof of these, which whoever logs in at once can stop, or failed after one of their keys was withdrawn. Each count reads its own index, and never all that the account ever had. A request waits for a node for a day at most.
SELECT (SELECT count(*) FROM projects p JOIN allocations a ON a.project_id = p.id
        WHERE p.billing_account_id = @billing_account_id AND a.status IN ('releasing', 'release_failed'))::integer AS releasing,
    (SELECT count(*) FROM projects p JOIN allocations a ON a.project_id = p.id
        WHERE p.billing_account_id = @billing_account_id AND a.requested_at > @since::timestamptz)::integer AS launched,
    (SELECT count(*) FROM projects p JOIN allocations a ON a.project_id = p.id
        WHERE p.billing_account_id = @billing_account_id AND a.requested_at > @unpaid_since::timestamptz - interval '2 days'
            AND a.start_time IS NULL AND (a.release_requested_at > @unpaid_since::timestamptz
                OR a.access_given_at > @unpaid_since::timestamptz AND a.failure_code <> ''
                OR a.failure_code <> '' AND EXISTS (SELECT FROM allocation_keys k WHERE k.project_id = a.project_id AND k.allocation_id = a.id
                    AND k.withdrawn_at > @unpaid_since::timestamptz)))::integer AS unpaid;

-- name: AllocationsDue :many
-- One whose release was asked for already would keep its place in the list until its job stops. A clock that jumps ahead alone ends nothing.
SELECT id FROM allocations WHERE expires_at <= least(now(), @worker_now::timestamptz) AND status IN ('requested', 'provisioning', 'active') AND release_requested_at IS NULL ORDER BY expires_at, id LIMIT @max_rows;

-- name: PruneAllocations :execrows
-- Deletes what the customer wrote in a batch of allocations that ended before a time, with their keys.
WITH old AS (
    SELECT a.project_id, a.id FROM allocations a WHERE a.released_at < @before::timestamptz AND a.pruned_at IS NULL
    ORDER BY a.released_at LIMIT @max_rows FOR NO KEY UPDATE SKIP LOCKED
), keys AS (
    DELETE FROM allocation_keys k USING old WHERE k.project_id = old.project_id AND k.allocation_id = old.id
), settings AS (
    -- What a node that nothing proves clean since is compared with stays.
    UPDATE node_occupancies o SET firmware_snapshot = NULL FROM old, nodes n
    WHERE o.allocation_id = old.id AND o.firmware_snapshot IS NOT NULL AND n.id = o.node_id AND n.tenant_left_at IS NULL
)
UPDATE allocations a SET name = '', tags = '{}', release_reason = '', failure_message = '', condition_reason = '', network = NULL, image = NULL,
    pruned_at = now(), version = a.version + 1, updated_at = now()
FROM old WHERE a.project_id = old.project_id AND a.id = old.id;
