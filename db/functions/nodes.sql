CREATE OR REPLACE FUNCTION guard_node_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

-- guard_audited finds the audit row of a change in the end of its chain, or in the log where its
-- transaction has made another change since. It runs as the owner: nobody else may read the ends.
CREATE OR REPLACE FUNCTION guard_audited() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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

-- Search. The terms of a node are all pieces of one to three characters of its hostname and its
-- serial, and behind a colon its whole id, MAAS system id and MACs. What contains a text has all
-- the pieces of that text. The table stands apart from nodes, so that a change of state does not
-- write its index. It does what pg_trgm does, for which migrations would need a right on the
-- database.
CREATE OR REPLACE FUNCTION search_pieces(words text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT substr(w, i, n)), '{}')
    FROM unnest(words) w, generate_series(1, 3) n, generate_series(1, length(w) - n + 1) i
$$;

-- search_needles returns the pieces of a text that every node which contains it has.
CREATE OR REPLACE FUNCTION search_needles(q text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT substr(q, i, least(3, length(q)))), '{}') FROM generate_series(1, greatest(length(q) - 2, 1)) i
$$;

CREATE OR REPLACE FUNCTION index_node() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO node_search (node_id, hostname, serial, terms)
    VALUES (NEW.id, lower(NEW.hostname), lower(NEW.serial), search_pieces(ARRAY[lower(NEW.hostname), lower(NEW.serial)])
        || array_remove(ARRAY[':' || NEW.id, ':' || NEW.maas_system_id], NULL) || ARRAY(SELECT ':' || mac FROM unnest(NEW.macs) mac))
    ON CONFLICT (node_id) DO UPDATE SET hostname = excluded.hostname, serial = excluded.serial, terms = excluded.terms;
    RETURN NULL;
END $$;

-- unconfirmed_nodes returns the hostnames of the free nodes that have not agreed since a restore.
-- It is a function, so that lists read no nodes while there was no restore.
CREATE OR REPLACE FUNCTION unconfirmed_nodes(restore bigint) RETURNS TABLE(hostname text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT n.hostname FROM nodes n LEFT JOIN node_agreements g ON g.node_id = n.id
    WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL AND coalesce(g.restore_id, 0) < restore
$$;

-- note_free_node notes a node that a claim may take from now on, whatever made it so, if a request
-- waits for its SKU.
CREATE OR REPLACE FUNCTION note_free_node() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    -- No request waits for a node without a SKU. With a null, the query would be planned each time.
    IF NEW.sku_id IS NULL THEN
        RETURN NULL;
    END IF;
    IF EXISTS (SELECT FROM allocations a WHERE a.status = 'requested' AND a.sku_id = NEW.sku_id) THEN
        INSERT INTO claim_wakes (node_id) VALUES (NEW.id)
        ON CONFLICT (node_id) DO UPDATE SET freed_at = clock_timestamp(), allocation_id = NULL, woken_at = NULL;
        NOTIFY slipway_outbox;
    END IF;
    RETURN NULL;
END $$;

-- note_occupancy continues the history of a node that nobody occupies: it is in maintenance from
-- the moment in which it leaves service, and free when it is in service again. A node that only
-- lost contact keeps its row. The trigger nodes_note_occupancy calls it for a change of the status.
CREATE OR REPLACE FUNCTION note_occupancy() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    last text;
    now_is text := CASE WHEN NEW.status = 'active' AND NEW.tenant_left_at IS NULL THEN 'free' ELSE 'maintenance' END;
BEGIN
    SELECT o.state INTO last FROM node_occupancies o WHERE o.node_id = NEW.id AND o.until IS NULL;
    IF now_is = 'free' AND last = 'maintenance' OR now_is = 'maintenance' AND OLD.status IN ('active', 'offline') AND last IS DISTINCT FROM 'maintenance' THEN
        UPDATE node_occupancies o SET until = clock_timestamp() WHERE o.node_id = NEW.id AND o.until IS NULL;
        INSERT INTO node_occupancies (node_id, state) VALUES (NEW.id, now_is);
    END IF;
    RETURN NULL;
END $$;
