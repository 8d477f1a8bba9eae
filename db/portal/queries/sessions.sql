-- name: InsertSession :exec
INSERT INTO portal_sessions (id, hash, method, principal, name, roles, groups, email, token_id, issuer, subject, sid, idle_until, ends_at, auth_time, user_agent)
VALUES (@id, @hash, @method, @principal, @name, @roles, @groups, @email, @token_id, @issuer, @subject, @sid,
    now() + make_interval(secs => @idle_seconds),
    now() + make_interval(secs => @max_seconds), @auth_time, @user_agent);

-- name: TrimSessions :many
-- Of the sessions of a principal the newest stay.
DELETE FROM portal_sessions WHERE id IN (
    SELECT s.id FROM portal_sessions s WHERE s.principal = @principal ORDER BY s.created_at DESC, s.id DESC OFFSET @keep::integer)
RETURNING id;

-- name: SessionByHash :one
-- The live session of a cookie. A session whose token is revoked, expired or gone is none. One that was seen in the future is none: the clock
-- was set back, and nobody knows how long it has lasted. A second sign-in does not count for the cookie from before it, which may have been copied.
SELECT sqlc.embed(s), coalesce(t.roles, s.roles)::text[] AS roles_now, (s.hash <> @hash::bytea)::boolean AS is_previous,
    (s.seen_at < now() - interval '1 minute')::boolean AS is_stale,
    (s.hash = @hash::bytea AND s.step_up_until IS NOT NULL AND s.step_up_until > now() AND s.step_up_until <= now() + make_interval(secs => @step_up_seconds))::boolean AS stepped_up
FROM portal_sessions s LEFT JOIN api_tokens t ON t.id = s.token_id
WHERE (s.hash = @hash::bytea OR s.previous_hash = @hash::bytea AND s.previous_until > now() AND s.previous_until <= now() + interval '1 minute')
  AND s.idle_until > now() AND s.ends_at > now() AND s.seen_at <= now() + interval '1 minute'
  AND (t.id IS NULL OR t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now()));

-- name: SessionByID :one
-- The same for a stream that began with a session.
SELECT s.principal, s.name, s.method, s.groups, s.email, coalesce(t.roles, s.roles)::text[] AS roles_now
FROM portal_sessions s LEFT JOIN api_tokens t ON t.id = s.token_id
WHERE s.id = @id AND s.idle_until > now() AND s.ends_at > now() AND s.seen_at <= now() + interval '1 minute'
  AND (t.id IS NULL OR t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now()));

-- name: TouchSession :exec
UPDATE portal_sessions SET seen_at = now(), idle_until = least(now() + make_interval(secs => @idle_seconds), ends_at)
WHERE id = @id AND seen_at < now() - interval '1 minute';

-- name: RotateSession :execrows
-- A new cookie; the old one counts for 30 seconds more, for requests that are under way.
UPDATE portal_sessions SET previous_hash = hash, previous_until = now() + interval '30 seconds', hash = @new_hash, roles = @roles
WHERE id = @id AND hash = @old_hash;

-- name: StepUpSession :execrows
UPDATE portal_sessions SET previous_hash = hash, previous_until = now() + interval '30 seconds', hash = @new_hash, roles = @roles, groups = @groups, email = @email,
    name = @name, auth_time = @auth_time, step_up_until = now() + make_interval(secs => @step_up_seconds),
    sid = CASE WHEN @sid::text = '' THEN sid ELSE @sid::text END
WHERE id = @id AND principal = @principal AND idle_until > now() AND ends_at > now();

-- name: EndSession :execrows
DELETE FROM portal_sessions WHERE id = @id;

-- name: EndSessionsOfProvider :many
-- The sessions of one session at the provider, or without a sid all of the subject. A session whose sid the provider did not name may be any
-- of the subject's.
DELETE FROM portal_sessions WHERE issuer = @issuer AND issuer <> ''
  AND CASE WHEN @sid::text <> '' AND sid <> '' THEN sid = @sid::text AND (@subject::text = '' OR subject = @subject::text) ELSE subject = @subject::text END
RETURNING id, principal;

-- name: InsertSignIn :exec
INSERT INTO portal_sign_ins (hash, return_to, session_id, replaces, expires_at) VALUES (@hash, @return_to, @session_id, @replaces, now() + interval '10 minutes');

-- name: TakeSignIn :one
-- Each sign-in is taken once.
DELETE FROM portal_sign_ins WHERE hash = @hash
RETURNING return_to, session_id, replaces, (expires_at > now() AND expires_at <= now() + interval '11 minutes')::boolean AS is_live;

-- name: InsertLogout :execrows
INSERT INTO portal_logouts (hash, expires_at) VALUES (@hash, @expires_at) ON CONFLICT DO NOTHING;

-- name: PruneSessions :execrows
DELETE FROM portal_sessions WHERE id IN (
    SELECT s.id FROM portal_sessions s WHERE s.idle_until < now() ORDER BY s.idle_until LIMIT @max_rows);

-- name: PruneSignIns :execrows
DELETE FROM portal_sign_ins WHERE hash IN (
    SELECT s.hash FROM portal_sign_ins s WHERE s.expires_at < now() ORDER BY s.expires_at LIMIT @max_rows);

-- name: PruneLogouts :execrows
DELETE FROM portal_logouts WHERE hash IN (
    SELECT l.hash FROM portal_logouts l WHERE l.expires_at < now() ORDER BY l.expires_at LIMIT @max_rows);

-- name: EndAllSessions :many
-- Sign-ins that have begun go too: those for a second sign-in with their session.
WITH begun AS (DELETE FROM portal_sign_ins)
DELETE FROM portal_sessions RETURNING id, principal;
