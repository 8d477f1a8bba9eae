-- What upkeep needs: tasks of nodes that have ended may be pruned, and what the view attention looks for stands in indexes.

-- +goose Up
-- A task is only deleted when it has ended, whoever waited was told, and the job that it belongs to has ended as well.
DROP TRIGGER node_tasks_no_delete ON node_tasks;
-- +goose StatementBegin
CREATE FUNCTION guard_task_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status NOT IN ('succeeded', 'failed', 'expired') OR (OLD.waiter_activity_id <> '' AND OLD.told_at IS NULL) OR EXISTS (
        SELECT 1 FROM jobs j WHERE j.id = OLD.job_id
            AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating')) THEN
        RAISE EXCEPTION 'task % is not deleted: it has not ended, or its job still needs it', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE TRIGGER node_tasks_no_delete BEFORE DELETE ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_task_delete();
CREATE INDEX node_tasks_ended ON node_tasks (finished_at) WHERE status IN ('succeeded', 'failed', 'expired');

CREATE INDEX bmcs_login_blocked ON bmcs (id) WHERE auth_blocked_at IS NOT NULL;
CREATE INDEX bmcs_pin_pending ON bmcs (id) WHERE pin_pending <> '';

-- +goose Down
DROP INDEX bmcs_pin_pending, bmcs_login_blocked, node_tasks_ended;
DROP TRIGGER node_tasks_no_delete ON node_tasks;
DROP FUNCTION guard_task_delete;
CREATE TRIGGER node_tasks_no_delete BEFORE DELETE ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
