-- What a project may do with a machine of a node ends with its allocation of the node. docs/allocations.md has the table of these rights.

-- +goose Up
-- node_occupant returns the allocation that has a node, or had it last and is not proven to be gone; NULL for none. Customers cannot read these tables; the id of
-- an allocation of another project gives them no right, and no query returns it.
-- +goose StatementBegin
CREATE FUNCTION node_occupant(p_node text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(n.allocation_id, o.allocation_id) FROM nodes n
    LEFT JOIN node_occupancies o ON o.node_id = n.id AND o.until IS NULL AND o.state IN ('allocated', 'releasing', 'sanitizing', 'clean')
    WHERE n.id = p_node
$$;
-- +goose StatementEnd

-- may_use_machine says whether a project that a machine belongs to may use it now: a machine of a node that somebody occupies is used by the project of
-- the allocation alone, until the release of that is fenced. A transaction of a customer sees the allocations of its own project; that is enough.
-- +goose StatementBegin
CREATE FUNCTION may_use_machine(p_project text, p_node text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT p_node IS NULL OR coalesce((
        SELECT o.id IS NULL OR EXISTS (SELECT FROM allocations a
            WHERE a.id = o.id AND a.project_id = p_project AND a.status IN ('provisioning', 'active') AND a.release_requested_at IS NULL)
        FROM (SELECT node_occupant(p_node) AS id) o), false)
$$;
-- +goose StatementEnd

CREATE POLICY customer_uses ON machines AS RESTRICTIVE TO slipway_customer USING (may_use_machine(project_id, node_id));

-- Projects that have given their node back before this migration. The owner of the tables has no policy of its own.
ALTER TABLE machines NO FORCE ROW LEVEL SECURITY;
ALTER TABLE allocations NO FORCE ROW LEVEL SECURITY;
UPDATE machines m SET project_id = NULL, version = version + 1, updated_at = now()
WHERE m.project_id IS NOT NULL AND m.node_id IS NOT NULL AND (NOT may_use_machine(m.project_id, m.node_id)
    OR node_occupant(m.node_id) IS NULL AND EXISTS (SELECT FROM allocations a WHERE a.node_id = m.node_id AND a.project_id = m.project_id));
ALTER TABLE allocations FORCE ROW LEVEL SECURITY;
ALTER TABLE machines FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP POLICY customer_uses ON machines;
DROP FUNCTION may_use_machine, node_occupant;
