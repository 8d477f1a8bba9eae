-- What lists and the commit point of a state cost with 100,000 nodes: an index for the search of nodes, and a hash of audit rows whose plan a
-- session keeps. docs/performance.md has the figures. 00042 has the list of what needs an operator: no migration holds nodes and jobs at once, since
-- the processes that still serve the database lock a job first and its node after it.

-- +goose Up
-- PL/pgSQL keeps the plan of the expression in a session; a function in SQL was planned again for every row of the audit log. The same hash.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_row_hash(r audit_log) RETURNS bytea LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN sha256(r.prev_hash || convert_to(jsonb_build_array(
        r.pos, r.id, r.resource_kind, r.resource_id, r.seq, r.node_id, r.kind, r.name, r.from_state, r.to_state, r.triggered_by, r.owner,
        r.actor_id, r.comment, r.metadata, r.workflow_id, r.version, r.txid, extract(epoch FROM r.at)::text)::text, 'UTF8'));
END $$;
-- +goose StatementEnd

-- Search. The terms of a node are all pieces of one to three characters of its hostname and its serial, and behind a colon its whole id, MAAS system
-- id and MACs. What contains a text has all the pieces of that text. The table stands apart from nodes, so that a change of state does not write its
-- index. It does what pg_trgm does, for which migrations would need a right on the database.
-- +goose StatementBegin
CREATE FUNCTION search_pieces(words text[]) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT substr(w, i, n)), '{}')
    FROM unnest(words) w, generate_series(1, 3) n, generate_series(1, length(w) - n + 1) i
$$;
-- +goose StatementEnd

-- search_needles returns the pieces of a text that every node which contains it has.
-- +goose StatementBegin
CREATE FUNCTION search_needles(q text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT substr(q, i, least(3, length(q)))), '{}') FROM generate_series(1, greatest(length(q) - 2, 1)) i
$$;
-- +goose StatementEnd

CREATE TABLE node_search (
    node_id  text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    hostname text NOT NULL, -- both in lower case
    serial   text NOT NULL,
    terms    text[] NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION index_node() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO node_search (node_id, hostname, serial, terms)
    VALUES (NEW.id, lower(NEW.hostname), lower(NEW.serial), search_pieces(ARRAY[lower(NEW.hostname), lower(NEW.serial)])
        || array_remove(ARRAY[':' || NEW.id, ':' || NEW.maas_system_id], NULL) || ARRAY(SELECT ':' || mac FROM unnest(NEW.macs) mac))
    ON CONFLICT (node_id) DO UPDATE SET hostname = excluded.hostname, serial = excluded.serial, terms = excluded.terms;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER nodes_search_insert AFTER INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION index_node();
CREATE TRIGGER nodes_search_update AFTER UPDATE ON nodes FOR EACH ROW
    WHEN ((OLD.hostname, OLD.serial, OLD.maas_system_id, OLD.macs) IS DISTINCT FROM (NEW.hostname, NEW.serial, NEW.maas_system_id, NEW.macs))
    EXECUTE FUNCTION index_node();
INSERT INTO node_search (node_id, hostname, serial, terms)
SELECT n.id, lower(n.hostname), lower(n.serial), search_pieces(ARRAY[lower(n.hostname), lower(n.serial)])
    || array_remove(ARRAY[':' || n.id, ':' || n.maas_system_id], NULL) || ARRAY(SELECT ':' || mac FROM unnest(n.macs) mac)
FROM nodes n;
CREATE INDEX node_search_terms ON node_search USING gin (terms);

CREATE INDEX nodes_tenant_left ON nodes (id) WHERE tenant_left_at IS NOT NULL;

-- +goose Down
DROP INDEX nodes_tenant_left;
DROP TRIGGER nodes_search_update ON nodes;
DROP TRIGGER nodes_search_insert ON nodes;
DROP FUNCTION index_node;
DROP TABLE node_search;
DROP FUNCTION search_needles, search_pieces;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_row_hash(r audit_log) RETURNS bytea LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT sha256(r.prev_hash || convert_to(jsonb_build_array(
        r.pos, r.id, r.resource_kind, r.resource_id, r.seq, r.node_id, r.kind, r.name, r.from_state, r.to_state, r.triggered_by, r.owner,
        r.actor_id, r.comment, r.metadata, r.workflow_id, r.version, r.txid, extract(epoch FROM r.at)::text)::text, 'UTF8'))
$$;
-- +goose StatementEnd
