-- A chain is verified in parts, and a part may end at the last row. When that row is removed before
-- the next part, no row is left to read there: the chain is broken at that row.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_verify_part(p_kind text, p_id text, p_after bigint, p_previous bytea, p_max integer,
    OUT broken bigint, OUT seq bigint, OUT hash bytea, OUT ended boolean) RETURNS record LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r audit_log;
    head audit_heads;
    rows integer := 0;
BEGIN
    seq := p_after;
    hash := p_previous;
    ended := true;
    -- The row before is read again, so that a second one with its number is found.
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id AND l.seq >= p_after ORDER BY l.seq, l.pos LIMIT p_max + 1 LOOP
        rows := rows + 1;
        IF rows = 1 AND p_after > 0 THEN
            IF r.seq <> p_after OR r.hash <> p_previous THEN
                broken := p_after;
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        IF r.seq <> seq + 1 OR r.prev_hash <> hash OR r.hash <> audit_row_hash(r) THEN
            broken := seq + 1;
            RETURN;
        END IF;
        seq := r.seq;
        hash := r.hash;
    END LOOP;
    IF rows = 0 AND p_after > 0 THEN
        broken := p_after;
        RETURN;
    END IF;
    IF rows = p_max + 1 THEN
        ended := false;
        RETURN;
    END IF;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> seq OR head.hash <> hash) OR NOT FOUND AND seq > 0 THEN
        broken := seq + 1;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_verify_part(p_kind text, p_id text, p_after bigint, p_previous bytea, p_max integer,
    OUT broken bigint, OUT seq bigint, OUT hash bytea, OUT ended boolean) RETURNS record LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r audit_log;
    head audit_heads;
    rows integer := 0;
BEGIN
    seq := p_after;
    hash := p_previous;
    ended := true;
    -- The row before is read again, so that a second one with its number is found.
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id AND l.seq >= p_after ORDER BY l.seq, l.pos LIMIT p_max + 1 LOOP
        rows := rows + 1;
        IF rows = 1 AND p_after > 0 THEN
            IF r.seq <> p_after OR r.hash <> p_previous THEN
                broken := p_after;
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        IF r.seq <> seq + 1 OR r.prev_hash <> hash OR r.hash <> audit_row_hash(r) THEN
            broken := seq + 1;
            RETURN;
        END IF;
        seq := r.seq;
        hash := r.hash;
    END LOOP;
    IF rows = p_max + 1 THEN
        ended := false;
        RETURN;
    END IF;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> seq OR head.hash <> hash) OR NOT FOUND AND seq > 0 THEN
        broken := seq + 1;
    END IF;
END $$;
-- +goose StatementEnd
