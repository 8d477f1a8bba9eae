-- A node that becomes free wakes a request that waits for one. docs/allocation-jobs.md explains the rules.

-- +goose Up
-- The nodes that became free while requests waited, and which request was told of each. It is a hint: a request that nobody tells looks again by itself.
CREATE TABLE claim_wakes (
    node_id       text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    freed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    allocation_id text,
    woken_at      timestamptz
);
CREATE INDEX claim_wakes_due ON claim_wakes (freed_at) WHERE woken_at IS NULL;

-- +goose StatementBegin
-- note_free_node notes a node that a claim may take from now on, whatever made it so, if a request waits for its SKU.
CREATE FUNCTION note_free_node() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM allocations a WHERE a.status = 'requested' AND a.sku_id = NEW.sku_id) THEN
        INSERT INTO claim_wakes (node_id) VALUES (NEW.id)
        ON CONFLICT (node_id) DO UPDATE SET freed_at = clock_timestamp(), allocation_id = NULL, woken_at = NULL;
        NOTIFY slipway_outbox;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER nodes_note_free AFTER UPDATE OF status, allocation_id, tenant_left_at ON nodes FOR EACH ROW
    WHEN (NEW.status = 'active' AND NEW.allocation_id IS NULL AND NEW.tenant_left_at IS NULL
        AND (OLD.status <> 'active' OR OLD.allocation_id IS NOT NULL OR OLD.tenant_left_at IS NOT NULL))
    EXECUTE FUNCTION note_free_node();

-- +goose Down
DROP TRIGGER nodes_note_free ON nodes;
DROP FUNCTION note_free_node;
DROP TABLE claim_wakes;
