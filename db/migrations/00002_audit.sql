-- The audit log: append-only, one hash chain for each resource, partitioned by month. The hash of a
-- row covers the row and the hash before it; audit_heads holds the end of every chain, so that a
-- tail that was cut off shows as well. Column at is the start of the writing transaction: a row
-- cannot be dated back. A background check verifies chain after chain, and a broken chain needs an
-- operator.

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
CREATE INDEX audit_log_actor ON audit_log (actor_id, at, pos) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_log_name ON audit_log (name, at, pos) WHERE kind = 'action';
CREATE INDEX audit_log_node_moves ON audit_log (at) INCLUDE (from_state, to_state) WHERE resource_kind = 'node' AND kind = 'transition';
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_log_chain BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_chain();
CREATE TRIGGER audit_project_event AFTER INSERT ON audit_log FOR EACH ROW WHEN (NEW.resource_kind = 'project') EXECUTE FUNCTION audit_project_event();

CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;
CREATE TRIGGER audit_log_default_no_truncate BEFORE TRUNCATE ON audit_log_default FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();

CREATE TABLE audit_heads (
    resource_kind text NOT NULL,
    resource_id   text NOT NULL,
    seq           bigint NOT NULL,
    hash          bytea NOT NULL,
    moved_txid    bigint,
    moved_version bigint,
    moved_from    text,
    moved_to      text,
    PRIMARY KEY (resource_kind, resource_id)
) WITH (fillfactor = 70);
-- The head moves only with a row of the log: inside the log's own trigger, which is one level up.
CREATE TRIGGER audit_heads_no_delete BEFORE DELETE ON audit_heads FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_heads_no_truncate BEFORE TRUNCATE ON audit_heads FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER audit_heads_by_trigger_only BEFORE INSERT OR UPDATE ON audit_heads FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit_refuse_edit();

-- Where the round over all chains stands. finished_at is the end of the last whole round; checked
-- counts the chains of this one.
CREATE TABLE audit_checks (
    single      boolean PRIMARY KEY DEFAULT true CHECK (single),
    after_kind  text NOT NULL DEFAULT '',
    after_id    text NOT NULL DEFAULT '',
    checked     bigint NOT NULL DEFAULT 0,
    finished_at timestamptz,
    -- The chain that is verified in parts, with the number and the hash of the last row that was
    -- verified; '' is none. begun_at is when there was first something to verify.
    part_kind   text NOT NULL DEFAULT '',
    part_id     text NOT NULL DEFAULT '',
    part_seq    bigint NOT NULL DEFAULT 0,
    part_hash   bytea NOT NULL DEFAULT '',
    begun_at    timestamptz NOT NULL DEFAULT now()
);
INSERT INTO audit_checks DEFAULT VALUES;

-- Chains that were not whole when they were last checked.
CREATE TABLE audit_breaks (
    resource_kind text NOT NULL,
    resource_id   text NOT NULL,
    broken_seq    bigint NOT NULL,
    found_at      timestamptz NOT NULL DEFAULT now(),
    checked_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (resource_kind, resource_id)
);
