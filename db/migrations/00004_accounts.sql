-- Billing accounts, projects, and what the members of a project make. Every table with a project_id
-- has a row-level security policy for each role, made by isolate_by_project;
-- docs/adr/0016-row-level-security.md says why. A group of the identity provider belongs to one
-- billing account. An operator says so: the owner of a project cannot, since nobody of the group
-- consents.

-- +goose Up
-- The one table of currencies: how many digits the minor unit has.
CREATE TABLE currencies (
    code     text PRIMARY KEY CHECK (code ~ '^[A-Z]{3}$'),
    exponent smallint NOT NULL CHECK (exponent BETWEEN 0 AND 4)
);
INSERT INTO currencies (code, exponent) VALUES
    ('AUD', 2), ('BHD', 3), ('BRL', 2), ('CAD', 2), ('CHF', 2), ('CNY', 2), ('CZK', 2), ('DKK', 2), ('EUR', 2), ('GBP', 2), ('HKD', 2), ('HUF', 2),
    ('INR', 2), ('ISK', 0), ('JPY', 0), ('KRW', 0), ('KWD', 3), ('MXN', 2), ('NOK', 2), ('NZD', 2), ('OMR', 3), ('PLN', 2), ('SEK', 2), ('SGD', 2),
    ('TND', 3), ('TWD', 2), ('USD', 2), ('VND', 0), ('ZAR', 2);

CREATE TABLE billing_accounts (
    id           text PRIMARY KEY CHECK (id LIKE 'acc\_%'),
    name         text NOT NULL CONSTRAINT billing_accounts_name_unique UNIQUE CHECK (name <> ''),
    max_projects integer NOT NULL DEFAULT 20 CHECK (max_projects BETWEEN 0 AND 10000),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    -- The currency of an account is fixed: prices, holds and ledger lines carry it, and nothing is
    -- converted.
    currency     text NOT NULL DEFAULT 'USD' REFERENCES currencies (code),
    CONSTRAINT billing_accounts_currency_unique UNIQUE (id, currency)
);
CREATE TRIGGER billing_accounts_currency BEFORE UPDATE ON billing_accounts FOR EACH ROW
    WHEN (OLD.currency IS DISTINCT FROM NEW.currency) EXECUTE FUNCTION guard_account_currency();
CREATE TRIGGER billing_accounts_balance AFTER INSERT ON billing_accounts FOR EACH ROW EXECUTE FUNCTION make_account_balance();

CREATE TABLE billing_account_groups (
    group_name         text PRIMARY KEY CHECK (group_name <> '' AND char_length(group_name) <= 200),
    billing_account_id text NOT NULL REFERENCES billing_accounts (id) ON DELETE CASCADE,
    created_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX billing_account_groups_by_account ON billing_account_groups (billing_account_id, group_name);

-- Names are not unique: an error would tell one owner of a project the names of the account's other
-- projects.
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
CREATE TRIGGER projects_edge_insert BEFORE INSERT ON projects FOR EACH ROW EXECUTE FUNCTION guard_project_status();
CREATE TRIGGER projects_edge_update BEFORE UPDATE ON projects FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_project_status();
CREATE CONSTRAINT TRIGGER projects_audited_insert AFTER INSERT ON projects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('project');
CREATE CONSTRAINT TRIGGER projects_audited_update AFTER UPDATE ON projects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('project');
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
    -- Where notices are sent: the address that the identity provider had verified when the member
    -- joined or signed in last, '' for none.
    email      text NOT NULL DEFAULT '' CHECK (email = lower(email) AND char_length(email) <= 254),
    PRIMARY KEY (project_id, id),
    CONSTRAINT project_members_subject_unique UNIQUE (project_id, subject)
);
CREATE INDEX project_members_by_subject ON project_members (subject);
CREATE CONSTRAINT TRIGGER project_members_last_owner_update AFTER UPDATE ON project_members DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.role = 'owner' AND NEW.role <> 'owner') EXECUTE FUNCTION guard_last_owner();
CREATE CONSTRAINT TRIGGER project_members_last_owner_delete AFTER DELETE ON project_members DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.role = 'owner') EXECUTE FUNCTION guard_last_owner();
SELECT isolate_by_project('project_members');

-- A group of the identity provider gives a role, never that of an owner: the last owner would go
-- with a change at the provider.
CREATE TABLE project_group_roles (
    project_id text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    group_name text NOT NULL CHECK (group_name <> '' AND char_length(group_name) <= 200),
    role       text NOT NULL CHECK (role IN ('member', 'billing', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, group_name)
);
CREATE INDEX project_group_roles_by_group ON project_group_roles (group_name);
SELECT isolate_by_project('project_group_roles');

-- An invitation names the one who may accept it, by a verified e-mail address in lower case or by
-- the subject of a sign-in.
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
CREATE INDEX project_invitations_ended ON project_invitations ((coalesce(ended_at, expires_at)));
CREATE TRIGGER project_invitations_edge_insert BEFORE INSERT ON project_invitations FOR EACH ROW EXECUTE FUNCTION guard_invitation_status();
CREATE TRIGGER project_invitations_edge_update BEFORE UPDATE ON project_invitations FOR EACH ROW EXECUTE FUNCTION guard_invitation_status();
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
CREATE TRIGGER project_ssh_keys_withdrawn AFTER DELETE ON project_ssh_keys FOR EACH ROW EXECUTE FUNCTION withdraw_key();
SELECT isolate_by_project('project_ssh_keys');

-- The hash is that of 256 random bits that nobody chooses, so that its index may reach over
-- projects: a token is found by it before its project is known.
CREATE TABLE project_tokens (
    project_id text NOT NULL REFERENCES projects (id),
    id         text NOT NULL CHECK (id LIKE 'tok\_%'),
    member_id  text NOT NULL,
    name       text NOT NULL CHECK (name <> '' AND char_length(name) <= 100),
    hash       bytea NOT NULL CONSTRAINT project_tokens_hash_unique UNIQUE CHECK (octet_length(hash) = 32),
    role       text NOT NULL CHECK (role IN ('owner', 'member', 'billing', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    -- last_used_at is written at most once in some minutes, behind the requests.
    last_used_at timestamptz,
    PRIMARY KEY (project_id, id),
    CONSTRAINT project_tokens_name_unique UNIQUE (project_id, name),
    FOREIGN KEY (project_id, member_id) REFERENCES project_members (project_id, id) ON DELETE CASCADE
);
CREATE INDEX project_tokens_by_member ON project_tokens (project_id, member_id);
SELECT isolate_by_project('project_tokens');

-- A row without a SKU limits the nodes of all SKUs together. A project without such a row may have
-- none.
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
