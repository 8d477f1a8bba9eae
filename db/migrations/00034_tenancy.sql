-- Billing accounts, projects, and what a project's members make. Every table with a project_id has a row-level security policy for each role, made by
-- isolate_by_project; docs/adr/0016-row-level-security.md says why.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('project', '', 'create', '', 'active'),
    ('project', '', 'close', 'active', 'closing'),
    ('project', '', 'finish', 'closing', 'closed'),
    ('invitation', '', 'create', '', 'pending'),
    ('invitation', '', 'accept', 'pending', 'accepted'),
    ('invitation', '', 'revoke', 'pending', 'revoked'),
    ('invitation', '', 'expire', 'pending', 'expired');

-- app_project returns the project that the transaction is bound to. It raises where there is none: the setting stays as an empty text on a connection
-- that had one before, and an empty answer would hide the mistake.
-- +goose StatementBegin
CREATE FUNCTION app_project() RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    id text := current_setting('app.project', true);
BEGIN
    IF id IS NULL OR id = '' THEN
        RAISE EXCEPTION 'no project is set for this transaction: use Store.ForProject' USING ERRCODE = '42501';
    END IF;
    RETURN id;
END $$;
-- +goose StatementEnd

-- isolate_by_project binds a table to the project of the transaction. The owner of the tables gets no policy: a plain view or a function of the owner
-- then sees no row, instead of every project's.
-- +goose StatementBegin
CREATE FUNCTION isolate_by_project(relation regclass, key name DEFAULT 'project_id') RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', relation);
    EXECUTE format('CREATE POLICY customer ON %s TO slipway_customer USING (%I = (SELECT app_project())) WITH CHECK (%I = (SELECT app_project()))',
        relation, key, key);
    EXECUTE format('CREATE POLICY platform ON %s TO slipway_app USING (true) WITH CHECK (true)', relation);
    EXECUTE format('CREATE POLICY reader ON %s FOR SELECT TO slipway_read USING (true)', relation);
END $$;
-- +goose StatementEnd

CREATE TABLE billing_accounts (
    id           text PRIMARY KEY CHECK (id LIKE 'acc\_%'),
    name         text NOT NULL CONSTRAINT billing_accounts_name_unique UNIQUE CHECK (name <> ''),
    max_projects integer NOT NULL DEFAULT 20 CHECK (max_projects BETWEEN 0 AND 10000),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);

-- Names are not unique: an error would tell one owner of a project the names of the account's other projects.
CREATE TABLE projects (
    id                 text PRIMARY KEY CHECK (id LIKE 'prj\_%'),
    billing_account_id text NOT NULL REFERENCES billing_accounts (id),
    name               text NOT NULL CHECK (name <> '' AND char_length(name) <= 100),
    tags               jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(tags::text) <= 16384),
    status             text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'closing', 'closed')),
    version            bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    closed_at          timestamptz,
    CHECK ((status = 'closed') = (closed_at IS NOT NULL))
);
CREATE INDEX projects_by_account ON projects (billing_account_id, id);
SELECT isolate_by_project('projects', 'id');

-- subject is the identity of a sign-in: oidc:SUBJECT.
CREATE TABLE project_members (
    project_id text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id         text NOT NULL CHECK (id LIKE 'mem\_%'),
    subject    text NOT NULL CHECK (subject LIKE 'oidc:_%' AND char_length(subject) <= 300),
    name       text NOT NULL DEFAULT '' CHECK (char_length(name) <= 300),
    role       text NOT NULL CHECK (role IN ('owner', 'member', 'billing', 'viewer')),
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, id),
    CONSTRAINT project_members_subject_unique UNIQUE (project_id, subject)
);
CREATE INDEX project_members_by_subject ON project_members (subject);
SELECT isolate_by_project('project_members');

-- A group of the identity provider gives a role, never that of an owner: the last owner would go with a change at the provider.
CREATE TABLE project_group_roles (
    project_id text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    group_name text NOT NULL CHECK (group_name <> '' AND char_length(group_name) <= 200),
    role       text NOT NULL CHECK (role IN ('member', 'billing', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, group_name)
);
CREATE INDEX project_group_roles_by_group ON project_group_roles (group_name);
SELECT isolate_by_project('project_group_roles');

-- An invitation names the one who may accept it, by a verified e-mail address in lower case or by the subject of a sign-in.
CREATE TABLE project_invitations (
    project_id  text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id          text NOT NULL CHECK (id LIKE 'inv\_%'),
    email       text NOT NULL DEFAULT '' CHECK (email = lower(email) AND char_length(email) <= 254),
    subject     text NOT NULL DEFAULT '' CHECK ((subject = '' OR subject LIKE 'oidc:_%') AND char_length(subject) <= 300),
    role        text NOT NULL CHECK (role IN ('owner', 'member', 'billing', 'viewer')),
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'accepted', 'revoked', 'expired')),
    invited_by  text NOT NULL,
    accepted_by text NOT NULL DEFAULT '',
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    PRIMARY KEY (project_id, id),
    CHECK ((email = '') <> (subject = '')),
    CHECK ((status = 'pending') = (ended_at IS NULL)),
    CHECK ((status = 'accepted') = (accepted_by <> ''))
);
CREATE UNIQUE INDEX project_invitations_one_pending ON project_invitations (project_id, email, subject) WHERE status = 'pending';
CREATE UNIQUE INDEX project_invitations_id_unique ON project_invitations (id);
CREATE INDEX project_invitations_for_email ON project_invitations (email) WHERE status = 'pending' AND email <> '';
CREATE INDEX project_invitations_for_subject ON project_invitations (subject) WHERE status = 'pending' AND subject <> '';
SELECT isolate_by_project('project_invitations');

-- Keys and tokens belong to a member and end with the membership.
CREATE TABLE project_ssh_keys (
    project_id  text NOT NULL REFERENCES projects (id),
    id          text NOT NULL CHECK (id LIKE 'key\_%'),
    member_id   text NOT NULL,
    name        text NOT NULL CHECK (name <> '' AND char_length(name) <= 100),
    type        text NOT NULL CHECK (type <> ''),
    public_key  text NOT NULL CHECK (public_key !~ '[\n\r]' AND octet_length(public_key) <= 8192),
    fingerprint text NOT NULL CHECK (fingerprint LIKE 'SHA256:%'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, id),
    CONSTRAINT project_ssh_keys_name_unique UNIQUE (project_id, name),
    CONSTRAINT project_ssh_keys_fingerprint_unique UNIQUE (project_id, fingerprint),
    FOREIGN KEY (project_id, member_id) REFERENCES project_members (project_id, id) ON DELETE CASCADE
);
CREATE INDEX project_ssh_keys_by_member ON project_ssh_keys (project_id, member_id);
SELECT isolate_by_project('project_ssh_keys');

-- The hash is that of 256 random bits that nobody chooses, so that its index may reach over projects: a token is found by it before its project is known.
CREATE TABLE project_tokens (
    project_id text NOT NULL REFERENCES projects (id),
    id         text NOT NULL CHECK (id LIKE 'tok\_%'),
    member_id  text NOT NULL,
    name       text NOT NULL CHECK (name <> '' AND char_length(name) <= 100),
    hash       bytea NOT NULL CONSTRAINT project_tokens_hash_unique UNIQUE CHECK (octet_length(hash) = 32),
    role       text NOT NULL CHECK (role IN ('owner', 'member', 'billing', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project_id, id),
    CONSTRAINT project_tokens_name_unique UNIQUE (project_id, name),
    FOREIGN KEY (project_id, member_id) REFERENCES project_members (project_id, id) ON DELETE CASCADE
);
CREATE INDEX project_tokens_by_member ON project_tokens (project_id, member_id);
SELECT isolate_by_project('project_tokens');

-- A row without a SKU limits the nodes of all SKUs together. A project without such a row may have none.
CREATE TABLE project_quotas (
    project_id text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sku_id     text REFERENCES skus (id) ON DELETE CASCADE,
    max_nodes  integer NOT NULL CHECK (max_nodes BETWEEN 0 AND 100000),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT project_quotas_sku_unique UNIQUE NULLS NOT DISTINCT (project_id, sku_id)
);
CREATE INDEX project_quotas_by_sku ON project_quotas (sku_id);
SELECT isolate_by_project('project_quotas');

-- What idempotency_records is for operators' requests.
CREATE TABLE project_idempotency_records (
    project_id   text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    principal    text NOT NULL,
    route        text NOT NULL,
    key          text NOT NULL CHECK (key <> ''),
    request_hash bytea NOT NULL,
    state        text NOT NULL CHECK (state IN ('in_flight', 'done')),
    status       integer NOT NULL DEFAULT 0,
    headers      jsonb NOT NULL DEFAULT '{}',
    body         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (project_id, principal, route, key)
);
CREATE INDEX project_idempotency_records_expiry ON project_idempotency_records (expires_at);
SELECT isolate_by_project('project_idempotency_records');

-- What customers see of a SKU. A SKU without a row is not offered.
CREATE TABLE catalogue_items (
    sku_id      text PRIMARY KEY REFERENCES skus (id) ON DELETE CASCADE,
    profile_id  text NOT NULL REFERENCES profiles (id),
    title       text NOT NULL CHECK (title <> '' AND char_length(title) <= 100),
    description text NOT NULL DEFAULT '' CHECK (char_length(description) <= 2000),
    isolation   text NOT NULL CHECK (isolation IN ('dedicated_network', 'shared_network')),
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- +goose StatementBegin
CREATE FUNCTION guard_project_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
-- +goose StatementEnd
CREATE TRIGGER projects_edge_insert BEFORE INSERT ON projects FOR EACH ROW EXECUTE FUNCTION guard_project_status();
CREATE TRIGGER projects_edge_update BEFORE UPDATE ON projects FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_project_status();
CREATE CONSTRAINT TRIGGER projects_audited_insert AFTER INSERT ON projects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('project');
CREATE CONSTRAINT TRIGGER projects_audited_update AFTER UPDATE ON projects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('project');

-- +goose StatementBegin
CREATE FUNCTION guard_invitation_status() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
-- +goose StatementEnd
CREATE TRIGGER project_invitations_edge_insert BEFORE INSERT ON project_invitations FOR EACH ROW EXECUTE FUNCTION guard_invitation_status();
CREATE TRIGGER project_invitations_edge_update BEFORE UPDATE ON project_invitations FOR EACH ROW EXECUTE FUNCTION guard_invitation_status();

-- A project that had an owner keeps one, also when two owners leave at the same time: the second waits for the lock of the project.
-- +goose StatementBegin
CREATE FUNCTION guard_last_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM 1 FROM projects p WHERE p.id = OLD.project_id FOR NO KEY UPDATE;
    IF FOUND AND NOT EXISTS (SELECT FROM project_members m WHERE m.project_id = OLD.project_id AND m.role = 'owner') THEN
        RAISE EXCEPTION 'project % would have no owner', OLD.project_id USING ERRCODE = 'SW004';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER project_members_last_owner_update AFTER UPDATE ON project_members DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.role = 'owner' AND NEW.role <> 'owner') EXECUTE FUNCTION guard_last_owner();
CREATE CONSTRAINT TRIGGER project_members_last_owner_delete AFTER DELETE ON project_members DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.role = 'owner') EXECUTE FUNCTION guard_last_owner();

-- The customers' role has no right to the audit log. It writes and reads the chain of its own project by these functions of the owner.
-- +goose StatementBegin
CREATE FUNCTION project_audit_append(p_id text, p_name text, p_triggered_by text, p_owner text, p_actor_id text, p_comment text, p_metadata jsonb)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, triggered_by, owner, actor_id, comment, metadata)
    VALUES (p_id, 'project', app_project(), 'action', p_name, p_triggered_by, p_owner, p_actor_id, p_comment, p_metadata)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION project_audit(p_before bigint, p_rows integer) RETURNS SETOF jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT jsonb_build_object('pos', l.pos, 'id', l.id, 'kind', l.kind, 'name', l.name, 'from_state', l.from_state, 'to_state', l.to_state,
        'triggered_by', l.triggered_by, 'actor_id', l.actor_id, 'comment', l.comment, 'metadata', l.metadata, 'at', l.at)
    FROM audit_log l
    WHERE l.resource_kind = 'project' AND l.resource_id = (SELECT app_project()) AND (p_before = 0 OR l.pos < p_before)
    ORDER BY l.pos DESC LIMIT p_rows
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION project_audit, project_audit_append;
DROP TABLE catalogue_items, project_idempotency_records, project_quotas, project_tokens, project_ssh_keys, project_invitations, project_group_roles,
    project_members, projects, billing_accounts;
DROP FUNCTION guard_last_owner, guard_invitation_status, guard_project_status, isolate_by_project, app_project;
DELETE FROM lifecycle_edges WHERE resource IN ('project', 'invitation');
