-- name: FanOut :one
-- Called under a lock: the next events get a row for each webhook that wants them.
WITH batch AS (
    SELECT * FROM events WHERE cursor > (SELECT last FROM webhook_cursor) ORDER BY cursor LIMIT @max_rows
), moved AS (
    UPDATE webhook_cursor SET last = (SELECT max(b.cursor) FROM batch b) WHERE EXISTS (SELECT FROM batch)
), queued AS (
    INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at)
    SELECT b.project_id, w.id, b.event_id, b.project_cursor, b.type, b.resource_kind || 's/' || b.resource_id, b.payload, b.at
    FROM batch b JOIN webhooks w ON w.project_id = b.project_id AND w.status = 'enabled'
        AND (w.event_types = '{}' OR b.type = ANY (w.event_types) OR split_part(b.type, '.', 1) || '.*' = ANY (w.event_types))
    ON CONFLICT DO NOTHING
    RETURNING webhook_deliveries.project_id, webhook_deliveries.webhook_id
)
SELECT (SELECT count(*) FROM batch)::bigint AS seen,
    coalesce((SELECT array_agg(DISTINCT webhook_id) FROM queued), '{}')::text[] AS webhooks;

-- name: WakeQueued :exec
-- Called in the transaction of a fan-out, after it: the new rows keep their webhooks from being released meanwhile, and this statement sees those that
-- were released before. One that is due already, or pauses after failures, stays as it is, so that most fan-outs change no webhook.
UPDATE webhooks w SET due_at = now()
WHERE w.id = ANY (@webhooks::text[]) AND (w.due_at IS NULL OR w.due_at > now() AND w.failures < @breaker::integer);

-- name: ClaimWebhooks :many
-- Billing accounts take turns, and within an account its projects: the next turn of one counts its claims under way. The last workers of a lane, the
-- reserve, are for accounts whose turn is at most @share, so that one with many webhooks delays no other. The lock lets a fan-out insert meanwhile.
WITH bounds AS (
    SELECT @share::bigint AS share, @unreserved::bigint AS unreserved
), claims AS (
    SELECT u.project_id, p.billing_account_id AS account FROM webhooks u JOIN projects p ON p.id = u.project_id WHERE u.claimed_until > now() AND u.lane = @lane
), waiting AS (
    SELECT d.project_id, d.id, d.due_at, p.billing_account_id AS account,
        (SELECT count(*) FROM claims c WHERE c.project_id = d.project_id) + row_number() OVER (PARTITION BY d.project_id ORDER BY d.due_at, d.id) AS project_turn
    FROM webhooks d JOIN projects p ON p.id = d.project_id
    WHERE d.status = 'enabled' AND d.due_at <= now() AND d.lane = @lane AND (d.claimed_until IS NULL OR d.claimed_until < now())
), turns AS (
    SELECT x.project_id, x.id, x.due_at,
        (SELECT count(*) FROM claims c WHERE c.account = x.account) + row_number() OVER (PARTITION BY x.account ORDER BY x.project_turn, x.due_at, x.id) AS turn
    FROM waiting x
), placed AS (
    SELECT t.project_id, t.id, t.turn, row_number() OVER (ORDER BY t.turn, t.due_at, t.id) AS place FROM turns t
), allowed AS (
    SELECT l.project_id, l.id, l.place FROM placed l, bounds WHERE l.turn <= bounds.share OR l.place <= bounds.unreserved
), due AS (
    SELECT d.project_id, d.id FROM webhooks d JOIN allowed ON allowed.project_id = d.project_id AND allowed.id = d.id
    WHERE d.status = 'enabled' AND d.due_at <= now() AND d.lane = @lane AND (d.claimed_until IS NULL OR d.claimed_until < now())
    ORDER BY allowed.place LIMIT @max_rows FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE webhooks w SET claimed_by = @claimed_by, claimed_until = now() + make_interval(secs => @lease_seconds::double precision)
FROM due WHERE w.project_id = due.project_id AND w.id = due.id
RETURNING w.project_id, w.id, w.name, w.url, w.secret_ref,
    CASE WHEN w.previous_until > now() THEN w.previous_secret_ref ELSE '' END::text AS previous_secret_ref, w.failures,
    w.claimed_by;

-- name: DueDeliveries :many
SELECT event_id, event_cursor, type, subject, data, occurred_at, attempts, extract(epoch FROM now() - queued_at)::double precision AS age_seconds
FROM webhook_deliveries
WHERE project_id = @project_id AND webhook_id = @webhook_id AND status = 'pending' AND next_at <= now()
ORDER BY next_at, event_id LIMIT @max_rows;

-- name: LockClaim :one
-- Holds off a fan-out, so that the next due_at misses no row of it: the fan-out's foreign key waits for this lock and no weaker one.
SELECT claimed_by = @claimed_by::text AS held FROM webhooks WHERE project_id = @project_id AND id = @id FOR UPDATE;

-- name: FinishDeliveries :exec
UPDATE webhook_deliveries d SET status = r.status, attempts = d.attempts + 1, next_at = now() + make_interval(secs => r.wait), answer_status = r.answer,
    reason = r.reason, ended_at = CASE WHEN r.status = 'pending' THEN NULL ELSE now() END
FROM (SELECT unnest(@event_ids::text[]) AS event_id, unnest(@statuses::text[]) AS status, unnest(@waits::double precision[]) AS wait,
    unnest(@answers::integer[]) AS answer, unnest(@reasons::text[]) AS reason) r
WHERE d.project_id = @project_id AND d.webhook_id = @webhook_id AND d.event_id = r.event_id AND d.status = 'pending';

-- name: ReleaseWebhook :exec
UPDATE webhooks w SET claimed_by = '', claimed_until = NULL, failures = @failures, slow = @slow, tried = w.tried OR @tried::boolean,
    last_reason = CASE WHEN @failed::boolean THEN @last_reason::text ELSE w.last_reason END,
    last_failure_at = CASE WHEN @failed::boolean THEN now() ELSE w.last_failure_at END,
    last_success_at = CASE WHEN @succeeded::boolean THEN now() ELSE w.last_success_at END,
    status = CASE WHEN @gone::boolean THEN 'disabled' ELSE w.status END,
    disabled_reason = CASE WHEN @gone::boolean AND w.status = 'enabled' THEN 'gone' ELSE w.disabled_reason END,
    version = w.version + CASE WHEN @gone::boolean AND w.status = 'enabled' THEN 1 ELSE 0 END,
    due_at = (SELECT greatest(d.next_at, now() + make_interval(secs => @pause_seconds::double precision)) FROM webhook_deliveries d
        WHERE d.project_id = w.project_id AND d.webhook_id = w.id AND d.status = 'pending' ORDER BY d.next_at LIMIT 1)
WHERE w.project_id = @project_id AND w.id = @id;

-- name: ExpireDeliveries :execrows
UPDATE webhook_deliveries d SET status = 'dead', ended_at = now(),
    reason = CASE d.reason WHEN '' THEN 'it could not be sent in time' ELSE d.reason END
FROM (SELECT x.project_id, x.webhook_id, x.event_id FROM webhook_deliveries x
    WHERE x.status = 'pending' AND x.queued_at < now() - make_interval(secs => @retry_seconds::double precision)
    ORDER BY x.queued_at LIMIT @max_rows FOR UPDATE SKIP LOCKED) o
WHERE d.project_id = o.project_id AND d.webhook_id = o.webhook_id AND d.event_id = o.event_id;

-- name: PruneDeliveries :execrows
DELETE FROM webhook_deliveries d USING (SELECT x.project_id, x.webhook_id, x.event_id FROM webhook_deliveries x
    WHERE x.ended_at < now() - make_interval(secs => @keep_seconds::double precision) AND x.type NOT LIKE 'notice.%' LIMIT @max_rows) o
WHERE d.project_id = o.project_id AND d.webhook_id = o.webhook_id AND d.event_id = o.event_id;

-- name: CountPending :one
-- Counts no further than asked.
SELECT count(*) FROM (SELECT FROM webhook_deliveries
    WHERE project_id = @project_id AND webhook_id = @webhook_id AND status = 'pending' LIMIT @max_rows) p;

-- name: QueueBacklog :one
SELECT count(*) AS pending, coalesce(extract(epoch FROM now() - min(queued_at)), 0)::double precision AS oldest_seconds
FROM webhook_deliveries WHERE status = 'pending';

-- name: LockProject :one
SELECT status FROM projects WHERE id = @project_id FOR NO KEY UPDATE;

-- name: CountWebhooks :one
SELECT count(*) FROM webhooks WHERE project_id = @project_id;

-- name: InsertWebhook :one
INSERT INTO webhooks (project_id, id, name, url, event_types, secret_ref) VALUES (@project_id, @id, @name, @url, @event_types, @secret_ref) RETURNING *;

-- name: Webhook :one
SELECT * FROM webhooks WHERE project_id = @project_id AND id = @id;

-- name: ListWebhooks :many
SELECT * FROM webhooks WHERE project_id = @project_id AND id > @after ORDER BY id LIMIT @max_rows;

-- name: UpdateWebhook :one
-- A changed webhook is tried at once; only one with a new URL is not known, and its failures end. What a claim under way finds out is about the webhook before.
UPDATE webhooks SET name = @name, url = @url, event_types = @event_types, status = @status, disabled_reason = @disabled_reason,
    failures = CASE WHEN url = @url THEN failures ELSE 0 END, slow = slow OR url <> @url, tried = tried AND url = @url, due_at = now(), claimed_by = '', claimed_until = NULL, version = version + 1, updated_at = now()
WHERE project_id = @project_id AND id = @id AND version = @version RETURNING *;

-- name: RotateSecret :one
UPDATE webhooks SET previous_secret_ref = secret_ref, previous_until = now() + make_interval(secs => @overlap_seconds::double precision),
    secret_ref = @secret_ref, version = version + 1, updated_at = now()
WHERE project_id = @project_id AND id = @id AND version = @version RETURNING *;

-- name: DeleteWebhook :execrows
DELETE FROM webhooks WHERE project_id = @project_id AND id = @id AND version = @version;

-- name: QueueDelivery :exec
INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at)
VALUES (@project_id, @webhook_id, @event_id, 0, @type, @subject, @data, now());

-- name: WakeWebhook :exec
UPDATE webhooks SET due_at = now() WHERE project_id = @project_id AND id = @id;

-- name: ListDeliveries :many
-- Newest first.
SELECT * FROM webhook_deliveries
WHERE project_id = @project_id AND webhook_id = @webhook_id AND (@before::text = '' OR event_id < @before::text) AND (@status::text = '' OR status = @status::text)
ORDER BY event_id DESC LIMIT @max_rows;

-- name: Redeliver :execrows
UPDATE webhook_deliveries SET status = 'pending', ended_at = NULL, next_at = now(), queued_at = now(), attempts = 0
WHERE project_id = @project_id AND webhook_id = @webhook_id AND event_id = @event_id AND status <> 'pending';

-- name: Replay :one
-- Queues the next events after a cursor again, and returns the last cursor of them.
WITH batch AS (
    SELECT e.event_id, e.project_cursor, e.type, e.resource_kind, e.resource_id, e.payload, e.at FROM events e
    WHERE e.project_id = @project_id AND e.project_cursor > @after::bigint ORDER BY e.project_cursor LIMIT @max_rows
), queued AS (
    INSERT INTO webhook_deliveries (project_id, webhook_id, event_id, event_cursor, type, subject, data, occurred_at)
    SELECT w.project_id, w.id, b.event_id, b.project_cursor, b.type, b.resource_kind || 's/' || b.resource_id, b.payload, b.at
    FROM batch b JOIN webhooks w ON w.project_id = @project_id AND w.id = @webhook_id
        AND (w.event_types = '{}' OR b.type = ANY (w.event_types) OR split_part(b.type, '.', 1) || '.*' = ANY (w.event_types))
    ON CONFLICT (project_id, webhook_id, event_id) DO UPDATE SET status = 'pending', ended_at = NULL, next_at = now(), queued_at = now(), attempts = 0
    RETURNING 1
)
SELECT (SELECT count(*) FROM queued) AS queued, coalesce(max(b.project_cursor), 0)::bigint AS last, count(*) AS seen FROM batch b;

-- name: ProjectEventsAfter :many
SELECT resource_kind, resource_id, type, payload, at, project_cursor, event_id FROM events
WHERE project_id = @project_id AND project_cursor > @after::bigint ORDER BY project_cursor LIMIT @max_rows;

-- name: ProjectCursor :one
SELECT last, pruned FROM project_event_cursors WHERE project_id = @project_id;

-- name: LastCursors :many
SELECT project_id, last FROM project_event_cursors WHERE project_id = ANY (@projects::text[]);
