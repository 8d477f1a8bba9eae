CREATE OR REPLACE FUNCTION outbox_wake() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NOTIFY slipway_outbox;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION events_wake() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NOTIFY slipway_events;
    RETURN NULL;
END $$;

-- event_epoch returns a text that is another one after a restore: by the stored epoch, or because
-- the server, its timeline or the database is another one. A server that does not show these to the
-- login counts by the stored epoch and the database alone.
CREATE OR REPLACE FUNCTION event_epoch() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
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
