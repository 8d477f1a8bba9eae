-- name: InsertNotice :one
INSERT INTO notices (project_id, id, kind, episode, node, message) VALUES (@project_id, @id, @kind, @episode, @node, @message)
ON CONFLICT (project_id, kind, episode) DO NOTHING RETURNING *;

-- name: InsertNoticeEmails :exec
-- The owners, and those who pay, get it at the address that their sign-in has proven.
INSERT INTO notice_emails (project_id, notice_id, recipient, message_id)
SELECT DISTINCT m.project_id, @notice_id::text, m.email, @message_id::text || '.' || substr(md5(m.email), 1, 12) || '@' || @domain::text
FROM project_members m WHERE m.project_id = @project_id AND m.role IN ('owner', 'billing') AND m.email <> ''
ON CONFLICT DO NOTHING;

-- name: ClaimEmails :many
WITH due AS (
    SELECT e.project_id, e.notice_id, e.recipient FROM notice_emails e
    WHERE e.status = 'pending' AND e.next_at <= now() AND (e.claimed_until IS NULL OR e.claimed_until < now())
    ORDER BY e.next_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
)
UPDATE notice_emails e SET claimed_until = now() + make_interval(secs => @lease_seconds::double precision), attempts = e.attempts + 1
FROM due JOIN notices n ON n.project_id = due.project_id AND n.id = due.notice_id
WHERE e.project_id = due.project_id AND e.notice_id = due.notice_id AND e.recipient = due.recipient
RETURNING e.project_id, e.notice_id, e.recipient, e.message_id, e.attempts, n.kind, n.node, n.message, n.created_at,
    extract(epoch FROM now() - n.created_at)::double precision AS age_seconds;

-- name: FinishEmail :exec
UPDATE notice_emails SET status = @status, claimed_until = NULL, reason = @reason, next_at = now() + make_interval(secs => @wait_seconds::double precision),
    delivered_at = CASE WHEN @status::text = 'delivered' THEN now() END
WHERE project_id = @project_id AND notice_id = @notice_id AND recipient = @recipient AND status = 'pending';

-- name: ListNotices :many
SELECT * FROM notices WHERE project_id = @project_id AND (@before::text = '' OR id < @before::text) ORDER BY id DESC LIMIT @max_rows;

-- name: NoticeEmails :many
SELECT notice_id, recipient, status, reason, delivered_at FROM notice_emails
WHERE project_id = @project_id AND notice_id = ANY (@notice_ids::text[]) ORDER BY notice_id, recipient;

-- name: NoticeWebhooks :many
SELECT d.subject, w.id AS webhook_id, w.name, d.status, d.reason, d.ended_at FROM webhook_deliveries d
JOIN webhooks w ON w.project_id = d.project_id AND w.id = d.webhook_id
WHERE d.project_id = @project_id AND d.type LIKE 'notice.%' AND d.subject = ANY (@subjects::text[]) ORDER BY w.name;

-- name: PruneNotices :execrows
-- Goes with the deliveries of the notices.
WITH old AS (
    SELECT n.project_id, n.id FROM notices n WHERE n.created_at < now() - make_interval(secs => @keep_seconds::double precision) LIMIT @max_rows
), deliveries AS (
    DELETE FROM webhook_deliveries d USING old WHERE d.project_id = old.project_id AND d.subject = 'notices/' || old.id AND d.type LIKE 'notice.%'
)
DELETE FROM notices n USING old WHERE n.project_id = old.project_id AND n.id = old.id;
