-- Lanes of webhooks, addresses of members for notices, and where a stream of events can continue.

-- +goose Up
-- tried says whether the URL has been tried. Webhooks of one lane have workers of their own, so that one that is slow, or that fails, delays no other.
ALTER TABLE webhooks ADD COLUMN tried boolean NOT NULL DEFAULT false,
    ADD COLUMN lane text NOT NULL GENERATED ALWAYS AS (CASE WHEN NOT slow THEN 'fast' WHEN tried THEN 'slow' ELSE 'new' END) STORED;
DROP INDEX webhooks_due;
CREATE INDEX webhooks_due ON webhooks (lane, due_at) WHERE status = 'enabled' AND due_at IS NOT NULL;
CREATE INDEX webhooks_claimed ON webhooks (claimed_until) WHERE claimed_until IS NOT NULL;

-- Where notices are sent: the address that the identity provider had verified when the member joined or signed in last, '' for none.
ALTER TABLE project_members ADD COLUMN email text NOT NULL DEFAULT '' CHECK (email = lower(email) AND char_length(email) <= 254);

-- pruned is the greatest cursor of an event that was deleted. epoch is renewed by the operator after a restore.
ALTER TABLE event_cursor ADD COLUMN pruned bigint NOT NULL DEFAULT 0,
    ADD COLUMN epoch text NOT NULL DEFAULT substr(md5(random()::text || clock_timestamp()::text), 1, 16);
ALTER TABLE project_event_cursors ADD COLUMN pruned bigint NOT NULL DEFAULT 0;

-- The owner has no policy, so it sees rows only while row-level security does not bind it.
ALTER TABLE webhooks NO FORCE ROW LEVEL SECURITY;
ALTER TABLE project_members NO FORCE ROW LEVEL SECURITY;
ALTER TABLE project_invitations NO FORCE ROW LEVEL SECURITY;
ALTER TABLE project_event_cursors NO FORCE ROW LEVEL SECURITY;
ALTER TABLE events NO FORCE ROW LEVEL SECURITY;
UPDATE webhooks SET tried = true WHERE last_success_at IS NOT NULL OR last_failure_at IS NOT NULL;
UPDATE project_members m SET email = coalesce((SELECT i.email FROM project_invitations i
    WHERE i.project_id = m.project_id AND i.status = 'accepted' AND i.accepted_by = m.subject ORDER BY i.ended_at DESC LIMIT 1), '');
UPDATE event_cursor SET pruned = coalesce((SELECT min(e.cursor) - 1 FROM events e), last);
UPDATE project_event_cursors c SET pruned = coalesce((SELECT min(e.project_cursor) - 1 FROM events e WHERE e.project_id = c.project_id), c.last);
ALTER TABLE webhooks FORCE ROW LEVEL SECURITY;
ALTER TABLE project_members FORCE ROW LEVEL SECURITY;
ALTER TABLE project_invitations FORCE ROW LEVEL SECURITY;
ALTER TABLE project_event_cursors FORCE ROW LEVEL SECURITY;
ALTER TABLE events FORCE ROW LEVEL SECURITY;

-- event_epoch returns a text that is another one after a restore: by the stored epoch, or because the server, its timeline or the database is another
-- one. A server that does not show these to the login counts by the stored epoch and the database alone.
-- +goose StatementBegin
CREATE FUNCTION event_epoch() RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    server text := '';
BEGIN
    BEGIN
        -- The timeline of what is written now: that of the last checkpoint changes minutes after a failover only.
        SELECT s.system_identifier || '/' || CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
            INTO server FROM pg_control_system() s;
    EXCEPTION WHEN insufficient_privilege THEN
        server := '';
    END;
    RETURN (SELECT substr(md5(concat_ws('/', e.epoch, server, d.oid)), 1, 8) FROM public.event_cursor e, pg_database d WHERE d.datname = current_database());
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION event_epoch;
ALTER TABLE project_event_cursors DROP COLUMN pruned;
ALTER TABLE event_cursor DROP COLUMN pruned, DROP COLUMN epoch;
ALTER TABLE project_members DROP COLUMN email;
DROP INDEX webhooks_claimed, webhooks_due;
ALTER TABLE webhooks DROP COLUMN lane, DROP COLUMN tried;
CREATE INDEX webhooks_due ON webhooks (slow, due_at) WHERE status = 'enabled' AND due_at IS NOT NULL;
