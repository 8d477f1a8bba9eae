-- Switch trays and power shelves of a rack: a BMC with health and firmware, and nothing that could be claimed.

-- +goose Up
CREATE TABLE rack_devices (
    id         text PRIMARY KEY CHECK (id LIKE 'rackdev\_%'),
    site_id    text NOT NULL REFERENCES sites (id),
    kind       text NOT NULL CHECK (kind IN ('switch_tray', 'power_shelf')),
    name       text NOT NULL CHECK (name <> '' AND octet_length(name) <= 200),
    rack       text NOT NULL DEFAULT '' CHECK (octet_length(rack) <= 200),
    bmc_id     text NOT NULL CONSTRAINT rack_devices_bmc_unique UNIQUE REFERENCES bmcs (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT rack_devices_name_unique UNIQUE (site_id, name)
);

-- A BMC has a node or a rack device, never both: what is in a rack beside its machines is never a node and never claimed.
-- +goose StatementBegin
CREATE FUNCTION rack_device_has_no_node() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    in_both boolean; -- the two tables have different columns, so that each row is read by a statement of its own
BEGIN
    IF TG_TABLE_NAME = 'rack_devices' THEN
        in_both := EXISTS (SELECT FROM bmcs b WHERE b.id = NEW.bmc_id AND b.node_id IS NOT NULL);
    ELSE
        in_both := NEW.node_id IS NOT NULL AND EXISTS (SELECT FROM rack_devices d WHERE d.bmc_id = NEW.id);
    END IF;
    IF in_both THEN
        RAISE EXCEPTION 'the BMC of a rack device belongs to no node' USING ERRCODE = 'check_violation', CONSTRAINT = 'rack_devices_no_node';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER rack_device_has_no_node BEFORE INSERT OR UPDATE ON rack_devices FOR EACH ROW EXECUTE FUNCTION rack_device_has_no_node();
CREATE TRIGGER bmc_of_rack_device_has_no_node BEFORE UPDATE OF node_id ON bmcs FOR EACH ROW EXECUTE FUNCTION rack_device_has_no_node();

-- +goose Down
DROP TRIGGER bmc_of_rack_device_has_no_node ON bmcs;
DROP TABLE rack_devices;
DROP FUNCTION rack_device_has_no_node;
