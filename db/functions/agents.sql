CREATE OR REPLACE FUNCTION guard_task_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('node_task', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of task % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('node_task', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;

-- A task that can be taken wakes the agent API that the node's agent waits at; one that has ended,
-- the relays.
CREATE OR REPLACE FUNCTION node_tasks_wake() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.status = 'queued' THEN
        PERFORM pg_notify('slipway_tasks', NEW.node_id);
    ELSIF NEW.status <> 'dispatched' THEN
        NOTIFY slipway_task_ends;
        -- The node's next task may be taken now.
        PERFORM pg_notify('slipway_tasks', NEW.node_id);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION guard_task_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF OLD.status NOT IN ('succeeded', 'failed', 'expired') OR (OLD.waiter_activity_id <> '' AND OLD.told_at IS NULL) OR EXISTS (
        SELECT 1 FROM jobs j WHERE j.id = OLD.job_id
            AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating')) THEN
        RAISE EXCEPTION 'task % is not deleted: it has not ended, or its job still needs it', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN OLD;
END $$;

CREATE OR REPLACE FUNCTION set_agent_renewal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NEW.renew_at := (SELECT c.not_after - (c.not_after - c.not_before) / 5 FROM agent_certificates c
        WHERE c.node_id = NEW.node_id AND c.generation = NEW.generation);
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION move_agent_renewal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE agent_identities i SET generation = i.generation WHERE i.node_id = NEW.node_id AND i.generation = NEW.generation;
    RETURN NULL;
END $$;
