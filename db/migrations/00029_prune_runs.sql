-- Runs that ended long ago are deleted. runs_pruned_at and runs_pruned_id are the ended run that
-- this came to last.

-- +goose Up
ALTER TABLE sweep_passes ADD COLUMN runs_pruned_at timestamptz NOT NULL DEFAULT '-infinity', ADD COLUMN runs_pruned_id text NOT NULL DEFAULT '';
CREATE INDEX runs_by_end ON runs (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_by_retry ON runs (retry_of) WHERE retry_of IS NOT NULL;
DROP TRIGGER runs_no_delete ON runs;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_run_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT is_run_unneeded(OLD.id) THEN
        RAISE EXCEPTION 'run % is still needed; it is not deleted', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE TRIGGER runs_delete BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION guard_run_delete();
