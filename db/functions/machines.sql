CREATE OR REPLACE FUNCTION guard_machine() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('machine', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of machine % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('machine', '', OLD.status, NEW.status);
    ELSIF NEW.active_run_id IS DISTINCT FROM OLD.active_run_id THEN
        RAISE EXCEPTION 'the active run of machine % changes with its phase', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.active_run_id IS NOT NULL AND NEW.active_run_id IS NOT NULL AND ((NEW.node_id, NEW.site_id, NEW.host_key,
        NEW.spec ->> 'bmc_endpoint', NEW.spec ->> 'provider', NEW.spec -> 'mac_addresses', NEW.spec ->> 'serial') IS DISTINCT FROM
        (OLD.node_id, OLD.site_id, OLD.host_key, OLD.spec ->> 'bmc_endpoint', OLD.spec ->> 'provider', OLD.spec -> 'mac_addresses', OLD.spec ->> 'serial')
        OR NEW.spec ->> 'ssh_endpoint' IS DISTINCT FROM OLD.spec ->> 'ssh_endpoint' AND NOT EXISTS (
            SELECT 1 FROM runs r, jsonb_array_elements(r.steps) s
            WHERE r.id = OLD.active_run_id AND s -> 'net' ->> 'ssh_endpoint' = NEW.spec ->> 'ssh_endpoint')) THEN
        RAISE EXCEPTION 'how machine % is reached cannot change while a run is active', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION guard_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION wake_run_logs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('slipway_run_logs', NEW.run_id);
    RETURN NULL;
END $$;

-- The end of a run ends the reading of its output.
CREATE OR REPLACE FUNCTION wake_run_heads() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('slipway_run_logs', NEW.id);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION guard_run_retry() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'what run % is a retry of cannot change', OLD.id USING ERRCODE = 'SW001';
END $$;

-- may_use_machine says whether a project that a machine belongs to may use it now: a machine of a
-- node that somebody occupies is used by the project of the allocation alone, until the release of
-- that is fenced. A transaction of a customer sees the allocations of its own project; that is
-- enough.
CREATE OR REPLACE FUNCTION may_use_machine(p_project text, p_node text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT p_node IS NULL OR coalesce((
        SELECT o.id IS NULL OR EXISTS (SELECT FROM allocations a
            WHERE a.id = o.id AND a.project_id = p_project AND a.status IN ('provisioning', 'active') AND a.release_requested_at IS NULL)
        FROM (SELECT node_occupant(p_node) AS id) o), false)
$$;

-- leaves_traces says whether a run with these values has brought something of a project to its
-- machine.
CREATE OR REPLACE FUNCTION leaves_traces(p_project text, p_started timestamp with time zone, p_steps jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT p_project IS NOT NULL AND p_started IS NOT NULL AND jsonb_path_exists(p_steps, '$[*] ? (exists (@.ssh) || exists (@.net) || exists (@.join))')
$$;

-- holds_traces says whether a run has brought something of a project to a machine, and nothing has
-- proven the node that is the machine clean since.
CREATE OR REPLACE FUNCTION holds_traces(p_machine text, p_node text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM (
        SELECT c.joined_at AS at FROM machine_clusters c WHERE c.machine_id = p_machine AND c.joined_at IS NOT NULL
        UNION ALL
        SELECT coalesce(r.finished_at, now()) FROM runs r WHERE r.machine_id = p_machine AND leaves_traces(r.project_id, r.started_at, r.steps)) t
    WHERE NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = p_node AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > t.at))
$$;

-- mark_machine_left: when a project loses a machine that a run has changed, the node that is the
-- machine is as dirty as one that a tenant left. A node that an allocation has is marked when that
-- ends.
CREATE OR REPLACE FUNCTION mark_machine_left() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE nodes n SET tenant_left_at = now(), left_by_machine = true WHERE n.tenant_left_at IS NULL AND n.allocation_id IS NULL AND n.lifecycle = 'maas'
        AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
        AND EXISTS (SELECT FROM holders_of_node(n.id, n.site_id, n.serial, n.macs, n.ssh_host_key, n.ssh_address) h WHERE h.machine_id = OLD.id)
        AND holds_traces(OLD.id, n.id);
    RETURN NEW;
END $$;

-- is_run_unneeded says whether a run may be deleted: it ended more than a day ago, nothing names it
-- any more, and its output is gone. The newest run of a machine stays, and so does the newest one
-- that has left traces of a project there: holds_traces reads it.
CREATE OR REPLACE FUNCTION is_run_unneeded(p_run text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM runs r
        WHERE r.id = p_run AND r.finished_at < now() - interval '1 day'
          AND EXISTS (SELECT FROM runs l WHERE l.machine_id = r.machine_id AND l.id > r.id
              AND (leaves_traces(l.project_id, l.started_at, l.steps) OR NOT leaves_traces(r.project_id, r.started_at, r.steps)))
          AND NOT EXISTS (SELECT FROM runs n WHERE n.retry_of = r.id)
          AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id AND j.finished_at IS NULL)
          AND NOT EXISTS (SELECT FROM run_campaign_members m WHERE m.run_id = r.id)
          AND NOT EXISTS (SELECT FROM cluster_tokens t WHERE t.run_id = r.id)
          AND NOT EXISTS (SELECT FROM run_logs o WHERE o.run_id = r.id))
$$;

CREATE OR REPLACE FUNCTION guard_run_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT is_run_unneeded(OLD.id) THEN
        RAISE EXCEPTION 'run % is still needed; it is not deleted', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN OLD;
END $$;

-- prune_runs deletes runs that ended before p_before and are not needed, at most p_max, and returns
-- how many. It looks at ten times as many, the oldest first, goes on there the next time, and
-- starts over at the end, as prune_jobs does. Their audit log and events stay.
CREATE OR REPLACE FUNCTION prune_runs(p_before timestamp with time zone, p_max integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    place record;
    seen  text[];
    ids   text[];
    last  text;
BEGIN
    SELECT p.runs_pruned_at AS at, p.runs_pruned_id AS id INTO place FROM sweep_passes p FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0; -- another process prunes
    END IF;
    SELECT array_agg(w.id ORDER BY w.finished_at, w.id) INTO seen FROM (
        SELECT r.id, r.finished_at FROM runs r
        WHERE (r.finished_at, r.id) > (place.at, place.id) AND r.finished_at < least(p_before, now() - interval '1 day')
        ORDER BY r.finished_at, r.id LIMIT p_max * 10) w;
    SELECT array_agg(d.id ORDER BY d.n) INTO ids FROM (
        SELECT r.id, w.n FROM unnest(seen) WITH ORDINALITY w(id, n) JOIN runs r ON r.id = w.id
        WHERE is_run_unneeded(r.id) ORDER BY w.n LIMIT p_max FOR UPDATE OF r SKIP LOCKED) d;
    last := CASE WHEN cardinality(ids) = p_max THEN ids[p_max] WHEN cardinality(seen) = p_max * 10 THEN seen[p_max * 10] END;
    UPDATE sweep_passes p SET runs_pruned_id = coalesce(last, ''),
        runs_pruned_at = coalesce((SELECT r.finished_at FROM runs r WHERE r.id = last), '-infinity');
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM run_log_heads WHERE run_id = ANY (ids);
    DELETE FROM runs WHERE id = ANY (ids);
    RETURN cardinality(ids);
END $$;
