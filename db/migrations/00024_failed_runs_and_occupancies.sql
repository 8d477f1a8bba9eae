-- The attention list shows machines whose run failed: indexes of the view machine_attention. The
-- history of a node shows when it was in maintenance.

-- +goose Up
CREATE INDEX machines_in_maintenance ON machines (id) WHERE status = 'MAINTENANCE';
CREATE INDEX runs_by_machine ON runs (machine_id, id);

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER nodes_note_occupancy AFTER UPDATE OF status, tenant_left_at ON nodes FOR EACH ROW
    WHEN (NEW.allocation_id IS NULL AND NEW.status <> 'offline'
        AND (OLD.status IS DISTINCT FROM NEW.status OR OLD.tenant_left_at IS NOT NULL AND NEW.tenant_left_at IS NULL))
    EXECUTE FUNCTION note_occupancy();
