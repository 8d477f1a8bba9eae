-- What a certificate proves of tenants who left before, and how often a job was taken back.

-- +goose Up
-- Nothing of a tenant who left before this time is on the node; empty where the certificate does not prove that. A mode that keeps the installed system
-- proves it without a verdict of clean.
ALTER TABLE certificates ADD COLUMN sanitized_since timestamptz;

-- How often the job was taken back. A task that a run of before asks for is refused.
ALTER TABLE jobs ADD COLUMN compensations integer NOT NULL DEFAULT 0 CHECK (compensations >= 0);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_job_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('job', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of job % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('job', '', OLD.status, NEW.status);
    NEW.state_changed_at := now();
    IF NEW.status = 'compensating' THEN
        NEW.compensations := OLD.compensations + 1;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_job_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('job', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of job % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('job', '', OLD.status, NEW.status);
    NEW.state_changed_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER TABLE jobs DROP COLUMN compensations;
ALTER TABLE certificates DROP COLUMN sanitized_since;
