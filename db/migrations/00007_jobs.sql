-- Staged jobs. The row is a projection of the workflow, which writes it under a sequence number,
-- and holds the intent before the workflow starts. The action log has one row for each try of a
-- stage; its rows are pruned, and the audit log stays.

-- +goose Up
CREATE TABLE batches (
    id           text PRIMARY KEY CHECK (id LIKE 'batch\_%'),
    site_id      text NOT NULL REFERENCES sites (id),
    name         text NOT NULL DEFAULT '',
    max_parallel integer NOT NULL CHECK (max_parallel BETWEEN 1 AND 500),
    created_by   text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE jobs (
    id                 text PRIMARY KEY CHECK (id LIKE 'job\_%'),
    kind               text NOT NULL CHECK (kind <> ''),
    node_id            text REFERENCES nodes (id),
    site_id            text REFERENCES sites (id),
    profile_id         text REFERENCES profiles (id),
    batch_id           text REFERENCES batches (id),
    status             text NOT NULL,
    stage              text NOT NULL DEFAULT '',
    stage_ordinal      integer NOT NULL DEFAULT 0,
    seq                bigint NOT NULL DEFAULT 0,
    attempt            integer NOT NULL DEFAULT 0,
    failure_class      text NOT NULL DEFAULT '',
    failed_stage       text NOT NULL DEFAULT '',
    message            text NOT NULL DEFAULT '',
    recommended_action text NOT NULL DEFAULT '',
    next_step          text NOT NULL DEFAULT '',
    waiting_outside    boolean NOT NULL DEFAULT false,
    frozen             boolean NOT NULL DEFAULT false,
    adopted            boolean NOT NULL DEFAULT false,
    observed           jsonb,
    progress_percent   integer NOT NULL DEFAULT 0 CHECK (progress_percent BETWEEN 0 AND 100),
    reached_percent    integer NOT NULL DEFAULT 0 CHECK (reached_percent BETWEEN 0 AND 100),
    eta                jsonb,
    input              jsonb NOT NULL DEFAULT '{}', -- the request as accepted
    checkpoint         jsonb, -- the workflow's own state, from which a lost run continues
    workflow_id        text NOT NULL CONSTRAINT jobs_workflow_unique UNIQUE,
    run_id             text NOT NULL DEFAULT '',
    created_by         text NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL DEFAULT now(),
    started_at         timestamptz,
    finished_at        timestamptz,
    stage_deadline_at  timestamptz,
    updated_at         timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1,
    bmc_id             text REFERENCES bmcs (id),
    -- A job of a resource that touches a node sets node_id too, so that jobs_one_live_per_node
    -- stays the lock of a node.
    resource_kind      text NOT NULL DEFAULT '',
    resource_id        text NOT NULL DEFAULT '',
    -- Since when a job is in its state.
    state_changed_at   timestamptz NOT NULL DEFAULT now(),
    -- How often the job was taken back. A task that a run of before asks for is refused.
    compensations      integer NOT NULL DEFAULT 0 CHECK (compensations >= 0),
    recent_steps       text[] NOT NULL DEFAULT '{}',
    CHECK ((resource_kind = '') = (resource_id = ''))
);
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_node ON jobs (node_id)
    WHERE node_id IS NOT NULL AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_node ON jobs (node_id, id);
CREATE INDEX jobs_by_site ON jobs (site_id, id);
CREATE INDEX jobs_by_batch ON jobs (batch_id, status) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_by_status ON jobs (status, id);
CREATE INDEX jobs_succeeded_by_kind ON jobs (kind, finished_at) WHERE status IN ('completed', 'reconciled');
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_bmc ON jobs (bmc_id)
    WHERE bmc_id IS NOT NULL AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_bmc ON jobs (bmc_id, id) WHERE bmc_id IS NOT NULL;
-- Past jobs of the same kind and path, newest first: what an estimate is made from. jobs.eta is no
-- longer written.
CREATE INDEX jobs_succeeded_by_path ON jobs (kind, (coalesce(input ->> 'mode', input ->> 'manual', '')), finished_at DESC)
    WHERE status IN ('completed', 'reconciled');
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_resource ON jobs (resource_kind, resource_id)
    WHERE resource_kind <> '' AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_resource ON jobs (resource_kind, resource_id, id) WHERE resource_kind <> '';
CREATE INDEX jobs_ended ON jobs (finished_at, id) WHERE status IN ('completed', 'reconciled', 'cancelled');
CREATE INDEX jobs_by_node_kind ON jobs (node_id, kind, id) WHERE node_id IS NOT NULL;
CREATE INDEX jobs_by_bmc_kind ON jobs (bmc_id, kind, id) WHERE bmc_id IS NOT NULL;
CREATE TRIGGER jobs_edge_insert BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION guard_job_status();
CREATE TRIGGER jobs_edge_update BEFORE UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_job_status();
CREATE CONSTRAINT TRIGGER jobs_audited_insert AFTER INSERT ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('job');
CREATE CONSTRAINT TRIGGER jobs_audited_update AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('job');
CREATE TRIGGER jobs_no_delete BEFORE DELETE ON jobs FOR EACH ROW
    WHEN ((OLD.status IN ('completed', 'reconciled', 'cancelled') AND OLD.finished_at < now() - interval '1 day') IS NOT TRUE)
    EXECUTE FUNCTION guard_no_delete();

CREATE TABLE job_stages (
    job_id        text NOT NULL REFERENCES jobs (id),
    ordinal       integer NOT NULL CHECK (ordinal >= 0),
    name          text NOT NULL CHECK (name <> ''),
    state         text NOT NULL CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'skipped', 'adopted', 'compensated')),
    attempts      integer NOT NULL DEFAULT 0,
    started_at    timestamptz,
    finished_at   timestamptz,
    message       text NOT NULL DEFAULT '',
    -- worked_ms is the time of all tries of the stage that have ended; it outlives the action log.
    -- failure_class is of the last try that failed.
    worked_ms     bigint NOT NULL DEFAULT 0 CHECK (worked_ms >= 0),
    failure_class text NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, ordinal)
);

CREATE TABLE batch_items (
    batch_id text NOT NULL REFERENCES batches (id),
    ordinal  integer NOT NULL CHECK (ordinal >= 0),
    hostname text NOT NULL,
    job_id   text REFERENCES jobs (id),
    error    text,
    PRIMARY KEY (batch_id, ordinal),
    CHECK (job_id IS NULL OR error IS NULL)
);
CREATE INDEX batch_items_by_job ON batch_items (job_id) WHERE job_id IS NOT NULL;

-- Plans that were shown, so that a start with a hash that is no longer true can be told what
-- changed. Those that a job was started with are kept; the others of a node are dropped when a
-- later one is kept.
CREATE TABLE node_plans (
    node_id text NOT NULL REFERENCES nodes (id),
    hash    text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    mode    text NOT NULL CHECK (mode <> ''),
    plan    jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    job_id  text REFERENCES jobs (id), -- the last one that was started with it
    PRIMARY KEY (node_id, hash)
);
CREATE INDEX node_plans_by_job ON node_plans (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE action_logs (
    id            text PRIMARY KEY CHECK (id LIKE 'act\_%'),
    job_id        text NOT NULL REFERENCES jobs (id),
    node_id       text,
    seq           bigint NOT NULL, -- of the projection that began it
    stage         text NOT NULL CHECK (stage <> ''),
    attempt       integer NOT NULL,
    action_type   text NOT NULL CHECK (action_type <> ''),
    component     text NOT NULL CHECK (component IN ('api', 'orchestrator')),
    status        text NOT NULL DEFAULT 'in_progress' CHECK (status IN ('in_progress', 'success', 'failed')),
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz CHECK (finished_at >= started_at),
    duration_ms   bigint CHECK (duration_ms >= 0),
    failure_class text NOT NULL DEFAULT '',
    error_message text NOT NULL DEFAULT '' CHECK (char_length(error_message) <= 4001),
    metadata      jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(metadata::text) <= 16384),
    CHECK ((status = 'in_progress') = (finished_at IS NULL)),
    CHECK ((finished_at IS NULL) = (duration_ms IS NULL)),
    CONSTRAINT action_logs_once UNIQUE (job_id, seq)
);
CREATE INDEX action_logs_by_job ON action_logs (job_id, id);
CREATE INDEX action_logs_by_node ON action_logs (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX action_logs_open ON action_logs (job_id) WHERE status = 'in_progress';
CREATE INDEX action_logs_ended ON action_logs (finished_at) WHERE finished_at IS NOT NULL;

-- One row: how the last pass went. A database that was never swept counts from when this table was
-- made.
CREATE TABLE sweep_passes (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- of the last pass that looked at everything it set out to
    finished_at timestamptz NOT NULL DEFAULT now(),
    tried_at    timestamptz, -- of the last pass of any kind
    passes      bigint NOT NULL DEFAULT 0,
    -- the job that the last round of questions to Temporal ended with
    place       text NOT NULL DEFAULT '',
    problem     text NOT NULL DEFAULT '', -- what kept the last pass from looking at everything
    -- The ended job that pruning came to last.
    pruned_at   timestamptz NOT NULL DEFAULT '-infinity',
    pruned_id   text NOT NULL DEFAULT ''
);
INSERT INTO sweep_passes DEFAULT VALUES;

-- What the sweeper found and no other row tells. A finding is opened once, kept up to date while it
-- lasts, and closed.
CREATE TABLE sweep_findings (
    id        text PRIMARY KEY CHECK (id LIKE 'find\_%'),
    kind      text NOT NULL CHECK (kind IN ('workflow_silent', 'workflow_gone', 'workflow_orphan')),
    subject   text NOT NULL CHECK (subject <> ''), -- the job; of an orphan its workflow id
    job_id    text REFERENCES jobs (id),
    run_id    text NOT NULL DEFAULT '',
    message   text NOT NULL DEFAULT '',
    acted_at  timestamptz, -- when the sweeper asked the workflow to end
    opened_at timestamptz NOT NULL DEFAULT now(),
    seen_at   timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    outcome   text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX sweep_findings_one_open ON sweep_findings (kind, subject) WHERE closed_at IS NULL;
CREATE INDEX sweep_findings_closed ON sweep_findings (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX sweep_findings_by_job ON sweep_findings (job_id) WHERE job_id IS NOT NULL;
