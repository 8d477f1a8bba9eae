CREATE OR REPLACE FUNCTION guard_instance() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('instance', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.project_id, NEW.provider, NEW.account, NEW.zone, NEW.type, NEW.image, NEW.model, NEW.job_id, NEW.created_by, NEW.created_at) IS DISTINCT FROM
        (OLD.project_id, OLD.provider, OLD.account, OLD.zone, OLD.type, OLD.image, OLD.model, OLD.job_id, OLD.created_by, OLD.created_at) THEN
        RAISE EXCEPTION 'what was asked for with instance % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.server_id <> '' AND NEW.server_id <> OLD.server_id THEN
        RAISE EXCEPTION 'instance % has server % and gets no other', OLD.id, OLD.server_id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.worker_hash IS NOT NULL AND NEW.status IN ('terminating', 'terminated', 'archived') THEN
        RAISE EXCEPTION 'the worker of instance % has ended', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.heartbeat_seq < OLD.heartbeat_seq AND NEW.worker_hash IS NOT DISTINCT FROM OLD.worker_hash THEN
        RAISE EXCEPTION 'a heartbeat of instance % is older than the last one', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a status change of instance % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('instance', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;

-- follow_instance keeps the usage record with its instance, whatever moves it: the charge begins
-- when the instance is ready, and ends when it is terminating, or has failed or ended another way.
-- It ends at the latest five minutes after the longest drain that was asked for, also while the
-- control plane is down. An instance that can become ready no more is closed. A record is that of
-- the project's billing account; one without a project is free.
CREATE OR REPLACE FUNCTION follow_instance() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r usage_records;
    billed timestamptz;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO usage_records (project_id, instance_id, id, billing_account_id, instance_type, currency, created_at)
        SELECT NEW.project_id, NEW.id, 'usg_' || substr(NEW.id, 6) || '-i', b.id, NEW.provider || '/' || NEW.type, b.currency, now()
        FROM projects p JOIN billing_accounts b ON b.id = p.billing_account_id WHERE p.id = NEW.project_id;
        RETURN NULL;
    END IF;
    SELECT * INTO r FROM usage_records u WHERE u.instance_id = NEW.id FOR NO KEY UPDATE;
    IF NOT FOUND OR r.closed_at IS NOT NULL OR r.end_time IS NOT NULL THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'ready' AND r.start_time IS NULL THEN
        r.start_time := greatest(NEW.ready_at, r.created_at);
        UPDATE usage_records u SET start_time = r.start_time WHERE u.instance_id = NEW.id;
        INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
        VALUES (r.project_id, r.id, 0, r.billing_account_id, r.currency, coalesce(rate_at(r.item, r.currency, r.start_time, r.start_time), 0),
            r.start_time, r.start_time);
    ELSIF NEW.status = 'draining' THEN
        UPDATE usage_records u SET end_cap = least(r.end_cap, now() + make_interval(secs => NEW.drain_seconds + 300)) WHERE u.instance_id = NEW.id;
    ELSIF NEW.status IN ('terminating', 'terminated', 'archived', 'failed', 'provisioning_failed') AND r.start_time IS NULL THEN
        UPDATE usage_records u SET closed_at = now() WHERE u.instance_id = NEW.id;
    ELSIF NEW.status IN ('terminating', 'terminated', 'archived', 'failed', 'provisioning_failed') THEN
        SELECT max(s.billed_through) INTO billed FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id;
        UPDATE usage_records u SET end_time = greatest(least(now(), r.end_cap), billed) WHERE u.instance_id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
