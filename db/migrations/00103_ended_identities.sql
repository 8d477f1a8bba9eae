-- An agent identity ends by one row, whatever number of certificates it had: the last enrolment and generation that have ended.

-- +goose Up
ALTER TABLE agent_identities
    ADD COLUMN ended_enrolment  bigint NOT NULL DEFAULT 0 CHECK (ended_enrolment >= 0),
    ADD COLUMN ended_generation bigint NOT NULL DEFAULT 0 CHECK (ended_generation >= 0);
UPDATE agent_identities i SET ended_enrolment = e.enrolment, ended_generation = e.generation
FROM (SELECT c.node_id, max(c.enrolment) AS enrolment, max(c.generation) AS generation FROM agent_certificates c
    JOIN denied_agent_keys d ON d.node_id = c.node_id AND d.key_hash = c.key_hash GROUP BY c.node_id) e
WHERE e.node_id = i.node_id;
DROP TABLE denied_agent_keys;

-- +goose Down
CREATE TABLE denied_agent_keys (
    node_id      text NOT NULL,
    key_hash     bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    denied_until timestamptz NOT NULL,
    denied_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, key_hash)
);
CREATE INDEX denied_agent_keys_until ON denied_agent_keys (denied_until);
ALTER TABLE agent_identities DROP COLUMN ended_generation, DROP COLUMN ended_enrolment;
