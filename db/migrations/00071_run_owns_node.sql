-- A run that installs its machine again, or has it leave, owns the node that it takes out of service.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_owned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM 1 FROM nodes n WHERE n.id = NEW.id AND n.status IN ('draining', 'removing')
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id AND (j.kind IN ('decommission', 'node_operation') OR j.kind = 'machine_run' AND n.status = 'draining')
            AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'));
    IF FOUND THEN
        RAISE EXCEPTION 'node % entered % and no live job owns it: create or resume one in the same transaction', NEW.id, NEW.status
            USING ERRCODE = 'SW004';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_owned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM 1 FROM nodes n WHERE n.id = NEW.id AND n.status IN ('draining', 'removing')
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id AND j.kind IN ('decommission', 'node_operation')
            AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'));
    IF FOUND THEN
        RAISE EXCEPTION 'node % entered % and no live job owns it: create or resume one in the same transaction', NEW.id, NEW.status
            USING ERRCODE = 'SW004';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
