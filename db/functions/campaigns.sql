CREATE OR REPLACE FUNCTION guard_run_campaign() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run_campaign', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.project_id, NEW.request_id, NEW.type, NEW.plan_id, NEW.filter, NEW.selection_hash, NEW.max_parallel, NEW.stop_after, NEW.skip_canary,
        NEW.accept_risk, NEW.created_by, NEW.created_at) IS DISTINCT FROM (OLD.project_id, OLD.request_id, OLD.type, OLD.plan_id, OLD.filter,
        OLD.selection_hash, OLD.max_parallel, OLD.stop_after, OLD.skip_canary, OLD.accept_risk, OLD.created_by, OLD.created_at) THEN
        RAISE EXCEPTION 'what campaign % does cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the state of campaign % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('run_campaign', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION guard_run_campaign_member() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run_campaign_member', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.campaign_id, NEW.ordinal, NEW.machine_id) IS DISTINCT FROM (OLD.campaign_id, OLD.ordinal, OLD.machine_id) THEN
        RAISE EXCEPTION 'the machines of campaign % cannot change', OLD.campaign_id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        PERFORM guard_edge('run_campaign_member', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
