-- app_project returns the project that the transaction is bound to. It raises where there is none:
-- the setting stays as an empty text on a connection that had one before, and an empty answer would
-- hide the mistake.
CREATE OR REPLACE FUNCTION app_project() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    id text := current_setting('app.project', true);
BEGIN
    IF id IS NULL OR id = '' THEN
        RAISE EXCEPTION 'no project is set for this transaction: use Store.ForProject' USING ERRCODE = '42501';
    END IF;
    RETURN id;
END $$;

-- isolate_by_project binds a table to the project of the transaction. The owner of the tables gets
-- no policy: a plain view or a function of the owner then sees no row, instead of every project's.
CREATE OR REPLACE FUNCTION isolate_by_project(relation regclass, key name DEFAULT 'project_id'::name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', relation);
    EXECUTE format('CREATE POLICY customer ON %s TO slipway_customer USING (%I = (SELECT app_project())) WITH CHECK (%I = (SELECT app_project()))',
        relation, key, key);
    EXECUTE format('CREATE POLICY platform ON %s TO slipway_app USING (true) WITH CHECK (true)', relation);
    EXECUTE format('CREATE POLICY reader ON %s FOR SELECT TO slipway_read USING (true)', relation);
END $$;

CREATE OR REPLACE FUNCTION guard_project_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('project', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of project % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('project', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION guard_invitation_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('invitation', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.version <= OLD.version THEN
        RAISE EXCEPTION 'a status change of invitation % must raise its version', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF (NEW.email, NEW.subject, NEW.role, NEW.expires_at) IS DISTINCT FROM (OLD.email, OLD.subject, OLD.role, OLD.expires_at) THEN
        RAISE EXCEPTION 'invitation % cannot be changed, only ended', OLD.id USING ERRCODE = 'SW001';
    END IF;
    PERFORM guard_edge('invitation', '', OLD.status, NEW.status);
    RETURN NEW;
END $$;

-- A project that had an owner keeps one, also when two owners leave at the same time: the second
-- waits for the lock of the project.
CREATE OR REPLACE FUNCTION guard_last_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM 1 FROM projects p WHERE p.id = OLD.project_id FOR NO KEY UPDATE;
    IF FOUND AND NOT EXISTS (SELECT FROM project_members m WHERE m.project_id = OLD.project_id AND m.role = 'owner') THEN
        RAISE EXCEPTION 'project % would have no owner', OLD.project_id USING ERRCODE = 'SW004';
    END IF;
    RETURN NULL;
END $$;

-- The customers' role has no right to the audit log. It writes and reads the chain of its own
-- project by these functions of the owner.
CREATE OR REPLACE FUNCTION project_audit_append(p_id text, p_name text, p_triggered_by text, p_owner text, p_actor_id text, p_comment text, p_metadata jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, triggered_by, owner, actor_id, comment, metadata)
    VALUES (p_id, 'project', app_project(), 'action', p_name, p_triggered_by, p_owner, p_actor_id, p_comment, p_metadata)
$$;

-- project_audit lists the audit log of the project, newest first. pos counts the rows of this log
-- alone: audit_log.pos would tell a customer how much all others do.
CREATE OR REPLACE FUNCTION project_audit(p_before bigint, p_rows integer) RETURNS SETOF jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT jsonb_build_object('pos', l.seq, 'id', l.id, 'kind', l.kind, 'name', l.name, 'from_state', l.from_state, 'to_state', l.to_state,
        'triggered_by', l.triggered_by, 'actor_id', l.actor_id, 'comment', l.comment, 'metadata', l.metadata, 'at', l.at)
    FROM audit_log l
    WHERE l.resource_kind = 'project' AND l.resource_id = (SELECT app_project()) AND (p_before = 0 OR l.seq < p_before)
    ORDER BY l.seq DESC LIMIT p_rows
$$;

CREATE OR REPLACE FUNCTION guard_account_currency() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the currency of billing account % is fixed; create another account for another currency', OLD.id USING ERRCODE = 'SW005';
END $$;

CREATE OR REPLACE FUNCTION guard_ledger_account() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.balance_minor, NEW.last_seq, NEW.head) <> (0, 0, ''::bytea) THEN
        RAISE EXCEPTION 'a new ledger account has no balance' USING ERRCODE = 'SW003';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION guard_ledger_time() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'a ledger transaction carries the time of its own transaction' USING ERRCODE = 'SW003';
END $$;

-- Whatever deletes an SSH key of a project withdraws it from the allocations of the project in the
-- same transaction, with the rights of whoever deletes it.
CREATE OR REPLACE FUNCTION withdraw_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE allocation_keys k SET withdrawn_at = clock_timestamp(), withdrawn_member = OLD.member_id, refused_at = NULL, tried_at = NULL
    WHERE k.project_id = OLD.project_id AND k.fingerprint = OLD.fingerprint AND k.withdrawn_at IS NULL
      AND EXISTS (SELECT FROM allocations a WHERE a.project_id = k.project_id AND a.id = k.allocation_id AND a.status NOT IN ('released', 'failed'));
    RETURN NULL;
END $$;
