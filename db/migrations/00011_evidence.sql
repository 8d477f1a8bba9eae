-- Evidence: what Slipway signed about nodes that were taken back, one chain for each node, and the
-- public halves of the keys that sign.

-- +goose Up
CREATE TABLE signing_keys (
    id         text PRIMARY KEY CHECK (id LIKE 'key\_%'),
    purpose    text NOT NULL,
    public     bytea NOT NULL CHECK (octet_length(public) = 32), -- ed25519
    secret_ref text NOT NULL CHECK (secret_ref <> ''), -- of the private half
    created_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz,
    CONSTRAINT signing_keys_purpose_check CHECK (purpose IN ('task', 'certificate', 'action'))
);
CREATE UNIQUE INDEX signing_keys_one_in_use ON signing_keys (purpose) WHERE retired_at IS NULL;

CREATE TABLE certificates (
    id              text PRIMARY KEY CHECK (id LIKE 'cert\_%'),
    node_id         text NOT NULL REFERENCES nodes (id),
    run_id          text NOT NULL CHECK (run_id <> ''),
    sequence        bigint NOT NULL CHECK (sequence > 0),
    verdict         text NOT NULL CHECK (verdict IN ('clean', 'not_verified')),
    simulated       boolean NOT NULL,
    payload         bytea NOT NULL,
    hash            text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    previous_hash   text NOT NULL CHECK (previous_hash = '' OR previous_hash ~ '^[0-9a-f]{64}$'),
    key_id          text NOT NULL REFERENCES signing_keys (id),
    signature       bytea NOT NULL CHECK (octet_length(signature) = 64),
    issued_at       timestamptz NOT NULL,
    -- Nothing of a tenant who left before this time is on the node; empty where the certificate
    -- does not prove that. A mode that keeps the installed system proves it without a verdict of
    -- clean.
    sanitized_since timestamptz,
    CONSTRAINT certificates_chain_unique UNIQUE (node_id, sequence),
    CHECK ((sequence = 1) = (previous_hash = ''))
);
CREATE INDEX certificates_by_run ON certificates (run_id);
CREATE TRIGGER certificates_append_only BEFORE UPDATE OR DELETE ON certificates FOR EACH ROW EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER certificates_no_truncate BEFORE TRUNCATE ON certificates FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
