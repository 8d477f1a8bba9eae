CREATE OR REPLACE FUNCTION guard_edge(p_resource text, p_lifecycle text, p_from text, p_to text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM 1 FROM lifecycle_edges e
        WHERE e.resource = p_resource AND e.lifecycle = p_lifecycle AND e.from_state = p_from AND e.to_state = p_to;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% (lifecycle %) cannot go from % to %: lifecycle_edges has no such edge',
            p_resource, quote_literal(p_lifecycle), quote_literal(p_from), quote_literal(p_to) USING ERRCODE = 'SW001';
    END IF;
END $$;
