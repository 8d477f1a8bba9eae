-- API tokens of operators, enrolment tokens of nodes, and sessions of the operator portal.

-- +goose Up
CREATE TABLE api_tokens (
    id         text PRIMARY KEY CHECK (id LIKE 'tok\_%'),
    name       text NOT NULL CHECK (name <> ''),
    hash       bytea NOT NULL CONSTRAINT api_tokens_hash_unique UNIQUE CHECK (octet_length(hash) = 32),
    roles      text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    -- last_used_at is written at most once in some minutes, behind the requests.
    last_used_at timestamptz
);

CREATE TABLE enrollment_tokens (
    id              text PRIMARY KEY CHECK (id LIKE 'tok\_%'),
    node_id         text NOT NULL REFERENCES nodes (id),
    job_id          text REFERENCES jobs (id),
    token_hash      bytea NOT NULL CONSTRAINT enrollment_tokens_hash_unique UNIQUE CHECK (octet_length(token_hash) = 32),
    created_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz NOT NULL,
    used_key_hash   bytea,
    used_generation bigint,
    used_at         timestamptz,
    revoked_at      timestamptz,
    CHECK ((used_at IS NULL) = (used_key_hash IS NULL) AND (used_at IS NULL) = (used_generation IS NULL))
);
CREATE INDEX enrollment_tokens_by_node ON enrollment_tokens (node_id, created_at);
CREATE INDEX enrollment_tokens_by_job ON enrollment_tokens (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE portal_sessions (
    id             text PRIMARY KEY CHECK (id LIKE 'ses\_%'),
    -- SHA-256 of the cookie's text
    hash           bytea NOT NULL CONSTRAINT portal_sessions_hash_unique UNIQUE CHECK (octet_length(hash) = 32),
    -- of the cookie before the last rotation
    previous_hash  bytea CHECK (octet_length(previous_hash) = 32),
    previous_until timestamptz,
    method         text NOT NULL CHECK (method IN ('oidc', 'token')),
    principal      text NOT NULL CHECK (principal <> ''),
    name           text NOT NULL,
    roles          text[] NOT NULL,
    token_id       text REFERENCES api_tokens (id), -- ends with the token
    issuer         text NOT NULL DEFAULT '',
    subject        text NOT NULL DEFAULT '',
    sid            text NOT NULL DEFAULT '', -- the provider's own name for its session
    created_at     timestamptz NOT NULL DEFAULT now(),
    seen_at        timestamptz NOT NULL DEFAULT now(),
    idle_until     timestamptz NOT NULL,
    ends_at        timestamptz NOT NULL,
    auth_time      timestamptz NOT NULL,
    step_up_until  timestamptz,
    user_agent     text NOT NULL DEFAULT '' CHECK (char_length(user_agent) <= 200),
    groups         text[] NOT NULL DEFAULT '{}' CHECK (cardinality(groups) <= 200 AND char_length(array_to_string(groups, '')) <= 200 * 200),
    CHECK ((method = 'token') = (token_id IS NOT NULL)),
    CHECK ((method = 'oidc') = (issuer <> '' AND subject <> '')),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
);
CREATE INDEX portal_sessions_previous ON portal_sessions (previous_hash) WHERE previous_hash IS NOT NULL;
CREATE INDEX portal_sessions_principal ON portal_sessions (principal, created_at);
CREATE INDEX portal_sessions_subject ON portal_sessions (issuer, subject) WHERE issuer <> '';
CREATE INDEX portal_sessions_sid ON portal_sessions (issuer, sid) WHERE sid <> '';
CREATE INDEX portal_sessions_idle ON portal_sessions (idle_until);

-- A sign-in at the identity provider that has begun. State, nonce and code verifier follow from the
-- cookie, of which only the hash is here.
CREATE TABLE portal_sign_ins (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    return_to  text NOT NULL CHECK (char_length(return_to) <= 2000),
    session_id text REFERENCES portal_sessions (id) ON DELETE CASCADE, -- the session that steps up
    expires_at timestamptz NOT NULL,
    -- It names no row: the session may end before the sign-in does, and ids are never used twice.
    replaces   text NOT NULL DEFAULT '' CHECK (char_length(replaces) <= 100)
);
CREATE INDEX portal_sign_ins_expires ON portal_sign_ins (expires_at);

-- Logout tokens that were carried out: none counts twice.
CREATE TABLE portal_logouts (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32), -- SHA-256 of issuer and jti
    expires_at timestamptz NOT NULL
);
CREATE INDEX portal_logouts_expires ON portal_logouts (expires_at);
