-- A run that changes the network of its machine may move where it is reached: to the endpoint that its step states, and nowhere else.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_machine() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('machine', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of machine % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('machine', '', OLD.status, NEW.status);
    ELSIF NEW.active_run_id IS DISTINCT FROM OLD.active_run_id THEN
        RAISE EXCEPTION 'the active run of machine % changes with its phase', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.active_run_id IS NOT NULL AND NEW.active_run_id IS NOT NULL AND ((NEW.node_id, NEW.site_id, NEW.host_key,
        NEW.spec ->> 'bmc_endpoint', NEW.spec ->> 'provider', NEW.spec -> 'mac_addresses', NEW.spec ->> 'serial') IS DISTINCT FROM
        (OLD.node_id, OLD.site_id, OLD.host_key, OLD.spec ->> 'bmc_endpoint', OLD.spec ->> 'provider', OLD.spec -> 'mac_addresses', OLD.spec ->> 'serial')
        OR NEW.spec ->> 'ssh_endpoint' IS DISTINCT FROM OLD.spec ->> 'ssh_endpoint' AND NOT EXISTS (
            SELECT 1 FROM runs r, jsonb_array_elements(r.steps) s
            WHERE r.id = OLD.active_run_id AND s -> 'net' ->> 'ssh_endpoint' = NEW.spec ->> 'ssh_endpoint')) THEN
        RAISE EXCEPTION 'how machine % is reached cannot change while a run is active', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_machine() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('machine', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of machine % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('machine', '', OLD.status, NEW.status);
    ELSIF NEW.active_run_id IS DISTINCT FROM OLD.active_run_id THEN
        RAISE EXCEPTION 'the active run of machine % changes with its phase', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.active_run_id IS NOT NULL AND NEW.active_run_id IS NOT NULL AND (NEW.node_id, NEW.site_id, NEW.host_key, NEW.spec ->> 'ssh_endpoint',
        NEW.spec ->> 'bmc_endpoint', NEW.spec ->> 'provider', NEW.spec -> 'mac_addresses', NEW.spec ->> 'serial') IS DISTINCT FROM
        (OLD.node_id, OLD.site_id, OLD.host_key, OLD.spec ->> 'ssh_endpoint', OLD.spec ->> 'bmc_endpoint', OLD.spec ->> 'provider',
        OLD.spec -> 'mac_addresses', OLD.spec ->> 'serial') THEN
        RAISE EXCEPTION 'how machine % is reached cannot change while a run is active', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
