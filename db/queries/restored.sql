-- name: EndRestoredAccess :many
-- Ends what gives access and can be made again, of every project and of the platform.
WITH begun AS (
    DELETE FROM portal_sign_ins
), sessions AS (
    DELETE FROM portal_sessions RETURNING id
), api AS (
    UPDATE api_tokens SET revoked_at = now() WHERE revoked_at IS NULL RETURNING id
), tokens AS (
    DELETE FROM project_tokens RETURNING project_id, id
), invitations AS (
    UPDATE project_invitations SET status = 'revoked', version = version + 1, ended_at = now() WHERE status = 'pending' RETURNING project_id, id
), hooks AS (
    UPDATE webhooks SET status = 'disabled', disabled_reason = 'by_request', version = version + 1, updated_at = now()
    WHERE status = 'enabled' RETURNING project_id, id
)
SELECT kind::text AS kind, project_id::text AS project_id, id::text AS id FROM (
    SELECT 'portal_session', '', id FROM sessions UNION ALL SELECT 'api_token', '', id FROM api
    UNION ALL SELECT 'project_token', project_id, id FROM tokens UNION ALL SELECT 'invitation', project_id, id FROM invitations
    UNION ALL SELECT 'webhook', project_id, id FROM hooks) AS ended (kind, project_id, id)
ORDER BY kind, project_id, id;

-- name: BeginRestore :exec
-- From now on no node is claimed that has not agreed since. Where usage is charged, nothing is released because of a balance until an operator has
-- compared the balances: payments since the backup are lost.
WITH stopped AS (
    UPDATE billing_control SET enforcement_stopped_at = coalesce(enforcement_stopped_at, clock_timestamp()), resumes_itself = false,
        enforcement_stopped = CASE WHEN enforcement_stopped_at IS NULL OR resumes_itself
            THEN 'the database was restored from a backup, which lacks later payments; nothing is released until an operator has booked them'
            ELSE enforcement_stopped END
    WHERE EXISTS (SELECT FROM prices)
)
INSERT INTO restores DEFAULT VALUES;

-- name: BeginEventEpoch :exec
-- Readers of event streams learn from another epoch that events which they have seen may be gone.
UPDATE event_cursor SET epoch = gen_random_uuid()::text;

-- name: IsRestored :one
SELECT EXISTS (SELECT FROM restores)::boolean;
