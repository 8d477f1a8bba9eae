-- A run that an operator started for one that failed. docs/machines.md explains it.

-- +goose Up
ALTER TABLE runs ADD COLUMN retry_of text REFERENCES runs (id);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.machine_id, NEW.request_id, NEW.type, NEW.plan_id, NEW.steps, NEW.job_id, NEW.created_by, NEW.created_at, NEW.accept_risk, NEW.retry_of) IS DISTINCT FROM
        (OLD.machine_id, OLD.request_id, OLD.type, OLD.plan_id, OLD.steps, OLD.job_id, OLD.created_by, OLD.created_at, OLD.accept_risk, OLD.retry_of) THEN
        RAISE EXCEPTION 'what run % does cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.finished_at IS NOT NULL AND to_jsonb(NEW) - 'project_id' IS DISTINCT FROM to_jsonb(OLD) - 'project_id' THEN
        RAISE EXCEPTION 'run % has ended; it cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of run % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('run', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.machine_id, NEW.request_id, NEW.type, NEW.plan_id, NEW.steps, NEW.job_id, NEW.created_by, NEW.created_at, NEW.accept_risk) IS DISTINCT FROM
        (OLD.machine_id, OLD.request_id, OLD.type, OLD.plan_id, OLD.steps, OLD.job_id, OLD.created_by, OLD.created_at, OLD.accept_risk) THEN
        RAISE EXCEPTION 'what run % does cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.finished_at IS NOT NULL AND to_jsonb(NEW) - 'project_id' IS DISTINCT FROM to_jsonb(OLD) - 'project_id' THEN
        RAISE EXCEPTION 'run % has ended; it cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of run % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('run', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER TABLE runs DROP COLUMN retry_of;
