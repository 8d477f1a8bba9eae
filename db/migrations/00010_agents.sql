-- Node agents: their certificates and identities, their releases, what they report (heartbeats),
-- and the tasks that they are given under a lease, fenced by attempt and lease. A node is silent
-- only if the agent API has listened for as long as its silence: agent_listeners says who listens.

-- +goose Up
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
    -- The how-manieth enrolment of the node the certificate is of; renewals keep it.
    enrolment  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (node_id, generation)
);
CREATE TRIGGER agent_certificates_renewal AFTER UPDATE OF not_before, not_after ON agent_certificates FOR EACH ROW EXECUTE FUNCTION move_agent_renewal();

CREATE TABLE agent_identities (
    node_id          text PRIMARY KEY REFERENCES nodes (id),
    generation       bigint NOT NULL,
    locked_at        timestamptz,
    locked_reason    text NOT NULL DEFAULT '',
    updated_at       timestamptz NOT NULL DEFAULT now(),
    -- Locked because the node installs another system, and not because a certificate of the past
    -- was shown: nobody has to look.
    replaced         boolean NOT NULL DEFAULT false,
    -- When the first certificate of the present enrolment was issued, by the clock that dates
    -- certificates: an older certificate is a former system's.
    enrolled_from    timestamptz NOT NULL DEFAULT 'epoch',
    -- Set while the newest certificate is one that the database did not know until an agent showed
    -- it, and the generation of before.
    adopted_at       timestamptz,
    adopted_from     bigint NOT NULL DEFAULT 0,
    -- When the agent of a node should have renewed its certificate: of its life less than a fifth
    -- is left.
    renew_at         timestamptz,
    ended_enrolment  bigint NOT NULL DEFAULT 0 CHECK (ended_enrolment >= 0),
    ended_generation bigint NOT NULL DEFAULT 0 CHECK (ended_generation >= 0),
    FOREIGN KEY (node_id, generation) REFERENCES agent_certificates (node_id, generation),
    CHECK ((locked_at IS NULL) = (locked_reason = ''))
);
CREATE INDEX agent_identities_renewal ON agent_identities (renew_at) WHERE locked_at IS NULL;
CREATE INDEX agent_identities_locked ON agent_identities (node_id) WHERE locked_at IS NOT NULL;
CREATE INDEX agent_identities_adopted ON agent_identities (node_id) WHERE adopted_at IS NOT NULL;
CREATE TRIGGER agent_identities_renewal BEFORE INSERT OR UPDATE OF generation ON agent_identities FOR EACH ROW EXECUTE FUNCTION set_agent_renewal();

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

-- A release never changes: a second one of the same version must be the same.
CREATE TABLE agent_releases (
    version    text PRIMARY KEY CHECK (version ~ '^v[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$'),
    manifest   bytea NOT NULL CHECK (octet_length(manifest) BETWEEN 1 AND 4096),
    signature  bytea NOT NULL CHECK (octet_length(signature) = 64),
    binary_url text NOT NULL CHECK (octet_length(binary_url) BETWEEN 1 AND 2048),
    created_by text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE agent_listeners (
    id      text PRIMARY KEY CHECK (id <> ''), -- a process
    since   timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
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
    unhealthy      text[] NOT NULL DEFAULT '{}',
    -- The allocation that the agent says its node holds: '' is none, NULL is an agent that does not
    -- say.
    allocation     text CHECK (char_length(allocation) <= 128)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE node_tasks (
    id                 text PRIMARY KEY CHECK (id LIKE 'task\_%'),
    node_id            text NOT NULL REFERENCES nodes (id),
    job_id             text REFERENCES jobs (id),
    kind               text NOT NULL CHECK (kind <> ''),
    schema_version     integer NOT NULL CHECK (schema_version > 0),
    args               jsonb NOT NULL,
    idempotency_key    text NOT NULL CHECK (idempotency_key <> ''),
    status             text NOT NULL,
    -- The last delivery. It stays when the task is queued again, so that a result that the agent's
    -- journal kept is still known.
    attempt            integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    lease_id           text NOT NULL DEFAULT '',
    lease_until        timestamptz, -- set while dispatched only
    -- the agent's own name for the claim, so that a lost answer is given again
    claim_id           text NOT NULL DEFAULT '',
    boot_id            text NOT NULL DEFAULT '',
    generation         bigint NOT NULL DEFAULT 0,
    dispatched_at      timestamptz,
    progress           text NOT NULL DEFAULT '',
    result             jsonb,
    message            text NOT NULL DEFAULT '', -- why it stands where it does
    deadline_at        timestamptz NOT NULL,
    -- The activity that waits for the end; told_at is when it was told.
    waiter_workflow_id text NOT NULL DEFAULT '',
    waiter_run_id      text NOT NULL DEFAULT '',
    waiter_activity_id text NOT NULL DEFAULT '',
    tell_at            timestamptz NOT NULL DEFAULT now(), -- not to be told before
    told_at            timestamptz,
    -- how often the job that waits was told that the outcome is unknown, and was sent on
    doubts             integer NOT NULL DEFAULT 0,
    created_by         text NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL DEFAULT now(),
    status_at          timestamptz NOT NULL DEFAULT now(),
    finished_at        timestamptz,
    updated_at         timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1,
    CONSTRAINT node_tasks_key_unique UNIQUE (node_id, idempotency_key),
    CONSTRAINT node_tasks_lease CHECK ((status = 'dispatched') = (lease_until IS NOT NULL)),
    CONSTRAINT node_tasks_delivery CHECK (status <> 'dispatched' OR (attempt > 0 AND lease_id <> '' AND boot_id <> '' AND generation > 0)),
    CONSTRAINT node_tasks_result CHECK (status NOT IN ('succeeded', 'failed') OR result IS NOT NULL)
);
-- A node works on one task at a time.
CREATE UNIQUE INDEX node_tasks_one_dispatched ON node_tasks (node_id) WHERE status = 'dispatched';
CREATE INDEX node_tasks_by_node ON node_tasks (node_id, id);
CREATE INDEX node_tasks_by_job ON node_tasks (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX node_tasks_open ON node_tasks (node_id, id) WHERE status IN ('queued', 'dispatched');
CREATE INDEX node_tasks_uncertain ON node_tasks (node_id) WHERE status = 'uncertain';
CREATE INDEX node_tasks_to_tell ON node_tasks (tell_at)
    WHERE told_at IS NULL AND waiter_activity_id <> '' AND status NOT IN ('queued', 'dispatched');
CREATE INDEX node_tasks_ended ON node_tasks (finished_at) WHERE status IN ('succeeded', 'failed', 'expired');
CREATE TRIGGER node_tasks_edge_insert BEFORE INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_task_status();
CREATE TRIGGER node_tasks_edge_update BEFORE UPDATE ON node_tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_task_status();
CREATE CONSTRAINT TRIGGER node_tasks_audited_insert AFTER INSERT ON node_tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('node_task');
CREATE CONSTRAINT TRIGGER node_tasks_audited_update AFTER UPDATE ON node_tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('node_task');
CREATE TRIGGER node_tasks_wake_insert AFTER INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION node_tasks_wake();
CREATE TRIGGER node_tasks_wake_update AFTER UPDATE ON node_tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION node_tasks_wake();
CREATE TRIGGER node_tasks_no_delete BEFORE DELETE ON node_tasks FOR EACH ROW EXECUTE FUNCTION guard_task_delete();
