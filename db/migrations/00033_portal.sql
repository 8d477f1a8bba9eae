-- Sessions of the operator portal, and what its pages read besides: the audit log by actor and by name, the transitions of nodes by time, and
-- the durations of the stages of jobs that ended.

-- +goose Up
CREATE TABLE portal_sessions (
    id             text PRIMARY KEY CHECK (id LIKE 'ses\_%'),
    hash           bytea NOT NULL CONSTRAINT portal_sessions_hash_unique UNIQUE CHECK (octet_length(hash) = 32), -- SHA-256 of the cookie's text
    previous_hash  bytea CHECK (octet_length(previous_hash) = 32), -- of the cookie before the last rotation
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
    CHECK ((method = 'token') = (token_id IS NOT NULL)),
    CHECK ((method = 'oidc') = (issuer <> '' AND subject <> '')),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
);
CREATE INDEX portal_sessions_previous ON portal_sessions (previous_hash) WHERE previous_hash IS NOT NULL;
CREATE INDEX portal_sessions_principal ON portal_sessions (principal, created_at);
CREATE INDEX portal_sessions_subject ON portal_sessions (issuer, subject) WHERE issuer <> '';
CREATE INDEX portal_sessions_sid ON portal_sessions (issuer, sid) WHERE sid <> '';
CREATE INDEX portal_sessions_idle ON portal_sessions (idle_until);

-- A sign-in at the identity provider that has begun. State, nonce and code verifier follow from the cookie, of which only the hash is here.
CREATE TABLE portal_sign_ins (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    return_to  text NOT NULL CHECK (char_length(return_to) <= 2000),
    session_id text REFERENCES portal_sessions (id) ON DELETE CASCADE, -- the session that steps up
    expires_at timestamptz NOT NULL
);
CREATE INDEX portal_sign_ins_expires ON portal_sign_ins (expires_at);

-- Logout tokens that were carried out: none counts twice.
CREATE TABLE portal_logouts (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32), -- SHA-256 of issuer and jti
    expires_at timestamptz NOT NULL
);
CREATE INDEX portal_logouts_expires ON portal_logouts (expires_at);

CREATE INDEX audit_log_actor ON audit_log (actor_id, at, pos) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_log_name ON audit_log (name, at, pos) WHERE kind = 'action';
CREATE INDEX audit_log_node_moves ON audit_log (at) INCLUDE (from_state, to_state) WHERE resource_kind = 'node' AND kind = 'transition';

-- +goose Down
DROP INDEX audit_log_node_moves;
DROP INDEX audit_log_name;
DROP INDEX audit_log_actor;
DROP TABLE portal_logouts;
DROP TABLE portal_sign_ins;
DROP TABLE portal_sessions;
