-- A BMC has a node or a rack device, never both: what is in a rack beside its machines is never a
-- node and never claimed.
CREATE OR REPLACE FUNCTION rack_device_has_no_node() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
