-- name: InsertEvent :execrows
INSERT INTO stripe_events (id, type, object_kind, object_id, live, release, source, body, event_at, state, processed_at)
VALUES (@id, @type, @object_kind, @object_id, @live, @release, @source, @body, @event_at, @state::text, CASE WHEN @state::text <> 'pending' THEN now() END)
ON CONFLICT (id) DO NOTHING;

-- name: ClaimEvents :many
-- Events that are due, kept from other processes for a while.
UPDATE stripe_events e SET next_at = now() + make_interval(secs => @lease_seconds::float8)
WHERE e.id IN (SELECT d.id FROM stripe_events d WHERE d.state = 'pending' AND d.next_at <= now() ORDER BY d.next_at, d.id LIMIT @max_rows FOR UPDATE SKIP LOCKED)
RETURNING e.id, e.type, e.object_kind, e.object_id, e.live, e.release, e.attempts, e.body, e.received_at;

-- name: FinishEvent :execrows
UPDATE stripe_events SET state = @state::text, session_id = sqlc.narg('session_id'), processed_at = now(), last_error = @last_error
WHERE id = @id AND state = 'pending';

-- name: PostponeEvent :execrows
UPDATE stripe_events SET attempts = attempts + 1, next_at = now() + make_interval(secs => @wait_seconds::float8), last_error = @last_error
WHERE id = @id AND state = 'pending';

-- name: CountEvents :many
SELECT state, count(*) AS events FROM stripe_events GROUP BY state ORDER BY state;

-- name: PruneEvents :execrows
-- An event is kept as long as the payment provider lists it, and longer: one that comes again is known. One that could never be processed goes too: the
-- session, refund or dispute that it was about is found by the comparisons.
DELETE FROM stripe_events e WHERE e.id IN (SELECT o.id FROM stripe_events o WHERE o.received_at < @before::timestamptz ORDER BY o.received_at LIMIT @max_rows);
