-- What the schema itself refuses (06-data): a status change that is no edge of the lifecycle, and one without its audit row.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION guard_edge(p_resource text, p_lifecycle text, p_from text, p_to text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM lifecycle_edges e
        WHERE e.resource = p_resource AND e.lifecycle = p_lifecycle AND e.from_state = p_from AND e.to_state = p_to;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% (lifecycle %) cannot go from % to %: lifecycle_edges has no such edge',
            p_resource, quote_literal(p_lifecycle), quote_literal(p_from), quote_literal(p_to) USING ERRCODE = 'SW001';
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION guard_node_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('node', NEW.lifecycle, '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.lifecycle <> OLD.lifecycle THEN
        RAISE EXCEPTION 'the lifecycle of node % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of node % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('node', NEW.lifecycle, OLD.status, NEW.status);
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION guard_job_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('job', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of job % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('job', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER nodes_edge_insert BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION guard_node_status();
CREATE TRIGGER nodes_edge_update BEFORE UPDATE ON nodes FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.lifecycle IS DISTINCT FROM NEW.lifecycle) EXECUTE FUNCTION guard_node_status();
CREATE TRIGGER jobs_edge_insert BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION guard_job_status();
CREATE TRIGGER jobs_edge_update BEFORE UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_job_status();

-- At commit, every status change has its audit row, written by the same transaction for the same version.
-- +goose StatementBegin
CREATE FUNCTION guard_audited() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE CONSTRAINT TRIGGER nodes_audited_insert AFTER INSERT ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('node');
CREATE CONSTRAINT TRIGGER nodes_audited_update AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('node');
CREATE CONSTRAINT TRIGGER jobs_audited_insert AFTER INSERT ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('job');
CREATE CONSTRAINT TRIGGER jobs_audited_update AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('job');

-- Nodes and jobs end in a terminal state; their rows stay.
-- +goose StatementBegin
CREATE FUNCTION guard_no_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted: move them to their terminal state', TG_TABLE_NAME USING ERRCODE = 'SW001';
END $$;
-- +goose StatementEnd
CREATE TRIGGER nodes_no_delete BEFORE DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
CREATE TRIGGER jobs_no_delete BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- +goose Down
DROP TRIGGER jobs_no_delete ON jobs;
DROP TRIGGER nodes_no_delete ON nodes;
DROP TRIGGER jobs_audited_update ON jobs;
DROP TRIGGER jobs_audited_insert ON jobs;
DROP TRIGGER nodes_audited_update ON nodes;
DROP TRIGGER nodes_audited_insert ON nodes;
DROP TRIGGER jobs_edge_update ON jobs;
DROP TRIGGER jobs_edge_insert ON jobs;
DROP TRIGGER nodes_edge_update ON nodes;
DROP TRIGGER nodes_edge_insert ON nodes;
DROP FUNCTION guard_no_delete, guard_audited, guard_job_status, guard_node_status, guard_edge;
