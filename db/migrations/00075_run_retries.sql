-- A run that an operator started for one that failed. docs/machines.md explains it.

-- +goose Up
ALTER TABLE runs ADD COLUMN retry_of text REFERENCES runs (id);

-- +goose StatementBegin
CREATE FUNCTION guard_run_retry() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'what run % is a retry of cannot change', OLD.id USING ERRCODE = 'SW001';
END $$;
-- +goose StatementEnd
CREATE TRIGGER runs_retry_update BEFORE UPDATE ON runs FOR EACH ROW WHEN (OLD.retry_of IS DISTINCT FROM NEW.retry_of) EXECUTE FUNCTION guard_run_retry();

-- +goose Down
DROP TRIGGER runs_retry_update ON runs;
DROP FUNCTION guard_run_retry;
ALTER TABLE runs DROP COLUMN retry_of;
