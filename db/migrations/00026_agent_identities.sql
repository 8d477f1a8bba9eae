-- Agent identities that have a way back: enrolments are numbered, an identity that the database forgot is adopted, one that ended is denied.

-- +goose Up
-- The how-manieth enrolment of the node the certificate is of; renewals keep it.
ALTER TABLE agent_certificates ADD COLUMN enrolment bigint NOT NULL DEFAULT 0;
UPDATE agent_certificates c SET enrolment = (SELECT count(*) FROM enrollment_tokens t WHERE t.node_id = c.node_id AND t.used_generation <= c.generation);
ALTER TABLE agent_identities
    -- When the first certificate of the present enrolment was issued, by the clock that dates certificates: an older certificate is a former system's.
    ADD COLUMN enrolled_from timestamptz NOT NULL DEFAULT 'epoch',
    -- Set while the newest certificate is one that the database did not know until an agent showed it, and the generation of before.
    ADD COLUMN adopted_at    timestamptz,
    ADD COLUMN adopted_from  bigint NOT NULL DEFAULT 0;
UPDATE agent_identities i SET enrolled_from = date_trunc('second', (SELECT min(c.not_before) FROM agent_certificates c WHERE c.node_id = i.node_id
    AND c.enrolment = (SELECT p.enrolment FROM agent_certificates p WHERE p.node_id = i.node_id AND p.generation = i.generation)));

-- Keys of certificates whose identity has ended, until none of them could be renewed any more.
CREATE TABLE denied_agent_keys (
    node_id      text NOT NULL,
    key_hash     bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    denied_until timestamptz NOT NULL,
    denied_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, key_hash)
);
CREATE INDEX denied_agent_keys_until ON denied_agent_keys (denied_until);

-- Certificates that were refused without locking anybody out, one row for each node and reason.
CREATE TABLE agent_refusals (
    node_id  text NOT NULL,
    kind     text NOT NULL CHECK (kind <> ''),
    detail   text NOT NULL,
    address  text NOT NULL,
    refused  bigint NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at  timestamptz NOT NULL DEFAULT now(),
    told_at  timestamptz NOT NULL DEFAULT now(), -- when the audit log last named it
    PRIMARY KEY (node_id, kind)
);

CREATE VIEW agent_attention AS
-- The agent should have renewed: of its certificate's life less than a fifth is left, or nothing.
SELECT 'agent_certificate_ends'::text AS kind, ('agent_certificate_ends:' || n.id)::text AS id,
    (c.not_after - (c.not_after - c.not_before) / 5)::timestamptz AS since, n.site_id::text AS site_id, n.id::text AS node_id, n.hostname::text AS hostname,
    ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, n.status::text AS status, ''::text AS stage,
    ''::text AS failure_class,
    ('the agent''s certificate ' || CASE WHEN c.not_after > now() THEN 'ends at ' ELSE 'ended at ' END
        || to_char(c.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' and was not renewed')::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM agent_identities i JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation JOIN nodes n ON n.id = i.node_id
WHERE i.locked_at IS NULL AND n.status IN ('active', 'offline', 'quarantined', 'draining', 'installed')
    AND now() > c.not_after - (c.not_after - c.not_before) / 5
UNION ALL
-- One line for all of them: it is one restore or failover that they are the sign of. Each is gone when the agent renews as usual.
SELECT 'agent_certificate_adopted', 'agent_certificate_adopted:', a.since, '', '', '', '', '', '', '', '', '', '',
    a.agents || CASE a.agents WHEN 1 THEN ' agent has a certificate' ELSE ' agents have certificates' END || ' that the database did not know: ' || a.names
        || CASE WHEN a.agents > 5 THEN ', ...' ELSE '' END, '', '', false, false
FROM (SELECT count(*) AS agents, min(i.adopted_at) AS since, array_to_string((array_agg(n.hostname ORDER BY n.hostname))[1:5], ', ') AS names
    FROM agent_identities i JOIN nodes n ON n.id = i.node_id WHERE i.adopted_at IS NOT NULL AND n.status <> 'deleted') a
WHERE a.agents > 0
UNION ALL
-- Somebody shows a certificate that is refused. It is gone a day after the last time, or when the node enrols.
SELECT 'agent_certificate_refused', 'agent_certificate_refused:' || r.node_id || ':' || r.kind, r.first_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    r.detail || '; refused ' || r.refused || CASE r.refused WHEN 1 THEN ' time' ELSE ' times' END || ', the last time from '
        || CASE r.address WHEN '' THEN 'an unknown address' ELSE r.address END, '', '', false, false
FROM agent_refusals r JOIN nodes n ON n.id = r.node_id
WHERE r.last_at > now() - interval '1 day' AND n.status <> 'deleted';

-- +goose Down
DROP VIEW agent_attention;
DROP TABLE agent_refusals, denied_agent_keys;
ALTER TABLE agent_identities DROP COLUMN adopted_from, DROP COLUMN adopted_at, DROP COLUMN enrolled_from;
ALTER TABLE agent_certificates DROP COLUMN enrolment;
