-- Nodes and jobs end in a terminal state; their rows stay.
CREATE OR REPLACE FUNCTION guard_no_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted: move them to their terminal state', TG_TABLE_NAME USING ERRCODE = 'SW001';
END $$;

CREATE OR REPLACE FUNCTION guard_allocation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('allocation', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.project_id, NEW.sku_id, NEW.requested_at) IS DISTINCT FROM (OLD.project_id, OLD.sku_id, OLD.requested_at) THEN
        RAISE EXCEPTION 'the project and the SKU of allocation % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a status change of allocation % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('allocation', '', OLD.status, NEW.status);
    END IF;
    IF OLD.node_released_at IS NOT NULL AND (NEW.node_id, NEW.node_released_at) IS DISTINCT FROM (OLD.node_id, OLD.node_released_at)
        OR OLD.node_id IS NOT NULL AND NEW.node_id IS DISTINCT FROM OLD.node_id THEN
        RAISE EXCEPTION 'allocation % keeps the node that it had', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.access_given_at IS NOT NULL AND NEW.access_given_at IS DISTINCT FROM OLD.access_given_at OR OLD.access = 'revoked' AND NEW.access <> 'revoked' THEN
        RAISE EXCEPTION 'what is known of the access of allocation % cannot be taken back', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;

-- The role of customers withdraws keys of its project. It puts none back, and says of none what its
-- node does.
CREATE OR REPLACE FUNCTION guard_key_withdrawal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF OLD.withdrawn_at IS NOT NULL OR NEW.withdrawn_at IS NULL OR NEW.refused_at IS NOT NULL OR NEW.tried_at IS NOT NULL THEN
        RAISE EXCEPTION 'a customer withdraws a key of allocation %, and changes nothing else of it', OLD.allocation_id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;

-- node_occupant returns the allocation that has a node, or had it last and is not proven to be
-- gone; NULL for none. Customers cannot read these tables; the id of an allocation of another
-- project gives them no right, and no query returns it.
CREATE OR REPLACE FUNCTION node_occupant(p_node text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(n.allocation_id, o.allocation_id) FROM nodes n
    LEFT JOIN node_occupancies o ON o.node_id = n.id AND o.until IS NULL AND o.state IN ('allocated', 'releasing', 'sanitizing', 'clean')
    WHERE n.id = p_node
$$;
