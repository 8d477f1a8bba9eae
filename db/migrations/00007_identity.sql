-- Who may speak: API tokens, enrolment tokens and certificates of nodes; what nodes say (heartbeats); sealed secrets.

-- +goose Up
CREATE TABLE api_tokens (
    id         text PRIMARY KEY CHECK (id LIKE 'tok\_%'),
    name       text NOT NULL CHECK (name <> ''),
    hash       bytea NOT NULL CONSTRAINT api_tokens_hash_unique UNIQUE CHECK (octet_length(hash) = 32),
    roles      text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

CREATE TABLE enrollment_tokens (
    id               text PRIMARY KEY CHECK (id LIKE 'tok\_%'),
    node_id          text NOT NULL REFERENCES nodes (id),
    job_id           text REFERENCES jobs (id),
    token_hash       bytea NOT NULL CONSTRAINT enrollment_tokens_hash_unique UNIQUE CHECK (octet_length(token_hash) = 32),
    created_at       timestamptz NOT NULL DEFAULT now(),
    expires_at       timestamptz NOT NULL,
    used_key_hash    bytea,
    used_generation  bigint,
    used_at          timestamptz,
    revoked_at       timestamptz,
    CHECK ((used_at IS NULL) = (used_key_hash IS NULL) AND (used_at IS NULL) = (used_generation IS NULL))
);
CREATE INDEX enrollment_tokens_by_node ON enrollment_tokens (node_id, created_at);

-- Every certificate that was ever issued to a node; agent_identities says which one counts.
CREATE TABLE agent_certificates (
    node_id    text NOT NULL REFERENCES nodes (id),
    generation bigint NOT NULL CHECK (generation > 0),
    serial     text NOT NULL,
    key_hash   bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    cert_pem   text NOT NULL,
    not_before timestamptz NOT NULL,
    not_after  timestamptz NOT NULL,
    issued_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, generation)
);

CREATE TABLE agent_identities (
    node_id       text PRIMARY KEY REFERENCES nodes (id),
    generation    bigint NOT NULL,
    locked_at     timestamptz,
    locked_reason text NOT NULL DEFAULT '',
    updated_at    timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (node_id, generation) REFERENCES agent_certificates (node_id, generation),
    CHECK ((locked_at IS NULL) = (locked_reason = ''))
);

-- Narrow and hot: one row a node, updated in place, no foreign key to look up.
CREATE TABLE heartbeats (
    node_id        text PRIMARY KEY,
    boot_id        text NOT NULL,
    agent_version  text NOT NULL,
    generation     bigint NOT NULL,
    address        text NOT NULL DEFAULT '',
    clock_skew_ms  bigint NOT NULL DEFAULT 0, -- agent's clock minus the server's
    uptime_s       double precision NOT NULL DEFAULT 0,
    received_at    timestamptz NOT NULL,
    report         jsonb,
    report_boot_id text NOT NULL DEFAULT '',
    reported_at    timestamptz,
    unhealthy      text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE secret_versions (
    name        text NOT NULL CHECK (name <> ''),
    version     integer NOT NULL CHECK (version > 0),
    keeper_url  text NOT NULL,
    ciphertext  bytea NOT NULL,
    fingerprint bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);

-- +goose Down
DROP TABLE secret_versions, heartbeats, agent_identities, agent_certificates, enrollment_tokens, api_tokens;
