-- The audit log: append-only, one hash chain a resource, partitioned by month.
--
-- A row's hash covers the row and the hash before it; audit_heads holds the end of every chain, so that cutting off the tail shows as well.
-- at is always the start of the writing transaction: a row cannot be dated back.

-- +goose Up
CREATE SEQUENCE audit_pos;

CREATE TABLE audit_log (
    pos           bigint NOT NULL DEFAULT nextval('audit_pos'),
    id            text NOT NULL CHECK (id LIKE 'evt\_%'),
    resource_kind text NOT NULL CHECK (resource_kind <> ''),
    resource_id   text NOT NULL CHECK (resource_id <> ''),
    seq           bigint NOT NULL,
    node_id       text,
    kind          text NOT NULL CHECK (kind IN ('transition', 'action', 'call', 'observation')),
    name          text NOT NULL,
    from_state    text NOT NULL DEFAULT '',
    to_state      text NOT NULL DEFAULT '',
    triggered_by  text NOT NULL CHECK (triggered_by IN ('admin', 'system', 'node_report', 'workflow', 'customer')),
    owner         text NOT NULL,
    actor_id      text,
    comment       text,
    metadata      jsonb NOT NULL DEFAULT '{}',
    workflow_id   text,
    version       bigint NOT NULL DEFAULT 0, -- of the resource after a transition
    at            timestamptz NOT NULL DEFAULT now(),
    txid          bigint NOT NULL,
    prev_hash     bytea NOT NULL,
    hash          bytea NOT NULL,
    PRIMARY KEY (at, pos)
) PARTITION BY RANGE (at);
CREATE INDEX audit_log_chain ON audit_log (resource_kind, resource_id, seq);
CREATE INDEX audit_log_node ON audit_log (node_id, pos) WHERE node_id IS NOT NULL;

CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;

CREATE TABLE audit_heads (
    resource_kind text NOT NULL,
    resource_id   text NOT NULL,
    seq           bigint NOT NULL,
    hash          bytea NOT NULL,
    PRIMARY KEY (resource_kind, resource_id)
) WITH (fillfactor = 70);

-- +goose StatementBegin
CREATE FUNCTION audit_refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'SW003';
END $$;
-- +goose StatementEnd

CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_log_default_no_truncate BEFORE TRUNCATE ON audit_log_default FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();

-- The head moves only with a row of the log: inside the log's own trigger, which is one level up.
CREATE TRIGGER audit_heads_no_delete BEFORE DELETE ON audit_heads FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_heads_no_truncate BEFORE TRUNCATE ON audit_heads FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_heads_by_trigger_only BEFORE INSERT OR UPDATE ON audit_heads FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit_refuse_edit();

-- audit_row_hash covers every column but the hash itself. jsonb sorts its keys and the time is written in UTC, so that the text is the same in
-- every session.
-- +goose StatementBegin
CREATE FUNCTION audit_row_hash(r audit_log) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(r.prev_hash || convert_to(jsonb_build_array(
        r.pos, r.id, r.resource_kind, r.resource_id, r.seq, r.node_id, r.kind, r.name, r.from_state, r.to_state, r.triggered_by, r.owner,
        r.actor_id, r.comment, r.metadata, r.workflow_id, r.version, r.txid, extract(epoch FROM r.at)::text)::text, 'UTF8'))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER audit_log_chain BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_chain();

-- audit_verify walks one chain and returns the first seq that is missing or does not match, or null when the chain is whole.
-- +goose StatementBegin
CREATE FUNCTION audit_verify(p_kind text, p_id text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    r audit_log;
    expected bigint := 1;
    previous bytea := '';
    head audit_heads;
BEGIN
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id ORDER BY l.seq, l.pos LOOP
        IF r.seq <> expected OR r.prev_hash <> previous OR r.hash <> audit_row_hash(r) THEN
            RETURN expected;
        END IF;
        expected := expected + 1;
        previous := r.hash;
    END LOOP;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> expected - 1 OR head.hash <> previous) THEN
        RETURN expected;
    END IF;
    IF NOT FOUND AND expected > 1 THEN
        RETURN expected;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- audit_ensure_partitions makes the partitions of this month and of the given number of months after it, and returns how many it made. A month
-- whose rows already fell into the default partition stays there.
-- +goose StatementBegin
CREATE FUNCTION audit_ensure_partitions(months integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    month timestamp;
    part text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('slipway:audit_partitions', 0));
    FOR i IN 0..months LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
        part := 'audit_log_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE %I PARTITION OF audit_log FOR VALUES FROM (%L) TO (%L)', part,
                month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
            EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit()',
                part || '_no_truncate', part);
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            RAISE NOTICE '% stays in the default partition: it already holds rows of that month', part;
        END;
    END LOOP;
    RETURN made;
END $$;
-- +goose StatementEnd

SELECT audit_ensure_partitions(12);

-- What 03-lifecycles calls state_transitions.
CREATE VIEW state_transitions AS
SELECT pos, id, resource_kind, resource_id, seq, node_id, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, workflow_id,
       version, at, prev_hash, hash
FROM audit_log WHERE kind = 'transition';

-- +goose Down
DROP VIEW state_transitions;
DROP TABLE audit_log, audit_heads CASCADE;
DROP FUNCTION audit_verify, audit_ensure_partitions, audit_chain, audit_refuse_edit;
DROP SEQUENCE audit_pos;
