-- Releases of the node agent: what was signed offline, and where the program is.

-- +goose Up
-- A release never changes: a second one of the same version must be the same.
CREATE TABLE agent_releases (
    version    text PRIMARY KEY CHECK (version ~ '^v[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$'),
    manifest   bytea NOT NULL CHECK (octet_length(manifest) BETWEEN 1 AND 4096),
    signature  bytea NOT NULL CHECK (octet_length(signature) = 64),
    binary_url text NOT NULL CHECK (octet_length(binary_url) BETWEEN 1 AND 2048),
    created_by text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE agent_releases;
