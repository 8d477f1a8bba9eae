-- name: Listening :exec
INSERT INTO agent_listeners (id, since, seen_at) VALUES (@id, now(), now())
ON CONFLICT (id) DO UPDATE SET seen_at = now(),
    since = CASE WHEN agent_listeners.seen_at < now() - make_interval(secs => @gap_seconds::float8) THEN now() ELSE agent_listeners.since END;

-- name: StopListening :exec
DELETE FROM agent_listeners WHERE id = @id OR seen_at < now() - interval '1 day';

-- name: ListenedSince :one
-- Since when somebody has listened without a gap; null when nobody does now.
SELECT min(since)::timestamptz AS since FROM agent_listeners
WHERE seen_at >= now() - make_interval(secs => @gap_seconds::float8)
HAVING count(*) > 0;
