-- At commit each change of state is held against its audit row. The end of the chain now says which transition it has had last, so that this is one row by
-- its key: in the log it was found among all rows of its resource, and took the longer the more there were.

-- +goose Up
ALTER TABLE audit_heads ADD COLUMN moved_txid bigint, ADD COLUMN moved_version bigint, ADD COLUMN moved_from text, ADD COLUMN moved_to text;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_chain() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head audit_heads;
BEGIN
    IF NEW.at IS DISTINCT FROM now() THEN
        RAISE EXCEPTION 'an audit row carries the time of its own transaction' USING ERRCODE = 'SW003';
    END IF;
    LOOP
        SELECT * INTO head FROM audit_heads h
            WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO audit_heads VALUES (NEW.resource_kind, NEW.resource_id, 0, '') ON CONFLICT DO NOTHING;
    END LOOP;
    NEW.seq := head.seq + 1;
    NEW.prev_hash := head.hash;
    NEW.txid := pg_current_xact_id()::text::bigint;
    NEW.hash := audit_row_hash(NEW);
    UPDATE audit_heads h SET seq = NEW.seq, hash = NEW.hash,
        moved_txid = CASE WHEN NEW.kind = 'transition' THEN NEW.txid ELSE h.moved_txid END,
        moved_version = CASE WHEN NEW.kind = 'transition' THEN NEW.version ELSE h.moved_version END,
        moved_from = CASE WHEN NEW.kind = 'transition' THEN NEW.from_state ELSE h.moved_from END,
        moved_to = CASE WHEN NEW.kind = 'transition' THEN NEW.to_state ELSE h.moved_to END
        WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- guard_audited finds the audit row of a change in the end of its chain, or in the log where its transaction has made another change since. It runs as the
-- owner: nobody else may read the ends.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_audited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    before text := '';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD.status;
    END IF;
    PERFORM FROM audit_heads h
        WHERE h.resource_kind = TG_ARGV[0] AND h.resource_id = NEW.id AND h.moved_txid = pg_current_xact_id()::text::bigint
          AND h.moved_version = NEW.version AND h.moved_from = before AND h.moved_to = NEW.status;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM audit_log l
        WHERE l.resource_kind = TG_ARGV[0] AND l.resource_id = NEW.id AND l.kind = 'transition' AND l.at = now()
          AND l.txid = pg_current_xact_id()::text::bigint AND l.version = NEW.version AND l.from_state = before AND l.to_state = NEW.status;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% % went from % to % without an audit row in the same transaction',
            TG_ARGV[0], NEW.id, quote_literal(before), NEW.status USING ERRCODE = 'SW002';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_audited() RETURNS trigger LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    before text := '';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD.status;
    END IF;
    PERFORM 1 FROM audit_log l
        WHERE l.resource_kind = TG_ARGV[0] AND l.resource_id = NEW.id AND l.kind = 'transition' AND l.at = now()
          AND l.txid = pg_current_xact_id()::text::bigint AND l.version = NEW.version AND l.from_state = before AND l.to_state = NEW.status;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% % went from % to % without an audit row in the same transaction',
            TG_ARGV[0], NEW.id, quote_literal(before), NEW.status USING ERRCODE = 'SW002';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_chain() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head audit_heads;
BEGIN
    IF NEW.at IS DISTINCT FROM now() THEN
        RAISE EXCEPTION 'an audit row carries the time of its own transaction' USING ERRCODE = 'SW003';
    END IF;
    LOOP
        SELECT * INTO head FROM audit_heads h
            WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO audit_heads VALUES (NEW.resource_kind, NEW.resource_id, 0, '') ON CONFLICT DO NOTHING;
    END LOOP;
    NEW.seq := head.seq + 1;
    NEW.prev_hash := head.hash;
    NEW.txid := pg_current_xact_id()::text::bigint;
    NEW.hash := audit_row_hash(NEW);
    UPDATE audit_heads h SET seq = NEW.seq, hash = NEW.hash
        WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id;
    RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER TABLE audit_heads DROP COLUMN moved_txid, DROP COLUMN moved_version, DROP COLUMN moved_from, DROP COLUMN moved_to;
