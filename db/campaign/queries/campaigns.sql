-- name: InsertCampaign :one
-- The campaign and its creation audit row in one statement.
WITH made AS (
    INSERT INTO run_campaigns (id, project_id, request_id, display_name, type, plan_id, filter, selection_hash, max_parallel, stop_after, skip_canary,
        accept_risk, status, restore_id, created_by)
    VALUES (@id, sqlc.narg('project_id'), @request_id, @display_name, @type, @plan_id, @filter, @selection_hash, @max_parallel, @stop_after, @skip_canary,
        @accept_risk, @status, coalesce((SELECT max(r.id) FROM restores r), 0), @created_by)
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'run_campaign', m.id, 'transition', 'create', '', m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id, m.version
    FROM made m
)
SELECT version FROM made;

-- name: MoveCampaign :one
-- The commit point of a campaign's state: guarded update and audit row in one statement. A worker looks at it at once.
WITH moved AS (
    UPDATE run_campaigns SET status = @to_state::text, version = version + 1, updated_at = now(), message = @message, next_look_at = now(),
        finished_at = CASE WHEN @ended::boolean THEN now() END,
        failures = CASE WHEN @from_state::text IN ('STOPPED', 'COMPLETED') THEN 0 ELSE failures END,
        restore_id = CASE WHEN @to_state::text = 'RUNNING' THEN coalesce((SELECT max(r.id) FROM restores r), 0) ELSE restore_id END
    WHERE run_campaigns.id = @id AND run_campaigns.status = @from_state::text AND run_campaigns.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'run_campaign', m.id, 'transition', @name, @from_state::text, m.status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, m.version
    FROM moved m
)
SELECT version FROM moved;

-- name: InsertMembers :exec
INSERT INTO run_campaign_members (campaign_id, ordinal, machine_id, status, message)
SELECT @campaign_id, given.n, given.machine_id, 'WAITING', given.message
FROM (SELECT row_number() OVER () AS n, machine_id, message FROM (SELECT unnest(@machine_ids::text[]) AS machine_id, unnest(@messages::text[]) AS message) AS pairs) AS given;

-- name: Campaign :one
SELECT * FROM run_campaigns WHERE id = @id;

-- name: CampaignOwner :one
-- Who created the campaign, a customer or an operator, as its first audit row says.
SELECT owner FROM audit_log WHERE resource_kind = 'run_campaign' AND resource_id = @id AND seq = 1;

-- name: CampaignOfRequest :one
SELECT * FROM run_campaigns WHERE coalesce(project_id, '') = @project_id::text AND request_id = @request_id;

-- name: LockCampaign :one
SELECT * FROM run_campaigns WHERE id = @id FOR NO KEY UPDATE;

-- name: CountOpenCampaigns :one
SELECT count(*) FROM run_campaigns WHERE project_id IS NOT DISTINCT FROM sqlc.narg('project_id')::text AND finished_at IS NULL;

-- name: ListCampaigns :many
-- One page, the newest first: ids sort by the time of their creation.
SELECT * FROM run_campaigns
WHERE (@before::text = '' OR id < @before::text) AND (@project_id::text = '' OR project_id = @project_id::text)
ORDER BY id DESC LIMIT @max_rows;

-- name: Members :many
SELECT * FROM run_campaign_members WHERE campaign_id = @campaign_id ORDER BY ordinal;

-- name: CountMembers :many
SELECT campaign_id, status, count(*) AS members FROM run_campaign_members WHERE campaign_id = ANY (@campaign_ids::text[]) GROUP BY campaign_id, status;

-- name: ClaimCampaign :one
-- A campaign whose look is due, locked until the transaction ends; another worker takes another one. takes_work says that its project takes new work.
-- A time that lies further ahead than a look sets it is of a clock that has been set back since.
SELECT sqlc.embed(c), (coalesce((SELECT max(r.id) FROM restores r), 0) > c.restore_id)::boolean AS restored,
    (c.project_id IS NULL OR EXISTS (SELECT FROM projects p WHERE p.id = c.project_id AND p.status = 'active'))::boolean AS takes_work
FROM run_campaigns c WHERE c.next_look_at <= now() OR c.next_look_at > now() + make_interval(secs => @every_seconds::double precision) + interval '1 minute'
ORDER BY c.next_look_at LIMIT 1 FOR NO KEY UPDATE OF c SKIP LOCKED;

-- name: SetLook :exec
-- When the next look is due; with a negative time none is until something changes. failed runs are counted.
UPDATE run_campaigns SET next_look_at = CASE WHEN @wait_seconds::double precision >= 0 THEN now() + make_interval(secs => @wait_seconds::double precision) END,
    failures = failures + @failed::integer
WHERE id = @id;

-- name: EndedMembers :many
SELECT m.*, r.status AS run_phase, r.message AS run_message FROM run_campaign_members m JOIN runs r ON r.id = m.run_id
WHERE m.campaign_id = @campaign_id AND m.status = 'RUNNING' AND r.finished_at IS NOT NULL ORDER BY m.ordinal;

-- name: DueMembers :many
-- A machine that was put off at a time to come waits no longer: the clock has been set back since.
SELECT * FROM run_campaign_members
WHERE campaign_id = @campaign_id AND status = 'WAITING' AND (next_try_at <= now() OR updated_at > now() + interval '1 minute')
ORDER BY ordinal LIMIT @max_rows;

-- name: Member :one
SELECT * FROM run_campaign_members WHERE campaign_id = @campaign_id AND ordinal = @ordinal;

-- name: MoveMember :execrows
UPDATE run_campaign_members SET status = @to_state::text, run_id = coalesce(sqlc.narg('run_id')::text, run_id), message = @message, updated_at = now()
WHERE campaign_id = @campaign_id AND ordinal = @ordinal AND status = @from_state::text;

-- name: PutOffMember :exec
UPDATE run_campaign_members SET message = @message, next_try_at = now() + make_interval(secs => @wait_seconds::double precision), updated_at = now()
WHERE campaign_id = @campaign_id AND ordinal = @ordinal AND status = 'WAITING' AND attempt = @attempt;

-- name: CancelWaitingMembers :exec
UPDATE run_campaign_members SET status = 'CANCELED', message = @message, updated_at = now() WHERE campaign_id = @campaign_id AND status = 'WAITING';

-- name: RetryMembers :execrows
-- All that did not succeed, or those of them that are named.
UPDATE run_campaign_members SET status = 'WAITING', attempt = attempt + 1, run_id = NULL, next_try_at = now(), updated_at = now(),
    message = CASE WHEN run_id IS NULL THEN '' ELSE 'again after run ' || run_id END
WHERE campaign_id = @campaign_id AND status IN ('FAILED', 'CANCELED', 'SKIPPED')
    AND (cardinality(@machine_ids::text[]) = 0 OR machine_id = ANY (@machine_ids::text[]));
