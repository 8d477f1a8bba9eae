CREATE OR REPLACE FUNCTION guard_node_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF OLD.lifecycle = 'pxe' AND OLD.status = 'discovered' THEN
        PERFORM 1 FROM audit_log l
            WHERE l.resource_kind = 'node' AND l.resource_id = OLD.id AND l.kind = 'action' AND l.name = 'purge' AND l.at = now()
              AND l.txid = pg_current_xact_id()::text::bigint;
        IF FOUND THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'rows of nodes are never deleted: move them to their terminal state; only a discovered node can be purged, with an audit row'
        USING ERRCODE = 'SW001';
END $$;
