CREATE OR REPLACE FUNCTION audit_refuse_edit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'SW003';
END $$;

CREATE OR REPLACE FUNCTION audit_chain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head audit_heads;
BEGIN
    IF NEW.at IS DISTINCT FROM now() THEN
        RAISE EXCEPTION 'an audit row carries the time of its own transaction' USING ERRCODE = 'SW003';
    END IF;
    LOOP
        SELECT * INTO head FROM audit_heads h
            WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO audit_heads VALUES (NEW.resource_kind, NEW.resource_id, 0, '') ON CONFLICT DO NOTHING;
    END LOOP;
    NEW.seq := head.seq + 1;
    NEW.prev_hash := head.hash;
    NEW.txid := pg_current_xact_id()::text::bigint;
    NEW.hash := audit_row_hash(NEW);
    UPDATE audit_heads h SET seq = NEW.seq, hash = NEW.hash,
        moved_txid = CASE WHEN NEW.kind = 'transition' THEN NEW.txid ELSE h.moved_txid END,
        moved_version = CASE WHEN NEW.kind = 'transition' THEN NEW.version ELSE h.moved_version END,
        moved_from = CASE WHEN NEW.kind = 'transition' THEN NEW.from_state ELSE h.moved_from END,
        moved_to = CASE WHEN NEW.kind = 'transition' THEN NEW.to_state ELSE h.moved_to END
        WHERE h.resource_kind = NEW.resource_kind AND h.resource_id = NEW.resource_id;
    RETURN NEW;
END $$;

-- audit_verify walks one chain and returns the first seq that is missing or does not match, or null
-- when the chain is whole.
CREATE OR REPLACE FUNCTION audit_verify(p_kind text, p_id text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r audit_log;
    expected bigint := 1;
    previous bytea := '';
    head audit_heads;
BEGIN
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id ORDER BY l.seq, l.pos LOOP
        IF r.seq <> expected OR r.prev_hash <> previous OR r.hash <> audit_row_hash(r) THEN
            RETURN expected;
        END IF;
        expected := expected + 1;
        previous := r.hash;
    END LOOP;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> expected - 1 OR head.hash <> previous) THEN
        RETURN expected;
    END IF;
    IF NOT FOUND AND expected > 1 THEN
        RETURN expected;
    END IF;
    RETURN NULL;
END $$;

-- audit_ensure_partitions makes the partitions of the coming months, at most five years ahead. It runs
-- as the owner.
CREATE OR REPLACE FUNCTION audit_ensure_partitions(months integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    month timestamp;
    part text;
    made integer := 0;
BEGIN
    IF months IS NULL OR months NOT BETWEEN 0 AND 60 THEN
        RAISE EXCEPTION 'audit partitions can be made for 0 to 60 months ahead, not for %', months USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('slipway:audit_partitions', 0));
    FOR i IN 0..months LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
        part := 'audit_log_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass('public.' || part) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE public.%I PARTITION OF public.audit_log FOR VALUES FROM (%L) TO (%L)', part,
                month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
            EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION public.audit_refuse_edit()',
                part || '_no_truncate', part);
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            RAISE NOTICE '% stays in the default partition: it already holds rows of that month', part;
        END;
    END LOOP;
    RETURN made;
END $$;

-- prune_jobs deletes jobs that ended before, with their stages and tries, at most p_max, and
-- returns how many. It looks at ten times as many, the oldest first, goes on there the next time,
-- and starts over at the end: jobs that stay are not looked at each time. It keeps the newest job
-- of each kind of a node or BMC, jobs of a batch, and jobs that a task or a start still names.
-- Their audit log, events and certificates stay. Serving processes may delete no job themselves,
-- and through it none that ended within a day.
CREATE OR REPLACE FUNCTION prune_jobs(p_before timestamp with time zone, p_max integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    place record;
    seen  text[];
    ids   text[];
    last  text;
BEGIN
    SELECT p.pruned_at AS at, p.pruned_id AS id INTO place FROM sweep_passes p FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0; -- another process is at it
    END IF;
    SELECT array_agg(w.id ORDER BY w.finished_at, w.id) INTO seen FROM (
        SELECT j.id, j.finished_at FROM jobs j
        WHERE j.status IN ('completed', 'reconciled', 'cancelled') AND (j.finished_at, j.id) > (place.at, place.id)
          AND j.finished_at < least(p_before, now() - interval '1 day')
        ORDER BY j.finished_at, j.id LIMIT p_max * 10) w;
    SELECT array_agg(d.id ORDER BY d.n) INTO ids FROM (
        SELECT j.id, w.n FROM unnest(seen) WITH ORDINALITY w(id, n) JOIN jobs j ON j.id = w.id
        WHERE (EXISTS (SELECT 1 FROM jobs l WHERE l.node_id = j.node_id AND l.kind = j.kind AND l.id > j.id)
              OR j.node_id IS NULL AND EXISTS (SELECT 1 FROM jobs l WHERE l.bmc_id = j.bmc_id AND l.kind = j.kind AND l.id > j.id))
          AND NOT EXISTS (SELECT 1 FROM batch_items b WHERE b.job_id = j.id)
          AND NOT EXISTS (SELECT 1 FROM node_tasks t WHERE t.job_id = j.id)
          AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.job_id = j.id)
        ORDER BY w.n LIMIT p_max FOR UPDATE OF j SKIP LOCKED) d;
    last := CASE WHEN cardinality(ids) = p_max THEN ids[p_max] WHEN cardinality(seen) = p_max * 10 THEN seen[p_max * 10] END;
    UPDATE sweep_passes p SET pruned_id = coalesce(last, ''),
        pruned_at = coalesce((SELECT j.finished_at FROM jobs j WHERE j.id = last), '-infinity');
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM action_logs WHERE job_id = ANY (ids);
    DELETE FROM job_stages WHERE job_id = ANY (ids);
    DELETE FROM sweep_findings WHERE job_id = ANY (ids);
    UPDATE enrollment_tokens SET job_id = NULL WHERE job_id = ANY (ids);
    UPDATE node_plans SET job_id = NULL WHERE job_id = ANY (ids);
    DELETE FROM jobs WHERE id = ANY (ids);
    RETURN cardinality(ids);
END $$;

-- audit_verify_part verifies at most p_max rows of a chain after one that was verified: the first
-- of these follows it, and at the end of the chain its head agrees. It returns the first broken
-- number, or null, and how far it came.
CREATE OR REPLACE FUNCTION audit_verify_part(p_kind text, p_id text, p_after bigint, p_previous bytea, p_max integer, OUT broken bigint, OUT seq bigint, OUT hash bytea, OUT ended boolean) RETURNS record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r audit_log;
    head audit_heads;
    rows integer := 0;
BEGIN
    seq := p_after;
    hash := p_previous;
    ended := true;
    -- The row before is read again, so that a second one with its number is found.
    FOR r IN SELECT * FROM audit_log l WHERE l.resource_kind = p_kind AND l.resource_id = p_id AND l.seq >= p_after ORDER BY l.seq, l.pos LIMIT p_max + 1 LOOP
        rows := rows + 1;
        IF rows = 1 AND p_after > 0 THEN
            IF r.seq <> p_after OR r.hash <> p_previous THEN
                broken := p_after;
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        IF r.seq <> seq + 1 OR r.prev_hash <> hash OR r.hash <> audit_row_hash(r) THEN
            broken := seq + 1;
            RETURN;
        END IF;
        seq := r.seq;
        hash := r.hash;
    END LOOP;
    IF rows = 0 AND p_after > 0 THEN
        broken := p_after;
        RETURN;
    END IF;
    IF rows = p_max + 1 THEN
        ended := false;
        RETURN;
    END IF;
    SELECT * INTO head FROM audit_heads h WHERE h.resource_kind = p_kind AND h.resource_id = p_id;
    IF FOUND AND (head.seq <> seq OR head.hash <> hash) OR NOT FOUND AND seq > 0 THEN
        broken := seq + 1;
    END IF;
END $$;
