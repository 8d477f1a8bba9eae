-- Staged jobs (04-jobs.md): the row is a projection of the workflow, written by it under a sequence number, and the intent before it starts.

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
    checkpoint         jsonb,                       -- the workflow's own state, from which a lost run continues
    workflow_id        text NOT NULL CONSTRAINT jobs_workflow_unique UNIQUE,
    run_id             text NOT NULL DEFAULT '',
    created_by         text NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL DEFAULT now(),
    started_at         timestamptz,
    finished_at        timestamptz,
    stage_deadline_at  timestamptz,
    updated_at         timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1
);
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_node ON jobs (node_id)
    WHERE node_id IS NOT NULL AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_node ON jobs (node_id, id);
CREATE INDEX jobs_by_site ON jobs (site_id, id);
CREATE INDEX jobs_by_batch ON jobs (batch_id, status) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_by_status ON jobs (status, id);
CREATE INDEX jobs_succeeded_by_kind ON jobs (kind, finished_at) WHERE status IN ('completed', 'reconciled');

CREATE TABLE job_stages (
    job_id      text NOT NULL REFERENCES jobs (id),
    ordinal     integer NOT NULL CHECK (ordinal >= 0),
    name        text NOT NULL CHECK (name <> ''),
    state       text NOT NULL CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'skipped', 'adopted', 'compensated')),
    attempts    integer NOT NULL DEFAULT 0,
    started_at  timestamptz,
    finished_at timestamptz,
    message     text NOT NULL DEFAULT '',
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

-- Seed 001 names the read model of onboarding jobs.
CREATE VIEW node_onboardings AS SELECT * FROM jobs WHERE kind = 'onboarding';

-- +goose Down
DROP VIEW node_onboardings;
DROP TABLE batch_items, job_stages, jobs, batches;
