CREATE OR REPLACE FUNCTION guard_job_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

-- Seed 001 section 3.3: a node that enters draining or removing has a live job that owns it when
-- the transaction commits. It looks at the row as it is then, so that what passes through within
-- one transaction needs none. That a job later ends without moving its node is no business of this
-- guard: refusing the end would keep the job for ever in a state that is not true; the view
-- attention shows such a node, and resume gives it a new owner.
CREATE OR REPLACE FUNCTION guard_owned() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
